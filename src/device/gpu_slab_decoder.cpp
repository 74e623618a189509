#include "device/gpu_slab_decoder.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <string>

#include "device/gpu_stages.h"
#include "device/growing_device_buffer.h"
#include "device/pinned_memory.h"

namespace weightpress::device {
namespace {

constexpr std::uint64_t kMaxRows = df11::kMaxTables + 1;
// Of a slab that does not fit: so many results are in pinned memory.
constexpr std::uint64_t kMaxParts = 512;

/// Small inputs of a lane, as they lie in pinned and in device memory.
struct Given {
  std::uint8_t luts[kMaxRows * df11::kNumSymbols];
  DecodeKernel::Result result;  // what it begins as
};
static_assert(offsetof(Given, result) % alignof(DecodeKernel::Result) == 0);

std::uint64_t num_chunks_of(const df11::DecodeArguments& slab) {
  return slab.positions.size() - 1;
}

bool holds_last_chunk(const df11::DecodeArguments& slab) {
  return (slab.first_chunk + num_chunks_of(slab)) * df11::kChunkBytes >= slab.stream_bytes;
}

/// Of one part's buffers, the most that any part needs.
struct Sizes {
  std::uint64_t positions = 0, encoded_exponent = 0, gaps = 0, sign_mantissa = 0, source = 0, weights = 0;

  void include(const df11::DecodeArguments& part) {
    positions = std::max<std::uint64_t>(positions, part.positions.size_bytes());
    encoded_exponent = std::max<std::uint64_t>(encoded_exponent, part.encoded_exponent.size());
    gaps = std::max<std::uint64_t>(gaps, part.gaps.size());
    sign_mantissa = std::max<std::uint64_t>(sign_mantissa, part.sign_mantissa.size());
    source = std::max<std::uint64_t>(source, part.source.size_bytes());
    weights = std::max<std::uint64_t>(weights, part.weights.size_bytes());
  }
};

/// The chunks [first, first + count) of the slab, counted from its first, as a slab.
df11::DecodeArguments part_of_slab(const df11::DecodeArguments& slab, std::uint64_t first,
                                   std::uint64_t count) {
  df11::DecodeArguments part = slab;
  const std::uint64_t first_byte = first * df11::kChunkBytes;
  const std::uint64_t end_byte = std::min<std::uint64_t>(
      (first + count) * df11::kChunkBytes + df11::kDecodeLookaheadBytes, slab.encoded_exponent.size());
  const std::uint64_t first_gap = first * df11::kGapBytesPerChunk;
  const std::uint64_t end_gap = std::min<std::uint64_t>(
      (first + count) * df11::kGapBytesPerChunk + df11::kGapGroupBytes, slab.gaps.size());
  const std::uint64_t first_weight = slab.positions[first] - slab.positions.front();
  const std::uint64_t num_weights = slab.positions[first + count] - slab.positions[first];
  part.first_chunk += first;
  part.positions = slab.positions.subspan(first, count + 1);
  part.encoded_exponent = slab.encoded_exponent.subspan(first_byte, end_byte - first_byte);
  part.gaps = slab.gaps.subspan(first_gap, end_gap - first_gap);
  if (!slab.sign_mantissa.empty()) part.sign_mantissa = slab.sign_mantissa.subspan(first_weight, num_weights);
  if (!slab.source.empty()) part.source = slab.source.subspan(first_weight, num_weights);
  if (!slab.weights.empty()) part.weights = slab.weights.subspan(first_weight, num_weights);
  return part;
}

template <class Visit>
void for_each_part(const df11::DecodeArguments& slab, std::uint64_t part_chunks, Visit visit) {
  for (std::uint64_t first = 0; first < num_chunks_of(slab); first += part_chunks)
    visit(part_of_slab(slab, first, std::min(part_chunks, num_chunks_of(slab) - first)));
}

/// What of a result only the kernel knows, and what it must have written. Throws Error.
DecodedPart decoded_part(const df11::DecodeArguments& part, const DecodeKernel::Result& result) {
  DecodedPart decoded{
      .arguments = part, .status = decode_status(result, part.first_chunk, num_chunks_of(part)), .sums = {}};
  if (!decoded.status.ok) return decoded;
  const std::uint64_t ends = holds_last_chunk(part) ? 1 : 0;
  if (result.num_chunks != num_chunks_of(part) || result.end_weight != part.positions.back() ||
      result.kernel_ends > 1 || result.kernel_ends + result.kernel_never_ends != ends) {
    throw Error(ErrorCode::kDeviceFailed,
                "the GPU returned what none of its kernels writes: " + std::to_string(result.num_chunks) +
                    " chunks up to weight " + std::to_string(result.end_weight) + " of " +
                    std::to_string(num_chunks_of(part)) + " up to weight " +
                    std::to_string(part.positions.back()) + ", " + std::to_string(result.kernel_ends) + ", " +
                    std::to_string(result.kernel_never_ends));
  }
  decoded.sums = {.sign_mantissa = result.sign_mantissa_sum,
                  .encoded_exponent = result.encoded_exponent_sum,
                  .gaps = result.gaps_sum,
                  .positions = result.positions_sum + result.end_weight,
                  .luts = result.luts_sum,
                  .weights = result.weights_sum,
                  .source = result.source_sum};
  return decoded;
}

}  // namespace

struct GpuSlabDecoder::Lane {
  explicit Lane(const Gpu& gpu)
      : stream(gpu),
        given_memory(gpu, sizeof(Given)),
        results_memory(gpu, kMaxParts * sizeof(DecodeKernel::Result)),
        d_given(gpu, sizeof(Given)) {}

