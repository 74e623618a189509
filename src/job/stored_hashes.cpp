#include "job/stored_hashes.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "job/hash_ranges.h"
#include "model/tensor_hashes.h"

namespace weightpress::job {
namespace {

struct TensorHash {
  const model::SourceTensor* tensor;
  model::Sha256Digest stored;
};

// Appends the hashes of a file's tensors, if they are whole.
void read_hashes(const model::Checkpoint& checkpoint, std::size_t file_index,
                 std::span<const model::SourceTensor* const> tensors, std::vector<TensorHash>& hashes,
                 std::vector<HashFailure>& failures) {
  const model::File& file = checkpoint.files()[file_index];
  const std::string& metadata_json = checkpoint.metadata_json(file_index);
  std::vector<std::string_view> names;
  for (const model::SourceTensor* tensor : tensors) names.push_back(tensor->name);
  const auto stored = model::parse_stored_hashes(metadata_json, names, file.path().string());
  if (!stored) {
    failures.push_back({file_index, {}, stored.error().message});
    return;
  }
  if (!*stored) return;
  if (const auto header = model::check_header_hash(file, metadata_json, **stored); !header)
    failures.push_back({file_index, {}, header.error().message});
  for (std::size_t i = 0; i < tensors.size(); ++i) hashes.push_back({tensors[i], (*stored)->tensors[i]});
}

}  // namespace

StoredHashesExtent find_stored_hashes(const model::Checkpoint& checkpoint) {
  StoredHashesExtent extent;
  std::vector<bool> has_hashes(checkpoint.files().size());
  for (std::size_t f = 0; f < has_hashes.size(); ++f) {
    has_hashes[f] = model::has_stored_hashes(checkpoint.metadata_json(f));
    extent.num_files += has_hashes[f];
  }
  for (const model::SourceTensor& tensor : checkpoint.tensors())
    if (has_hashes[tensor.file_index]) extent.tensor_bytes += tensor.size_bytes;
  return extent;
}

StoredHashesReport check_stored_hashes(const model::Checkpoint& checkpoint, int num_threads,
                                       const std::function<void(std::uint64_t)>& on_bytes) {
  StoredHashesReport report;
  report.extent = find_stored_hashes(checkpoint);
  if (report.extent.num_files == 0) return report;

  std::vector<std::vector<const model::SourceTensor*>> by_file(checkpoint.files().size());
  for (const model::SourceTensor& tensor : checkpoint.tensors())
    by_file[tensor.file_index].push_back(&tensor);
  std::vector<TensorHash> hashes;
  for (std::size_t f = 0; f < by_file.size(); ++f)
    read_hashes(checkpoint, f, by_file[f], hashes, report.failures);

  std::vector<FileRange> ranges;
  ranges.reserve(hashes.size());
  for (const auto& [tensor, stored] : hashes)
    ranges.push_back({&checkpoint.files()[tensor->file_index], tensor->offset_bytes, tensor->size_bytes});
  const std::vector<model::Sha256Digest> digests = hash_ranges(ranges, num_threads, on_bytes);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const auto& [tensor, stored] = hashes[i];
    if (digests[i] == stored) continue;
    report.failures.push_back(
        {tensor->file_index, tensor->name,
         "its bytes are not those that were hashed when the file was written (SHA-256 " +
             model::hex_of(digests[i]) + " instead of the stored " + model::hex_of(stored) + ")"});
  }
  std::ranges::sort(report.failures, {}, [](const HashFailure& failure) {
    return std::tie(failure.file_index, failure.tensor);  // that of a header is empty
  });
  return report;
}

}  // namespace weightpress::job
