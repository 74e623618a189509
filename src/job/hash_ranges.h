// SHA-256 of many tensors at once: one hash cannot be split, so each is one thread's work.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/file.h"
#include "model/sha256.h"

namespace weightpress::job {

/// Bytes of an open file.
struct FileRange {
  const model::File* file = nullptr;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

/// The hash of each range, by reading it in small pieces, on up to num_threads threads. on_bytes: called from
/// the calling thread with the bytes that were read since the last call, by all threads; in the end all are
/// told. Throws one of the exceptions of reading and of on_bytes, once all threads are done.
std::vector<model::Sha256Digest> hash_ranges(std::span<const FileRange> ranges, int num_threads,
                                             const std::function<void(std::uint64_t)>& on_bytes = {});

}  // namespace weightpress::job
