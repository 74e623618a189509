// What weightpress.json tells about the source of an output: its files, the tensors of each, and what became
// of every one. With it an output turns back into its source.
//
// The record may be broken, or lie beside the wrong output. Here it is checked against itself: afterwards
// names are unique, file names stay in their folder, and what is tied is tied to something. Whether it fits
// the output is judged by job/restore_by_record.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/result.h"
#include "model/definition.h"
#include "model/dtype.h"

namespace weightpress::model {

/// Longest record that is read. A million tensors take about 150 MB.
inline constexpr std::uint64_t kMaxSourceRecordBytes = std::uint64_t{512} << 20;

/// What became of a tensor of the source.
enum class TensorFate : std::uint8_t {
  kKept,    ///< stored as it was, or cast
  kInUnit,  ///< its weights are part of a unit
  kTied,    ///< not stored: another tensor has the same bytes
  kDropped  ///< not stored
};

struct RecordedTensor {
  std::string name;                  ///< in the source
  Dtype dtype = Dtype::kBool;        ///< in the source
  std::vector<std::uint64_t> shape;  ///< a size that fits 64 bits
  TensorFate fate = TensorFate::kKept;
  Dtype stored_dtype = Dtype::kBool;  ///< in the output: the source's own unless it was cast
  std::string stored_name;            ///< in the output, or as its definition names it; kKept and kInUnit
  std::string unit;                   ///< kInUnit
  std::string tied_to;                ///< kTied: the name of a tensor of the source that is stored
  std::string drop_reason;            ///< kDropped: a clause
};

struct RecordedFile {
  std::string name;           ///< the plain name of a .safetensors file
  std::string metadata_json;  ///< __metadata__ as compact JSON in the order of the source; empty: none
  std::vector<RecordedTensor> tensors;
};

/// A unit that was made from a tensor which is stored elsewhere too.
struct RecordedTiedUnit {
  std::string unit;
  std::string made_from;  ///< the name of a tensor of the source
};

struct SourceRecord {
  std::string layout;
  bool has_hashes = false;                ///< they were stored in every file of the output
  std::vector<UnitPattern> pattern_dict;  ///< of the definition
  std::vector<RecordedFile> files;
  std::vector<RecordedTiedUnit> tied_units;
};

/// Errors: kCorruptFile, naming `file_name` and what is wrong.
Result<SourceRecord> parse_source_record(const std::string& text, const std::string& file_name);

}  // namespace weightpress::model
