// Shapes of a source's tensors, for outputs that do not tell them: DF11 stores none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "format/result.h"
#include "model/definition.h"

namespace weightpress::model {

/// By tensor. Products fit 64 bits.
using SourceShapes = std::map<std::string, std::vector<std::uint64_t>, std::less<>>;

/// The text of a JSON object {name: [shape]} or {name: {"shape": [shape], ...}}. Errors: kCorruptFile, naming
/// `file_name` and the tensor.
Result<SourceShapes> parse_source_shapes(const std::string& text, const std::string& file_name);

/// `path`: such a .json file, or a checkpoint (a .safetensors file, an index, a folder), of which headers are
/// read. A checkpoint's tensors get the names that the key rules of `definition`, if there is one, give them;
/// their own names do as well. Throws what parse_source_shapes() and Checkpoint::open() throw.
SourceShapes read_source_shapes(const std::filesystem::path& path, const ModelDefinition* definition);

}  // namespace weightpress::model
