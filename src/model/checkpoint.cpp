#include "model/checkpoint.h"

#include <algorithm>
#include <cassert>
#include <tuple>

#include <weightpress/error.h>

#include "model/checkpoint_index.h"
#include "model/foreign_file.h"
#include "model/safetensors_header.h"
#include "model/shard_series.h"
#include "model/text.h"
#include "model/tile_ans_header.h"

namespace weightpress::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFileSuffix = ".safetensors";
constexpr std::string_view kBitstreamSuffix = ".encoded_exponent";

/// "model.safetensors.index.json", and "model.safetensors.index.fp16.json" of a variant.
bool is_index_name(std::string_view name) {
  return name.find(".safetensors.index.") != name.npos && name.ends_with(".json");
}

struct FolderContent {
  std::vector<fs::path> tensor_files;
  std::vector<fs::path> indexes;
  std::vector<std::string> other_names;
};

FolderContent list_folder(const fs::path& folder) {
  FolderContent content;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.')) continue;  // "._model.safetensors" and the like, left behind by other systems
    if (is_index_name(name)) {
      content.indexes.push_back(entry->path());
    } else if (name.ends_with(kFileSuffix)) {
      content.tensor_files.push_back(entry->path());
    } else {
      content.other_names.push_back(name);
    }
  }
  if (error)
    throw Error(ErrorCode::kIo, printable(folder.native()) + ": cannot list the folder: " + error.message());
  std::ranges::sort(content.tensor_files);
  std::ranges::sort(content.indexes);
  std::ranges::sort(content.other_names);
  return content;
}

// Whether a file holds a DF11 unit. Files that are no safetensors files are judged when they are opened.
bool any_holds_df11(const std::vector<fs::path>& files) {
  return std::ranges::any_of(files, [](const fs::path& path) {
    try {
      const SafetensorsHeader header = read_safetensors_header(File::open_readonly(path));
      return std::ranges::any_of(header.tensors,
                                 [](const TensorEntry& t) { return t.name.ends_with(kBitstreamSuffix); });
    } catch (const Error&) {
      return false;
    }
  });
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

std::vector<std::string> names_of(const std::vector<fs::path>& paths) {
  std::vector<std::string> names;
  for (const fs::path& path : paths) names.push_back(path.filename().string());
  return names;
}

/// A folder of diffusers holds several models.
void refuse_pipeline(const fs::path& folder, const FolderContent& content) {
  if (!std::ranges::count(content.other_names, "model_index.json")) return;
  std::string parts;
  for (const char* part : {"transformer", "transformer_2", "unet"})
    if (std::error_code ignored; fs::is_directory(folder / part, ignored))
      parts += (parts.empty() ? " " : " or ") + in_quotes((folder / part).string());
  throw Error(ErrorCode::kUsage,
              printable(folder.native()) +
                  ": is a pipeline of several models (it holds model_index.json): give " +
                  (parts.empty() ? std::string("the folder or file of the one that is meant")
                                 : "the model itself," + parts));
}

[[noreturn]] void throw_no_tensor_file(const fs::path& folder, const FolderContent& content) {
  std::string hint;
  if (std::ranges::count(content.other_names, "snapshots"))
    hint = ": it is a repository of the Hugging Face cache; give the folder below its 'snapshots'";
  for (const std::string& name : content.other_names) {
    if (!hint.empty()) break;
    for (const char* suffix : {".bin", ".ckpt", ".pt", ".pth", ".gguf"})
      if (name.ends_with(suffix))
        hint =
            ", only other formats, such as " + in_quotes(name) + ": convert the model to safetensors first";
    if (name.size() > kFileSuffix.size() && name.find(kFileSuffix) != name.npos)
      hint = "; " + in_quotes(name) + " looks like a download that is not finished";
  }
  throw Error(ErrorCode::kNotFound,
              printable(folder.native()) + ": the folder holds no .safetensors file" + hint);
}

/// The names of numbered shards tell what is missing or does not belong. `listed_by`: an index, or empty.
void check_series(const fs::path& folder, const std::vector<std::string>& names,
                  const std::string& listed_by) {
  if (const auto missing = find_missing_shard(names)) {
    const fs::path path = folder / *missing;
    std::error_code ignored;
    if (!listed_by.empty() && fs::exists(path, ignored)) {
      throw Error(ErrorCode::kCorruptFile,
                  printable((folder / listed_by).native()) + ": does not list " + in_quotes(*missing) +
                      ", which belongs to the shards that it lists: index and files do "
                      "not belong together; download them again");
    }
    throw Error(ErrorCode::kNotFound, printable(path.native()) +
                                          ": is missing, as the names of the other shards tell: download it");
  }
  if (!listed_by.empty()) return;
  if (const auto foreign = find_foreign_shard(names)) {
    throw Error(
        ErrorCode::kUsage,
        printable(folder.native()) + ": holds the shard " + in_quotes(foreign->first) + " and also " +
            in_quotes(foreign->second) +
            ", which is not of the same series: leave only the files of one model there, or add its index");
  }
}

/// aria2 reserves the whole file at once; its control file is gone when the download is complete.
void refuse_unfinished_download(const fs::path& file) {
  const fs::path control = file.string() + ".aria2";
  std::error_code ignored;
  if (!fs::exists(control, ignored)) return;
  throw Error(ErrorCode::kNotFound, printable(file.native()) + ": is not downloaded yet, since " +
                                        in_quotes(control.filename().string()) +
                                        " is beside it: let aria2 finish");
}

}  // namespace

std::uint64_t SourceTensor::num_elements() const {
  return checked_num_elements(shape).value();
}

