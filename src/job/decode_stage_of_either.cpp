#include "job/decode_stage_of_either.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include <weightpress/error.h>

#include "device/unit_pipeline.h"

namespace weightpress::job {
namespace {

// A multiple of four, and small enough for an even share.
constexpr std::size_t kPiece = std::size_t{64} << 10;

/// sum(piece) of each piece of the values, added up.
template <class Total, class T, class Sum>
Total add_up(std::span<const T> values, int num_threads, Sum sum) {
  const std::size_t num_pieces = (values.size() + kPiece - 1) / kPiece;
  const int threads =
      static_cast<int>(std::clamp<std::size_t>(num_pieces / 2, 1, static_cast<std::size_t>(num_threads)));
  Total total = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : total)
  for (std::size_t piece = 0; piece < num_pieces; ++piece) {
    const std::size_t first = piece * kPiece;
    total += sum(values.subspan(first, std::min(kPiece, values.size() - first)));
  }
  return total;
}

std::uint32_t sum_of_words(std::span<const std::uint8_t> bytes, int num_threads) {
  return add_up<std::uint32_t>(
      bytes, num_threads, [](std::span<const std::uint8_t> piece) { return device::sum_of_words(piece); });
}

std::uint64_t sum_of_rows(std::span<const std::uint8_t> luts) {
  const std::size_t num_tables = std::min<std::size_t>(luts.size() / df11::kNumSymbols - 1, df11::kMaxTables);
  std::uint64_t sum = 0;
  const auto add = [&sum](std::size_t place, std::uint32_t byte) {
    sum += std::uint64_t{byte} << (8 * (place % 4));
  };
  for (std::size_t i = 0; i < num_tables * df11::kNumSymbols; ++i) add(i, luts[i]);
  for (std::size_t i = 0; i < df11::kNumSymbols; ++i) {
    const std::uint8_t length = luts[luts.size() - df11::kNumSymbols + i];
    add(i, length <= df11::kMaxCodeBits ? length : 0);
  }
  return sum;
}

}  // namespace

device::DecodeSums sums_of(const df11::DecodeArguments& chunks, int num_threads) {
  constexpr std::uint64_t kBytesAfter = 4;
  static_assert(kBytesAfter <= df11::kDecodeLookaheadBytes);
  const std::uint64_t num_chunks = chunks.positions.size() - 1;
  const auto up_to = [](std::span<const std::uint8_t> bytes, std::uint64_t count) {
    return bytes.first(std::min<std::uint64_t>(bytes.size(), count));
  };
  device::DecodeSums sums;
  sums.encoded_exponent =
      sum_of_words(up_to(chunks.encoded_exponent, num_chunks * df11::kChunkBytes + kBytesAfter), num_threads);
  sums.gaps = sum_of_words(up_to(chunks.gaps, num_chunks * df11::kGapBytesPerChunk + 1), num_threads);
  for (const std::uint32_t position : chunks.positions) sums.positions += position;
  sums.luts = num_chunks * sum_of_rows(chunks.luts);
  if (chunks.source.empty() && chunks.weights.empty()) return sums;
  sums.sign_mantissa = sum_of_words(chunks.sign_mantissa, num_threads);
  const auto sum_of_weights = [num_threads](std::span<const std::uint16_t> weights) {
    return add_up<std::uint64_t>(weights, num_threads, device::sum_of_weights);
  };
  sums.source = sum_of_weights(chunks.source);
  sums.weights = static_cast<std::uint32_t>(sum_of_weights(chunks.weights));
  return sums;
}

df11::DecodeCompletion DecodeStageOfEither::decode(const df11::DecodeArguments& arguments) {
  if (uses_gpu_) {
    const auto free = std::ranges::find(is_taken_, false);
    assert(free != is_taken_.end());
    const auto lane = static_cast<int>(free - is_taken_.begin());
    try {
      gpu_.begin(lane, arguments);
      *free = true;
      return df11::DecodeCompletion([this, lane, arguments] { return finish(lane, arguments); });
    } catch (const Error& error) {
      const auto others = static_cast<int>(std::ranges::count(is_taken_, true));
      if (error.code() == ErrorCode::kOutOfMemory && others > 0) {
        most_lanes_ = others;
        return df11::DecodeCompletion([this, arguments] { return decode_alone(arguments); });
      }
      give_up(error.details());
    }
  }
  return host_.decode(arguments);
}

/// A slab for which there was no memory beside others, which are mostly done by now.
df11::DecodeStatus DecodeStageOfEither::decode_alone(const df11::DecodeArguments& arguments) {
  if (uses_gpu_) {
    const auto free = std::ranges::find(is_taken_, false);
    assert(free != is_taken_.end());
    const auto lane = static_cast<int>(free - is_taken_.begin());
    try {
      gpu_.begin(lane, arguments);
      return finish(lane, arguments);
    } catch (const Error& error) {
      if (!uses_gpu_) throw;  // what give_up() made of it
      give_up(error.details());
    }
  }
  return host_.decode(arguments).wait();
}

df11::DecodeStatus DecodeStageOfEither::finish(int lane, const df11::DecodeArguments& arguments) {
  const auto index = static_cast<std::size_t>(lane);
  if (!uses_gpu_) {  // it failed with another slab
    gpu_.abandon(lane);
    is_taken_[index] = false;
    return host_.decode(arguments).wait();
  }
  is_taken_[index] = false;
  std::vector<device::DecodedPart> parts;
  try {
    parts = gpu_.finish(lane);
  } catch (const Error& error) {
    give_up(error.details());
    return host_.decode(arguments).wait();
  }
  return judge(parts, arguments);
}

df11::DecodeStatus DecodeStageOfEither::judge(const std::vector<device::DecodedPart>& parts,
                                              const df11::DecodeArguments& arguments) {
  df11::DecodeStatus status;
  for (const device::DecodedPart& part : parts) {
    if (!part.status.ok) {
      status = host_.decode(arguments).wait();
      if (status.ok || status.chunk != part.status.chunk) {
        give_up({.code = ErrorCode::kDeviceFailed,
                 .message = "it finds a fault in chunk " + std::to_string(part.status.chunk) +
                            " of a unit, which the CPU does not find there"});
      }
      return status;
    }
    if (part.sums != sums_of(part.arguments, num_threads_)) {
      give_up({.code = ErrorCode::kDeviceFailed,
               .message = "what is in its memory is not what was copied there, or what came back"});
      return host_.decode(arguments).wait();
    }
    status.kernel_ends = status.kernel_ends && part.status.kernel_ends;
  }
  return status;
}

void DecodeStageOfEither::give_up(ErrorDetails error) {
  uses_gpu_ = false;
  on_failure_({std::move(error)});
}

void DecodeStageOfEither::abandon() noexcept {
  for (std::size_t lane = 0; lane < is_taken_.size(); ++lane) {
    if (is_taken_[lane]) gpu_.abandon(static_cast<int>(lane));
    is_taken_[lane] = false;
  }
}

}  // namespace weightpress::job
