// Reads and validates the header of a safetensors file: what tensors it holds and where.
//
// The format: a little-endian u64, the length of the header; the header, a JSON object of tensors and an
// optional "__metadata__" object of strings; then the data area, which offsets count from. The header is text
// of strangers and may be 100 MB long, so it is read in pieces and parsed by events (no text, no tree, no
// recursion), what grows with it is bounded below, and every claim in it is checked against the file:
// afterwards the tensors are known to tile the data area without overlap or hole. No header takes more than
// 450 MB of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.h"
#include "model/dtype.h"
#include "model/file.h"

namespace weightpress::model {

/// Longest header the `safetensors` package reads, in bytes.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
/// Longest name of a tensor. Real ones have up to about 100 bytes; work grows with the square of their dots.
inline constexpr std::size_t kMaxNameBytes = 4'096;
/// More of them in one file, no model has.
inline constexpr std::size_t kMaxTensors = 1'000'000;
inline constexpr std::size_t kMaxMetadataEntries = 1'000'000;
/// Most dimensions of a tensor, as in PyTorch and numpy.
inline constexpr std::size_t kMaxDimensions = 64;
/// Longest text between quotes as it stands in the header. A picture in metadata has about 60,000.
inline constexpr std::uint64_t kMaxTextBytes = 16'000'000;
/// Most bytes from one text to the next; repeated white space does not count. Real ones have about 50.
inline constexpr std::uint64_t kMaxBytesBetweenTexts = 1'000'000;
/// A header is read and parsed in pieces of so many bytes.
inline constexpr std::size_t kHeaderPieceBytes = 64 * 1024;
/// The key of the header that is not a tensor.
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// Product of a shape's dimensions, 1 for a scalar; nothing if it (or a product on the way) exceeds 64 bits.
std::optional<std::uint64_t> checked_num_elements(const std::vector<std::uint64_t>& shape);

/// Bytes of a tensor; nothing if they exceed 64 bits or are not a whole number.
std::optional<std::uint64_t> checked_size_bytes(Dtype dtype, const std::vector<std::uint64_t>& shape);

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::kBool;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin_bytes = 0;  ///< in the data area
  std::uint64_t end_bytes = 0;

  /// Of a validated entry.
  std::uint64_t num_elements() const { return checked_num_elements(shape).value(); }
  std::uint64_t size_bytes() const { return end_bytes - begin_bytes; }
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< in data order; tensors without data at one place in header order
  /// The object of __metadata__ as compact JSON in the order of the file; empty if there is none. {} counts.
  std::string metadata_json;
  std::uint64_t data_offset = 0;  ///< of the data area in the file: 8 + header length
};

/// Judges a header (the JSON alone) of a file whose data area has `data_bytes`. Errors are kCorruptFile and
/// begin with `file_name`. The size of the pieces changes nothing, except which of two faults that stand
/// close together is told: tests make it small.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                                   const std::string& file_name,
                                                   std::size_t piece_bytes = kHeaderPieceBytes);

/// Reads the header of an open file. What is not a safetensors file at all (a Git LFS pointer, a web page) is
/// told by name. Throws only what File throws.
Result<SafetensorsHeader> try_read_safetensors_header(const File& file);

/// The same; throws Error.
SafetensorsHeader read_safetensors_header(const File& file);

}  // namespace weightpress::model
