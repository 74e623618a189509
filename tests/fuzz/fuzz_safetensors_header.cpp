// The header parser on arbitrary bytes: it must judge, not crash, and judge the same in small pieces; and
// what it accepts must hold together and survive being written by the planner and read again, with hashes.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "model/safetensors_header.h"
#include "model/safetensors_layout.h"
#include "model/tensor_hashes.h"

using namespace weightpress::model;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

// The first two bytes are the size of the data area, the rest the header.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::uint64_t data_bytes = data[0] + 256u * data[1];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto header = parse_safetensors_header(text, data_bytes, "fuzz.safetensors");
  const auto in_pieces = parse_safetensors_header(text, data_bytes, "fuzz.safetensors", 1 + size % 5);
  require(header.has_value() == in_pieces.has_value());
  if (!header) {
    require(header.error().message == in_pieces.error().message);
    require(!header.error().message.empty());
    return 0;
  }

  require(header->metadata_json == in_pieces->metadata_json && header->data_offset == 8 + text.size() &&
          header->tensors.size() == in_pieces->tensors.size());
  const std::string metadata = "{\"__metadata__\":" + header->metadata_json + "}";
  if (!header->metadata_json.empty()) {
    const auto read = parse_safetensors_header(metadata, 0, "metadata.safetensors");
    require(read.has_value() && read->metadata_json == header->metadata_json);
  }

  std::uint64_t end = 0;
  std::vector<TensorSpec> specs;
  for (const TensorEntry& tensor : header->tensors) {
    require(tensor.begin_bytes == end && tensor.end_bytes >= end);
    require(tensor.num_elements() * dtype_bits(tensor.dtype) == 8 * tensor.size_bytes());
    end = tensor.end_bytes;
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  require(end == data_bytes);

  const auto layout = plan_safetensors_layout(specs, kPytorchMetadata);
  require(layout.has_value() && layout->file_bytes == layout->header.size() + data_bytes);
  const auto again =
      parse_safetensors_header(std::string_view(layout->header).substr(8), data_bytes, "again.safetensors");
  require(again.has_value() && again->tensors.size() == specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const TensorSpec& spec = specs[layout->tensors[i].spec_index];
    require(again->tensors[i].name == spec.name && again->tensors[i].shape == spec.shape);
  }

  std::vector<std::string_view> names;
  for (const TensorSpec& spec : specs) names.emplace_back(spec.name);
  const auto stored = parse_stored_hashes(header->metadata_json, names, "fuzz.safetensors");
  require(stored ? stored->has_value() == has_stored_hashes(header->metadata_json)
                 : has_stored_hashes(header->metadata_json) && !stored.error().message.empty());
  if (has_stored_hashes(header->metadata_json)) return 0;
  const ReservedHashes reserved = reserve_hashes(header->metadata_json, names);
  const auto hashes = parse_stored_hashes(reserved.metadata_json, names, "again.safetensors");
  require(hashes && *hashes && (*hashes)->tensors.size() == names.size() &&
          (*hashes)->offsets.back() == reserved.header_offset);
  return 0;
}
