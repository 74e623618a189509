// Plans a safetensors file, byte for byte as the `safetensors` package's save_file writes it.
//
// save_file orders tensors by dtype, highest rank first, then by the bytes of the name, leaves no gaps and
// pads the header with spaces to a multiple of 8. The whole file is known before its first byte is written,
// so data can go to their final place in any order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.h"
#include "model/dtype.h"

namespace weightpress::model {

struct TensorSpec {
  std::string name;  ///< UTF-8
  Dtype dtype = Dtype::kBool;
  std::vector<std::uint64_t> shape;
};

struct TensorPlacement {
  std::size_t spec_index = 0;      ///< into the specs given
  std::uint64_t offset_bytes = 0;  ///< in the file
  std::uint64_t size_bytes = 0;
};

struct SafetensorsLayout {
  std::string header;                    ///< the file's first bytes: 8 of length and the padded JSON
  std::vector<TensorPlacement> tensors;  ///< in data order, back to back from header.size() on
  std::uint64_t file_bytes = 0;
};

/// What files for transformers have as __metadata__.
inline constexpr std::string_view kPytorchMetadata = R"({"format":"pt"})";

/// Where the value of __metadata__ begins in the header of a file that has it: it is the first member.
inline constexpr std::uint64_t kMetadataOffset = 8 + std::string_view(R"({"__metadata__":)").size();

/// The specs in data order.
std::vector<std::size_t> data_order(std::span<const TensorSpec> specs);

/// `metadata_json`: the object of __metadata__ as compact JSON; empty: none. Errors: kNameConflict (a name
/// twice, or __metadata__), kUsage (sizes that no file can have).
Result<SafetensorsLayout> plan_safetensors_layout(std::span<const TensorSpec> specs,
                                                  std::string_view metadata_json);

}  // namespace weightpress::model