  Given& given() const { return *reinterpret_cast<Given*>(given_memory.data()); }
  DecodeKernel::Result& result(std::size_t part) const {
    return reinterpret_cast<DecodeKernel::Result*>(results_memory.data())[part];
  }
  CUdeviceptr d_result() const { return d_given.get() + offsetof(Given, result); }

  void get_room(const Gpu& gpu, const Sizes& sizes) {
    // Later slabs differ a little.
    const auto grow = [&gpu](GrowingDeviceBuffer& buffer, std::uint64_t bytes) {
      buffer.get(gpu, bytes > buffer.size_bytes() ? bytes + bytes / 16 : bytes);
    };
    grow(d_positions, sizes.positions);
    grow(d_encoded_exponent, sizes.encoded_exponent);
    grow(d_gaps, sizes.gaps);
    grow(d_sign_mantissa, sizes.sign_mantissa);
    grow(d_source, sizes.source);
    grow(d_weights, sizes.weights);
  }
  void give_room_back() {
    for (GrowingDeviceBuffer* const buffer :
         {&d_positions, &d_encoded_exponent, &d_gaps, &d_sign_mantissa, &d_source, &d_weights})
      *buffer = {};
  }

  Stream stream;
  PinnedBuffer given_memory, results_memory;
  DeviceBuffer d_given;
  GrowingDeviceBuffer d_positions, d_encoded_exponent, d_gaps, d_sign_mantissa, d_source, d_weights;
  std::uint64_t most_chunks = ~std::uint64_t{0};  // of a part, as far as the memory of the GPU is known
  bool is_under_way = false;
  std::vector<df11::DecodeArguments> parts;
};

GpuSlabDecoder::GpuSlabDecoder(const Gpu& gpu, const GpuKernels& kernels) : gpu_(gpu), launches_(kernels) {
  while (num_lanes() < kMostLanes) {
    try {
      lanes_.push_back(std::make_unique<Lane>(gpu));
    } catch (const Error& error) {
      if (lanes_.empty() || error.code() != ErrorCode::kOutOfMemory) throw;
      return;
    }
  }
}

GpuSlabDecoder::~GpuSlabDecoder() {
  for (int lane = 0; lane < num_lanes(); ++lane) abandon(lane);
}

std::shared_ptr<void> GpuSlabDecoder::pinned(std::uint64_t bytes) {
  return pinned_or_ordinary_memory(gpu_, bytes);
}

/// Returns the chunks of a part, all of which the lane now has room for.
std::uint64_t GpuSlabDecoder::make_room(Lane& lane, const df11::DecodeArguments& slab) const {
  const std::uint64_t least = (num_chunks_of(slab) + kMaxParts - 1) / kMaxParts;
  bool others_gave = false;
  while (true) {
    const std::uint64_t part_chunks = std::clamp(lane.most_chunks, least, num_chunks_of(slab));
    Sizes sizes;
    for_each_part(slab, part_chunks, [&](const df11::DecodeArguments& part) { sizes.include(part); });
    try {
      lane.get_room(gpu_, sizes);
      return part_chunks;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory || (others_gave && part_chunks == least)) throw;
      lane.give_room_back();
      if (others_gave) lane.most_chunks = part_chunks / 2;
      for (const auto& other : lanes_)
        if (!other->is_under_way) other->give_room_back();
      others_gave = true;
    }
  }
}

