// Checks the hashes that a model's files hold of their tensors and headers (docs/format.md, "Stored hashes").
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/checkpoint.h"

namespace weightpress::job {

/// What check_stored_hashes() would look at.
struct StoredHashesExtent {
  std::size_t num_files = 0;       ///< that hold hashes; the others are left alone
  std::uint64_t tensor_bytes = 0;  ///< of all tensors in these
};

/// Reads nothing: metadata is in memory.
StoredHashesExtent find_stored_hashes(const model::Checkpoint& checkpoint);

/// A header or a tensor that does not have its hash, or hashes that cannot be used.
struct HashFailure {
  std::size_t file_index = 0;  ///< into Checkpoint::files()
  std::string tensor;          ///< empty: the file's header, or its hashes as a whole
  std::string message;         ///< of a tensor a clause; of a file a sentence that begins with its path
};

struct StoredHashesReport {
  StoredHashesExtent extent;
  std::vector<HashFailure> failures;  ///< by file; in a file its header, then its tensors by name
};

/// Reads every header and tensor of files that hold hashes. A file whose hashes are not whole fails as such,
/// and its tensors are not read; one whose header is wrong still has its tensors checked. on_bytes: see
/// hash_ranges(). Throws what File throws.
StoredHashesReport check_stored_hashes(const model::Checkpoint& checkpoint, int num_threads,
                                       const std::function<void(std::uint64_t)>& on_bytes = {});

}  // namespace weightpress::job