Checkpoint Checkpoint::open(const fs::path& path, Df11Policy df11) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw Error(
        ErrorCode::kNotFound,
        printable(path.native()) +
            ": there is no such file or folder (weightpress reads local files and downloads nothing)");
  if (error) throw Error(ErrorCode::kIo, printable(path.native()) + ": cannot examine: " + error.message());

  const bool is_folder = status.type() == fs::file_type::directory;
  FolderContent content;
  const std::string name = path.filename().string();
  if (is_folder) {
    content = list_folder(path);
    if (df11 == Df11Policy::kRefuse) {
      refuse_pipeline(path, content);
    } else if (!content.indexes.empty() && any_holds_df11(content.tensor_files)) {
      content.indexes.clear();
    }
  } else if (is_index_name(name)) {
    content.indexes.push_back(path);
  } else if (name.ends_with(kFileSuffix)) {
    content.tensor_files.push_back(path);
    if (const auto shard = parse_shard_name(name); shard && shard->count > 1 && df11 == Df11Policy::kRefuse) {
      throw Error(ErrorCode::kUsage, printable(path.native()) + ": is one shard of " +
                                         std::to_string(shard->count) +
                                         ": give the folder of the whole model");
    }
  } else {
    if (status.type() == fs::file_type::regular) {
      const File file = File::open_readonly(path);
      std::string head(std::min<std::uint64_t>(file.size_bytes(), kForeignHeadBytes), '\0');
      file.read_at(head.data(), head.size(), 0);
      if (auto other = recognise_foreign_file(head, path.string())) throw Error(std::move(other->error()));
    }
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
    if (content.tensor_files.empty()) throw_no_tensor_file(path, content);
    if (is_folder) check_series(checkpoint.folder_, names_of(content.tensor_files), {});
    for (const auto& file : content.tensor_files) checkpoint.add_file(file);
    checkpoint.sort_tensors({});
    if (df11 == Df11Policy::kRefuse) checkpoint.refuse_compressed();
    return checkpoint;
  }

  const fs::path& index_path = content.indexes[0];
  const auto weight_map = read_weight_map(index_path);
  std::vector<std::string> names;
  for (const auto& [tensor, file] : weight_map) names.push_back(file);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& file : names) {
    const fs::path shard = checkpoint.folder_ / file;
    if (!fs::exists(shard, error) && !error) {
      throw Error(ErrorCode::kNotFound, printable(shard.native()) + ": is missing, but " +
                                            in_quotes(index_path.filename().string()) +
                                            " lists it: download it again");
    }
    checkpoint.add_file(shard);
  }
  check_series(checkpoint.folder_, names, index_path.filename().string());
  checkpoint.sort_tensors(index_path.filename().string());
  if (df11 == Df11Policy::kRefuse) checkpoint.refuse_compressed();
  checkpoint.check_against_index(index_path, weight_map);
  return checkpoint;
}

void Checkpoint::add_file(const fs::path& path) {
  refuse_unfinished_download(path);
  File file = File::open_readonly(path);
  SafetensorsHeader header = read_safetensors_header(file);
  for (TensorEntry& entry : header.tensors) {
    const std::uint64_t size_bytes = entry.size_bytes();
    tensors_.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape), files_.size(),
                        header.data_offset + entry.begin_bytes, size_bytes});
  }
  files_.push_back(std::move(file));
  metadata_json_.push_back(std::move(header.metadata_json));
}

void Checkpoint::sort_tensors(const std::string& index_name) {
  std::ranges::sort(tensors_, [](const SourceTensor& a, const SourceTensor& b) {
    return std::tie(a.name, a.file_index) < std::tie(b.name, b.file_index);
  });
  const auto twin = std::ranges::adjacent_find(tensors_, {}, &SourceTensor::name);
  if (twin == tensors_.end()) return;
  const auto file_name = [&](const SourceTensor& tensor) {
    return in_quotes(files_[tensor.file_index].path().filename().string());
  };
  throw Error(ErrorDetails{
      .code = ErrorCode::kNameConflict,
      .message = printable(folder_.native()) + ": tensor " + in_quotes(twin->name) + " is both in " +
                 file_name(*twin) + " and in " + file_name(*(twin + 1)) +
                 (index_name.empty()
                      ? ": leave only the files of one model in the folder, or "
                        "add its index"
                      : ", both of which " + in_quotes(index_name) + " lists: download the model again"),
      .tensor = twin->name});
}

void Checkpoint::refuse_compressed() const {
  for (const SourceTensor& tensor : tensors_) {
    // Whatever has the name of a part of a container would be taken for one.
    if (tensor.name.find(kTileAnsPrefix) != tensor.name.npos)
      throw Error(ErrorDetails{.code = ErrorCode::kUsage,
                               .message = printable(files_[tensor.file_index].path().native()) +
                                          ": is already Tile-ANS-compressed (it holds " +
                                          in_quotes(tensor.name) + "): give the original model",
                               .tensor = tensor.name});
    if (!tensor.name.ends_with(kBitstreamSuffix)) continue;
    const std::string unit = tensor.name.substr(0, tensor.name.size() - kBitstreamSuffix.size());
    if (find(unit + ".sign_mantissa") == nullptr) continue;
    throw Error(ErrorDetails{.code = ErrorCode::kUsage,
                             .message = printable(files_[tensor.file_index].path().native()) +
                                        ": is already DF11-compressed (it holds the unit " + in_quotes(unit) +
                                        "): give the original model",
                             .unit = unit});
  }
}

void Checkpoint::check_against_index(
    const fs::path& index_path, const std::vector<std::pair<std::string, std::string>>& weight_map) const {
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
