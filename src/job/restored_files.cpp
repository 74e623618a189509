#include "job/restored_files.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <weightpress/error.h>

#include "model/checkpoint_index.h"
#include "model/safetensors_header.h"
#include "model/text.h"

namespace weightpress::job {
namespace {

/// Names and metadata come from a record, which may hold what no header may.
void check_readable(const std::string& name, const model::SafetensorsLayout& layout) {
  constexpr std::size_t kLengthBytes = 8;
  const auto header = model::parse_safetensors_header(std::string_view(layout.header).substr(kLengthBytes),
                                                      layout.file_bytes - layout.header.size(), "it");
  if (header) return;
  throw Error(ErrorCode::kUsage, "the file " + model::in_quotes(name) +
                                     " would be one that no reader takes: " + header.error().message);
}

}  // namespace

RestoredFiles::RestoredFiles(const RestorePlan& plan) : plan_(plan) {
  for (const RestoredFile& file : plan.files) {
    auto layout = model::plan_safetensors_layout(file.tensors, file.metadata_json);
    if (!layout) {
      throw Error(layout.error().code,
                  "the file " + model::in_quotes(file.name) + " cannot be made: " + layout.error().message);
    }
    check_readable(file.name, *layout);
    std::vector<std::uint64_t>& offsets = offsets_bytes_.emplace_back(file.tensors.size());
    for (const model::TensorPlacement& placement : layout->tensors)
      offsets[placement.spec_index] = placement.offset_bytes;
    layouts_.push_back(std::move(*layout));
  }
}

std::uint64_t RestoredFiles::total_bytes() const {
  std::uint64_t total = 0;
  for (const model::SafetensorsLayout& layout : layouts_) total += layout.file_bytes;
  return total;
}

void RestoredFiles::create(const Output& output) {
  for (std::size_t f = 0; f < plan_.files.size(); ++f) {
    files_.push_back(model::File::create(output.file(plan_.files[f].name)));
    files_.back().write_at(layouts_[f].header.data(), layouts_[f].header.size(), 0);
  }
}

void RestoredFiles::write(TensorPlace place, std::uint64_t offset_bytes, const void* data,
                          std::uint64_t bytes) {
  files_[place.file].write_at(data, bytes, offsets_bytes_[place.file][place.tensor] + offset_bytes);
}

void RestoredFiles::finish() {
  for (model::File& file : files_) {
    file.sync();
    file.close();
  }
}

std::string make_index(const RestorePlan& plan) {
  std::vector<std::pair<std::string, std::string>> weight_map;
  std::uint64_t total_bytes = 0;
  for (const RestoredFile& file : plan.files) {
    for (const model::TensorSpec& tensor : file.tensors) {
      weight_map.emplace_back(tensor.name, file.name);
      total_bytes += model::checked_size_bytes(tensor.dtype, tensor.shape).value();
    }
  }
  std::ranges::sort(weight_map);
  return model::make_weight_map(weight_map, total_bytes);
}

}  // namespace weightpress::job
