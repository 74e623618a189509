#include "host/decode.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstring>
#include <memory>

#include <omp.h>

#include "host/chunk_decoder.h"

namespace weightpress::host {
namespace {

using df11::DecodeArguments;
using df11::kChunkBytes;
using df11::kGapGroupBytes;
using df11::kWindowsPerGapGroup;

/// As docs/format.md has it, "Fields of a weight"; not the encoder's.
std::uint16_t join(std::uint8_t exponent, std::uint8_t sign_mantissa) {
  return static_cast<std::uint16_t>((sign_mantissa & 0x80) << 8 | exponent << 7 | (sign_mantissa & 0x7F));
}

void unpack_gaps(const std::uint8_t* packed, std::uint64_t num_groups, std::uint8_t* gaps) {
  for (std::uint64_t group = 0; group < num_groups; ++group) {
    std::uint64_t bits = 0;
    for (std::uint32_t i = 0; i < kGapGroupBytes; ++i) bits = bits << 8 | *packed++;
    for (std::uint32_t i = kWindowsPerGapGroup; i-- > 0; bits >>= df11::kGapBits)
      gaps[i] = bits & ((1u << df11::kGapBits) - 1);
    gaps += kWindowsPerGapGroup;
  }
}

using Workspace = DecodeWorkspace;

class SlabDecoder {
 public:
  SlabDecoder(const DecodeArguments& arguments, const DecodeTable& table) : a_(arguments), table_(table) {
    const std::uint64_t unit_chunks = (a_.stream_bytes + kChunkBytes - 1) / kChunkBytes;
    last_chunk_ = unit_chunks - 1;
  }

  /// index: of the chunk in the slab.
  ChunkResult decode(std::uint64_t index, Workspace& work) const {
    const std::uint64_t chunk = a_.first_chunk + index;
    const bool is_last = chunk == last_chunk_;
    const std::uint64_t begin = index * kChunkBytes;

    ChunkInput input;
    input.num_weights = std::uint64_t{a_.positions[index + 1]} - a_.positions[index];
    if (is_last) {
      input.last_bytes = a_.stream_bytes - chunk * kChunkBytes;
    } else if (chunk + 1 == last_chunk_ && a_.positions[index + 1] == a_.num_weights) {
      input.crossing_bytes = a_.stream_bytes - last_chunk_ * kChunkBytes;
    }
    const std::uint64_t have = a_.encoded_exponent.size() - begin;
    if (have >= sizeof work.bytes) {
      input.bytes = a_.encoded_exponent.data() + begin;
    } else {
      std::memcpy(work.bytes, a_.encoded_exponent.data() + begin, have);
      std::memset(work.bytes + have, 0, sizeof work.bytes - have);
      input.bytes = work.bytes;
    }
    const std::uint64_t groups = df11::kWindowsPerChunk / kWindowsPerGapGroup + (is_last ? 0 : 1);
    unpack_gaps(a_.gaps.data() + index * df11::kGapBytesPerChunk, groups, work.gaps);
    input.gaps = work.gaps;

    ChunkResult result = decode_chunk(table_, input, work.exponents);
    if (chunk == 0 && (work.gaps[0] != 0 || a_.positions[0] != 0)) result.ok = false;
    if (result.ok && !a_.sign_mantissa.empty()) result.ok = join_chunk(index, input.num_weights, work);
    return result;
  }

 private:
  /// Returns whether the weights are the source's, if there is one.
  bool join_chunk(std::uint64_t index, std::uint64_t count, const Workspace& work) const {
    const std::uint64_t first = a_.positions[index] - a_.positions.front();
    const std::uint8_t* sign_mantissa = a_.sign_mantissa.data() + first;
    const std::uint8_t* exponents = work.exponents;
    if (!a_.weights.empty()) {
      std::uint16_t* weights = a_.weights.data() + first;
      for (std::uint64_t i = 0; i < count; ++i) weights[i] = join(exponents[i], sign_mantissa[i]);
    }
    if (a_.source.empty()) return true;
    const std::uint16_t* source = a_.source.data() + first;
    std::uint16_t different = 0;
    for (std::uint64_t i = 0; i < count; ++i)
      different |= static_cast<std::uint16_t>(join(exponents[i], sign_mantissa[i]) ^ source[i]);
    return different == 0;
  }

  const DecodeArguments& a_;
  const DecodeTable& table_;
  std::uint64_t last_chunk_ = 0;
};

}  // namespace

df11::DecodeCompletion HostDecodeStage::decode(const DecodeArguments& arguments) {
  assert(arguments.luts.size() >= 2 * df11::kNumSymbols && arguments.positions.size() >= 2);
  assert(arguments.num_weights > 0 && arguments.stream_bytes > 0);
  table_.build(arguments.luts);
  const SlabDecoder slab(arguments, table_);
  const std::uint64_t num_chunks = arguments.positions.size() - 1;
  std::atomic<std::uint64_t> first_fault = num_chunks;
  std::atomic<bool> kernel_ends = true;
  const int threads =
      static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(num_threads_), num_chunks));
  while (workspaces_.size() < static_cast<std::size_t>(threads))
    workspaces_.push_back(std::make_unique_for_overwrite<DecodeWorkspace>());
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads)
  for (std::uint64_t index = 0; index < num_chunks; ++index) {
    if (index > first_fault.load(std::memory_order_relaxed)) continue;
    const ChunkResult result =
        slab.decode(index, *workspaces_[static_cast<std::size_t>(omp_get_thread_num())]);
    if (!result.kernel_ends) kernel_ends = false;
    if (result.ok) continue;
    std::uint64_t known = first_fault.load();
    while (index < known && !first_fault.compare_exchange_weak(known, index)) {
    }
  }
  df11::DecodeStatus status;
  status.ok = first_fault == num_chunks;
  if (!status.ok) status.chunk = arguments.first_chunk + first_fault;
  status.kernel_ends = kernel_ends || !status.ok;
  return df11::DecodeCompletion(status);
}

}  // namespace weightpress::host
