#include "model/checkpoint.h"

#include <algorithm>
#include <cassert>
#include <tuple>

#include <weightpress/error.h>

#include "model/checkpoint_index.h"
#include "model/safetensors_header.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

constexpr std::string_view kFileSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

struct FolderContent {
  std::vector<std::filesystem::path> tensor_files;
  std::vector<std::filesystem::path> indexes;
};

FolderContent list_folder(const std::filesystem::path& folder) {
  FolderContent content;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.')) continue;  // "._model.safetensors" and the like, left behind by other systems
    if (name.ends_with(kIndexSuffix)) content.indexes.push_back(entry->path());
    if (name.ends_with(kFileSuffix)) content.tensor_files.push_back(entry->path());
  }
  if (error)
    throw Error(ErrorCode::kIo, printable(folder.native()) + ": cannot list the folder: " + error.message());
  std::ranges::sort(content.tensor_files);
  std::ranges::sort(content.indexes);
  return content;
}

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

}  // namespace

std::uint64_t SourceTensor::num_elements() const {
  return checked_num_elements(shape).value();
}

Checkpoint Checkpoint::open(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found)
    throw Error(ErrorCode::kNotFound, printable(path.native()) + ": there is no such file or folder");
  if (error) throw Error(ErrorCode::kIo, printable(path.native()) + ": cannot examine: " + error.message());

  const bool is_folder = status.type() == std::filesystem::file_type::directory;
  FolderContent content;
  const std::string name = path.filename().string();
  if (is_folder) {
    content = list_folder(path);
  } else if (name.ends_with(kIndexSuffix)) {
    content.indexes.push_back(path);
  } else if (name.ends_with(kFileSuffix)) {
    content.tensor_files.push_back(path);
  } else {
    throw Error(ErrorCode::kUsage,
                printable(path.native()) + ": is neither a .safetensors file nor a folder of them");
  }
  if (content.indexes.size() > 1) {
    throw Error(ErrorCode::kUsage, printable(path.native()) + ": holds more than one index (" +
                                       in_quotes(content.indexes[0].filename().string()) + " and " +
                                       in_quotes(content.indexes[1].filename().string()) +
                                       "): give the index that is meant as the source");
  }

  Checkpoint checkpoint(is_folder ? path : folder_of(path));
  if (content.indexes.empty()) {
    if (content.tensor_files.empty())
      throw Error(ErrorCode::kNotFound, printable(path.native()) + ": the folder holds no .safetensors file");
    for (const auto& file : content.tensor_files) checkpoint.add_file(file);
    checkpoint.sort_tensors();
    checkpoint.refuse_df11();
    return checkpoint;
  }

  const std::filesystem::path& index_path = content.indexes[0];
  const auto weight_map = read_weight_map(index_path);
  std::vector<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.push_back(file);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& file : names) {
    const std::filesystem::path shard = checkpoint.folder_ / file;
    if (!std::filesystem::exists(shard, error) && !error) {
      throw Error(ErrorCode::kNotFound, printable(shard.native()) + ": is missing, but " +
                                            in_quotes(index_path.filename().string()) +
                                            " lists it: download it again");
    }
    checkpoint.add_file(shard);
  }
  checkpoint.sort_tensors();
  checkpoint.refuse_df11();
  checkpoint.check_against_index(index_path, weight_map);
  return checkpoint;
}

void Checkpoint::add_file(const std::filesystem::path& path) {
  File file = File::open_readonly(path);
  SafetensorsHeader header = read_safetensors_header(file);
  for (TensorEntry& entry : header.tensors) {
    const std::uint64_t size_bytes = entry.size_bytes();
    tensors_.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape), files_.size(),
                        header.data_offset + entry.begin_bytes, size_bytes});
  }
  files_.push_back(std::move(file));
}

void Checkpoint::sort_tensors() {
  std::ranges::sort(tensors_, [](const SourceTensor& a, const SourceTensor& b) {
    return std::tie(a.name, a.file_index) < std::tie(b.name, b.file_index);
  });
  const auto twin = std::ranges::adjacent_find(tensors_, {}, &SourceTensor::name);
  if (twin == tensors_.end()) return;
  const auto file_name = [&](const SourceTensor& tensor) {
    return in_quotes(files_[tensor.file_index].path().filename().string());
  };
  throw Error(ErrorDetails{.code = ErrorCode::kNameConflict,
                           .message = printable(folder_.native()) + ": tensor " + in_quotes(twin->name) +
                                      " is both in " + file_name(*twin) + " and in " +
                                      file_name(*(twin + 1)) +
                                      ": leave only the files of one model in the folder, or add its index",
                           .tensor = twin->name});
}

void Checkpoint::refuse_df11() const {
  constexpr std::string_view kSuffix = ".encoded_exponent";
  for (const SourceTensor& tensor : tensors_) {
    if (!tensor.name.ends_with(kSuffix)) continue;
    const std::string unit = tensor.name.substr(0, tensor.name.size() - kSuffix.size());
    if (find(unit + ".sign_mantissa") == nullptr) continue;
    throw Error(ErrorDetails{.code = ErrorCode::kUsage,
                             .message = printable(files_[tensor.file_index].path().native()) +
                                        ": is already DF11-compressed (it holds the unit " + in_quotes(unit) +
                                        "): give the original model",
                             .unit = unit});
  }
}

void Checkpoint::check_against_index(
    const std::filesystem::path& index_path,
    const std::vector<std::pair<std::string, std::string>>& weight_map) const {
  const auto fail = [&](ErrorCode code, const std::string& tensor, const std::string& what) {
    throw Error(ErrorDetails{.code = code,
                             .message = printable(index_path.native()) + ": tensor " + in_quotes(tensor) +
                                        " " + what +
                                        ": index and files do not belong together; download them again",
                             .tensor = tensor});
  };
  const auto file_name = [&](const SourceTensor& tensor) {
    return files_[tensor.file_index].path().filename().string();
  };
  for (const auto& [name, file] : weight_map) {
    const SourceTensor* tensor = find(name);
    if (tensor == nullptr) fail(ErrorCode::kNotFound, name, "is missing from " + in_quotes(file));
    if (file_name(*tensor) != file)
      fail(ErrorCode::kNotFound, name,
           "should be in " + in_quotes(file) + " but is in " + in_quotes(file_name(*tensor)));
  }
  // Both lists are sorted, and every name of the index was found.
  if (weight_map.size() == tensors_.size()) return;
  const auto listed = std::ranges::mismatch(tensors_, weight_map, {}, &SourceTensor::name,
                                            [](auto& pair) -> auto& { return pair.first; });
  fail(ErrorCode::kCorruptFile, listed.in1->name,
       "of " + in_quotes(file_name(*listed.in1)) + " is not listed");
}

const SourceTensor* Checkpoint::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors_, name, {}, &SourceTensor::name);
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

std::uint64_t Checkpoint::total_bytes() const {
  std::uint64_t total = 0;
  for (const SourceTensor& tensor : tensors_) total += tensor.size_bytes;
  return total;
}

void Checkpoint::read(const SourceTensor& tensor, std::uint64_t first_byte, std::uint64_t bytes,
                      void* data) const {
  assert(first_byte <= tensor.size_bytes && bytes <= tensor.size_bytes - first_byte);
  files_[tensor.file_index].read_at(data, bytes, tensor.offset_bytes + first_byte);
}

}  // namespace weightpress::model
