// Plans a safetensors file, byte for byte as the `safetensors` package's save_file writes it.
//
// save_file orders tensors by dtype, highest rank first, then by the bytes of the name, leaves no gaps and
// pads the header with spaces to a multiple of 8. The whole file is known before its first byte is written,
// so data can go to their final place in any order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
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

/// `format_metadata`: the value of "format" in __metadata__ ("pt" in files for transformers); nothing: no
/// metadata. Errors: kNameConflict (a name twice, or __metadata__), kUsage (sizes that no file can have).
Result<SafetensorsLayout> plan_safetensors_layout(std::span<const TensorSpec> specs,
                                                  const std::optional<std::string>& format_metadata);

}  // namespace weightpress::model
