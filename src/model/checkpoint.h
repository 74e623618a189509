// A model's tensors, wherever they lie: one safetensors file, or a folder of shards with or without an index.
//
// Opening reads headers only and settles every doubt about them: afterwards each name stands for exactly one
// run of bytes in one open file. With an index its weight_map says which files count (a folder may hold
// others, e.g. a second copy of the model); without, all files of the folder do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/dtype.h"
#include "model/file.h"

namespace weightpress::model {

struct SourceTensor {
  std::string name;
  Dtype dtype = Dtype::kBool;
  std::vector<std::uint64_t> shape;
  std::size_t file_index = 0;      ///< into Checkpoint::files()
  std::uint64_t offset_bytes = 0;  ///< in the file
  std::uint64_t size_bytes = 0;

  std::uint64_t num_elements() const;
};

/// Whether a model that is compressed already may be opened.
enum class Df11Policy : std::uint8_t { kRefuse, kAccept };

class Checkpoint {
 public:
  /// `path`: a .safetensors file, its .safetensors.index.json, or a folder. Throws Error: kNotFound,
  /// kCorruptFile, kNameConflict (a name in two files), kUsage (already compressed, several indexes), kIo.
  /// With kRefuse the path must name a whole model that is not compressed yet. With kAccept one shard will
  /// do, and all files of a folder that holds DF11 units count, as for the official loader: an index there
  /// knows nothing of units.
  static Checkpoint open(const std::filesystem::path& path, Df11Policy df11 = Df11Policy::kRefuse);

  /// Sorted by name, byte by byte.
  const std::vector<SourceTensor>& tensors() const { return tensors_; }
  /// nullptr if there is none.
  const SourceTensor* find(std::string_view name) const;

  /// Sorted by name, open for reading.
  const std::vector<File>& files() const { return files_; }
  /// The __metadata__ object of a file as compact JSON; empty if it has none.
  const std::string& metadata_json(std::size_t file_index) const { return metadata_json_[file_index]; }
  /// Where config.json would be.
  const std::filesystem::path& folder() const { return folder_; }
  std::uint64_t total_bytes() const;

  /// `bytes` of the tensor from its byte `first_byte` on; both inside the tensor. Thread-safe.
  void read(const SourceTensor& tensor, std::uint64_t first_byte, std::uint64_t bytes, void* data) const;

  /// Asks the system to read the tensor's first bytes ahead.
  void will_need(const SourceTensor& tensor, std::uint64_t bytes) const noexcept {
    files_[tensor.file_index].will_need(tensor.offset_bytes, std::min(bytes, tensor.size_bytes));
  }

 private:
  explicit Checkpoint(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void add_file(const std::filesystem::path& path);
  /// index_name: of the index that lists the files, or empty.
  void sort_tensors(const std::string& index_name);
  void refuse_compressed() const;
  void check_against_index(const std::filesystem::path& index_path,
                           const std::vector<std::pair<std::string, std::string>>& weight_map) const;

  std::filesystem::path folder_;
  std::vector<File> files_;
  std::vector<std::string> metadata_json_;  // by file
  std::vector<SourceTensor> tensors_;
};

}  // namespace weightpress::model
