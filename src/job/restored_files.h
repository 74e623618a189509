// The files of a restoration: laid out first, then written in any order, then made durable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "job/output.h"
#include "job/restore_plan.h"
#include "model/file.h"
#include "model/safetensors_layout.h"

namespace weightpress::job {

class RestoredFiles {
 public:
  /// Settles every place. `plan` must outlive the object. Throws kNameConflict or kUsage if a file cannot be
  /// made.
  explicit RestoredFiles(const RestorePlan& plan);

  std::uint64_t total_bytes() const;

  /// Creates all files in the output, with their headers.
  void create(const Output& output);
  /// Writes bytes of a tensor, from its byte `offset_bytes` on; all inside the tensor. Thread-safe.
  void write(TensorPlace place, std::uint64_t offset_bytes, const void* data, std::uint64_t bytes);
  /// Makes the files durable. Call after the last write.
  void finish();

 private:
  const RestorePlan& plan_;
  std::vector<model::SafetensorsLayout> layouts_;          // by file
  std::vector<std::vector<std::uint64_t>> offsets_bytes_;  // by file and tensor
  std::vector<model::File> files_;
};

/// The index of several files.
std::string make_index(const RestorePlan& plan);

}  // namespace weightpress::job