void GpuSlabDecoder::begin(int lane_number, const df11::DecodeArguments& slab) {
  Lane& lane = *lanes_[static_cast<std::size_t>(lane_number)];
  assert(!lane.is_under_way && num_chunks_of(slab) > 0);
  gpu_.use();
  const std::uint64_t part_chunks = make_room(lane, slab);
  lane.parts.clear();
  for_each_part(slab, part_chunks, [&](const df11::DecodeArguments& part) { lane.parts.push_back(part); });

  // Tables that no pointer reaches are left out.
  const std::uint64_t num_tables =
      std::min<std::uint64_t>(slab.luts.size() / df11::kNumSymbols - 1, df11::kMaxTables);
  const auto tables = slab.luts.first(num_tables * df11::kNumSymbols);
  std::ranges::copy(tables, lane.given().luts);
  std::ranges::copy(slab.luts.last(df11::kNumSymbols), lane.given().luts + tables.size());
  lane.given().result = {};

  for (std::size_t i = 0; i < lane.parts.size(); ++i) lane.result(i) = {};

  lane.is_under_way = true;
  try {
    for (std::size_t i = 0; i < lane.parts.size(); ++i) enqueue(lane, lane.parts[i], i);
  } catch (...) {
    abandon(lane_number);
    throw;
  }
}

void GpuSlabDecoder::enqueue(Lane& lane, const df11::DecodeArguments& part, std::size_t index) const {
  const auto copy_in = [&lane]<class T>(const GrowingDeviceBuffer& to, std::span<const T> from) {
    lane.stream.copy_to_device(to.get(), from.data(), from.size_bytes());
    return to.get();
  };
  // The tables are there from the first part on; the result begins anew.
  if (index == 0) {
    lane.stream.copy_to_device(lane.d_given.get(), &lane.given(), sizeof(Given));
  } else {
    lane.stream.copy_to_device(lane.d_result(), &lane.given().result, sizeof(DecodeKernel::Result));
  }
  DecodeKernel::Parameters parameters;
  parameters.d_luts = lane.d_given.get();
  parameters.num_tables = std::min<std::uint64_t>(part.luts.size() / df11::kNumSymbols - 1, df11::kMaxTables);
  parameters.num_weights = part.num_weights;
  parameters.stream_bytes = part.stream_bytes;
  parameters.first_chunk = part.first_chunk;
  parameters.num_chunks = num_chunks_of(part);
  parameters.d_positions = copy_in(lane.d_positions, part.positions);
  parameters.d_encoded_exponent = copy_in(lane.d_encoded_exponent, part.encoded_exponent);
  parameters.available_bytes = part.encoded_exponent.size();
  parameters.first_weight = part.positions.front();
  parameters.d_gaps = copy_in(lane.d_gaps, part.gaps);
  if (!part.sign_mantissa.empty()) {
    parameters.d_sign_mantissa = copy_in(lane.d_sign_mantissa, part.sign_mantissa);
    if (!part.source.empty()) parameters.d_source = copy_in(lane.d_source, part.source);
    if (!part.weights.empty()) parameters.d_weights = lane.d_weights.get();
  }
  parameters.d_result = lane.d_result();
  launches_.decode(lane.stream, parameters);
  if (parameters.d_weights != 0)
    lane.stream.copy_to_host(part.weights.data(), parameters.d_weights, part.weights.size_bytes());
  lane.stream.copy_to_host(&lane.result(index), parameters.d_result, sizeof(DecodeKernel::Result));
}

std::vector<DecodedPart> GpuSlabDecoder::finish(int lane_number) {
  Lane& lane = *lanes_[static_cast<std::size_t>(lane_number)];
  assert(lane.is_under_way);
  gpu_.use();
  lane.is_under_way = false;
  lane.stream.wait();
  std::vector<DecodedPart> decoded;
  for (std::size_t i = 0; i < lane.parts.size(); ++i)
    decoded.push_back(decoded_part(lane.parts[i], lane.result(i)));
  return decoded;
}

void GpuSlabDecoder::abandon(int lane_number) noexcept {
  Lane& lane = *lanes_[static_cast<std::size_t>(lane_number)];
  if (!lane.is_under_way) return;
  lane.is_under_way = false;
  try {
    gpu_.use();
    lane.stream.wait();
  } catch (const Error&) {  // a broken GPU has nothing under way
  }
}

}  // namespace weightpress::device
