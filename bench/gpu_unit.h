// A unit in a GPU's memory, and every stage on it as one call that enqueues: what bench_gpu_df11 verifies and
// times.
//
// The unit is one slab. All of its buffers stay on the device; what comes back to the host is the histogram,
// from which the codebook is made, and status words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/compare_stage.h"
#include "device/df11_launches.h"
#include "device/driver/gpu.h"
#include "device/encode_tables.h"
#include "device/gpu_kernels.h"
#include "format/bf16_fields.h"
#include "format/histogram.h"
#include "format/unit_plan.h"

namespace weightpress::bench {

/// Something was computed wrong.
struct WrongResult : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The official decode kernel (docs/format.md, "How the official kernel decodes").
class OfficialKernel {
 public:
  OfficialKernel(const device::Gpu& gpu, const std::string& ptx)
      : module_(gpu, ptx.c_str()), kernel_(module_.kernel("decode")) {}

  /// Of a block, for the densest chunk of a unit: a count a thread, one more, and the chunk's weights.
  static constexpr std::uint64_t shared_bytes(std::uint64_t chunk_weights) {
    return df11::kWindowsPerChunk * 4 + 4 + 2 * chunk_weights;
  }
  const device::Kernel& kernel() const { return kernel_; }

 private:
  device::GpuModule module_;
  device::Kernel kernel_;
};

class GpuUnit {
 public:
  /// `repeated` over and over, to num_weights. Waits.
  GpuUnit(const device::Gpu& gpu, const device::GpuKernels& kernels, std::span<const std::uint16_t> repeated,
          std::uint64_t num_weights, std::uint64_t segment_weights)
      : gpu_(gpu),
        launches_(kernels),
        stream_(gpu),
        num_weights_(num_weights),
        segment_weights_(segment_weights),
        num_segments_(df11::num_segments(num_weights, segment_weights)),
        last_weight_(repeated[(num_weights - 1) % repeated.size()]),
        returned_(gpu, sizeof(Returned)),
        d_source_(gpu, bf16_bytes()),
        d_weights_(gpu, bf16_bytes()),
        d_histograms_(gpu, num_segments_ * sizeof(df11::SegmentHistogram)),
        d_unit_histogram_(gpu, sizeof(df11::Histogram)),
        d_tables_(gpu, sizeof(device::EncodeTables)),
        d_bits_(gpu, (num_segments_ + 1) * sizeof(std::uint64_t)),
        d_status_(gpu, sizeof(std::uint64_t)),
        d_results_(gpu, 2 * sizeof(device::DecodeKernel::Result)),
        d_sign_mantissa_(gpu, num_weights) {
    const device::DecodeKernel::Result empty;
    stream_.copy_to_device(empty_result(), &empty, sizeof empty);
    std::uint64_t there = std::min<std::uint64_t>(repeated.size(), num_weights);
    stream_.copy_to_device(d_source_.get(), repeated.data(), 2 * there);
    for (std::uint64_t more = 0; there < num_weights; there += more) {
      more = std::min(there, num_weights - there);
      stream_.copy_on_device(d_source_.get() + 2 * there, d_source_.get(), 2 * more);
    }
    stream_.wait();
  }

  // ---- stages: enqueued, nothing waits

  void copy() { stream_.copy_on_device(d_weights_.get(), d_source_.get(), bf16_bytes()); }

  void histogram() {
    stream_.fill(d_unit_histogram_.get(), 0, sizeof(df11::Histogram));
    launches_.histogram(stream_, {.d_weights = d_source_.get(),
                                  .num_weights = num_weights_,
                                  .segment_weights = segment_weights_,
                                  .d_histograms = d_histograms_.get(),
                                  .d_unit_histogram = d_unit_histogram_.get()});
    stream_.copy_to_host(&returned().histogram, d_unit_histogram_.get(), sizeof(df11::Histogram));
  }

  /// Bits of the segments, their sums, and all buffers of the unit. After prepare().
  void encode() {
    constexpr std::uint8_t kFill = 0xFF;  // of the bytes of EncodeStatusWord::kOk
    static_assert(device::EncodeStatusWord::kOk == ~std::uint64_t{0});
    const df11::StreamLayout& layout = plan_.layout;
    stream_.fill(d_status_.get(), kFill, sizeof(std::uint64_t));
    launches_.segment_bits(stream_, {.d_weights = d_source_.get(),
                                     .num_weights = num_weights_,
                                     .segment_weights = segment_weights_,
                                     .num_segments = num_segments_,
                                     .d_histograms = d_histograms_.get(),
                                     .d_tables = d_tables_.get(),
                                     .d_bits = d_bits_.get(),
                                     .d_status = d_status_.get()});
    launches_.segment_offsets(stream_, {.d_bits = d_bits_.get(),
                                        .num_segments = num_segments_,
                                        .expected_end = layout.total_bits,
                                        .d_last_weight = d_source_.get() + bf16_bytes() - 2,
                                        .d_tables = d_tables_.get(),
                                        .expected_last_length = layout.last_code_length,
                                        .d_status = d_status_.get()});
    const auto used_bits = static_cast<std::uint32_t>(layout.total_bits % 8);
    launches_.encode(stream_,
                     {.d_weights = d_source_.get(),
                      .num_weights = num_weights_,
                      .segment_weights = segment_weights_,
                      .d_bits = d_bits_.get(),
                      .d_tables = d_tables_.get(),
                      .d_sign_mantissa = d_sign_mantissa_.get(),
                      .d_encoded_exponent = d_encoded_exponent_.get(),
                      .d_gaps = d_gaps_.get(),
                      .num_groups = num_groups(),
                      .d_positions = d_positions_.get(),
                      .num_positions = num_opened_chunks(),
                      .is_last = 1,
                      .eof_bits = used_bits == 0 ? 0u : df11::eof_padding(plan_.codebook, 8 - used_bits),
                      .d_status = d_status_.get()});
    stream_.copy_to_host(&returned().encode_status, d_status_.get(), sizeof(std::uint64_t));
  }

  /// To weights.
  void decode() { enqueue_decode(0, d_weights_.get()); }
  /// Beside the source.
  void decode_and_compare() { enqueue_decode(d_source_.get(), 0); }

  /// To weights. densest_chunk() must be at most kMaxChunkWeights.
  void decode(const OfficialKernel& official) {
    const device::LaunchShape shape{static_cast<unsigned>(plan_.layout.num_chunks), df11::kWindowsPerChunk,
                                    static_cast<unsigned>(OfficialKernel::shared_bytes(densest_chunk_))};
    stream_.launch(official.kernel(), shape, d_luts_.get(), d_encoded_exponent_.get(), d_sign_mantissa_.get(),
                   d_positions_.get(), d_gaps_.get(), d_weights_.get(),
                   static_cast<std::int32_t>(plan_.tables.rows.size()),
                   static_cast<std::int32_t>(plan_.layout.num_bytes),
                   static_cast<std::int32_t>(num_weights_));  // below 2^31: plan_unit()
  }

  // ---- between stages

  /// What the histogram stage counted. Waits.
  const df11::Histogram& counts() const {
    stream_.wait();
    return returned().histogram;
  }

  /// Plans the unit from the histogram that came back, and makes room for its buffers. Waits.
  void prepare() {
    make_plan();
    const df11::StreamLayout& layout = plan_.layout;
    d_luts_ = {gpu_, plan_.tables.size_bytes()};
    d_encoded_exponent_ = {gpu_, num_groups() * device::kGroupBytes};
    // The official kernel reads one byte past gaps and one entry past the positions.
    d_gaps_ = {gpu_, layout.gaps_bytes + 1};
    const std::uint64_t num_entries = layout.num_chunks + 2;
    d_positions_ = {gpu_, num_entries * sizeof(std::uint32_t)};
    stream_.copy_to_device(d_luts_.get(), plan_.tables.data(), plan_.tables.size_bytes());
    stream_.fill(d_gaps_.get(), 0, d_gaps_.size_bytes());
    // Chunks that no weight opens, and the unit's end.
    const std::vector<std::uint32_t> ends(num_entries - num_opened_chunks(),
                                          static_cast<std::uint32_t>(num_weights_));
    stream_.copy_to_device(d_positions_.get() + num_opened_chunks() * sizeof ends[0], ends.data(),
                           ends.size() * sizeof ends[0]);
    stream_.wait();
  }

  /// The host's part of encoding, again: waits for the histogram, makes the codebook, and enqueues its
  /// tables.
  void make_plan() {
    const df11::UnitStatistics statistics{"the benchmark's unit", counts(), df11::exponent_of(last_weight_)};
    // Only codebooks with a code of one bit are asked about: no unit of normal weights has one.
    plan_ = df11::plan_unit(statistics, {}, [](const df11::Codebook&) { return std::uint64_t{0}; }).value();
    tables_ = device::make_encode_tables(plan_.codebook);
    stream_.copy_to_device(d_tables_.get(), &tables_, sizeof tables_);
  }

  void poison_weights() { stream_.fill(d_weights_.get(), 0xA5, bf16_bytes()); }

  // ---- checks; wait

  void check_encoding() {
    stream_.wait();
    const std::uint64_t status = returned().encode_status;
    if (status != device::EncodeStatusWord::kOk)
      throw WrongResult("encoding says that the weights of segment " + std::to_string(status >> 8) +
                        " are not those that were counted");
    const std::vector<std::uint32_t> positions =
        read<std::uint32_t>(d_positions_, plan_.layout.num_chunks + 1);
    densest_chunk_ = 0;
    for (std::size_t chunk = 0; chunk + 1 < positions.size(); ++chunk)
      densest_chunk_ = std::max<std::uint64_t>(densest_chunk_, positions[chunk + 1] - positions[chunk]);
  }

  /// Of the last decoding by our kernel.
  void check_decoding(const std::string& what) const {
    stream_.wait();
    const device::DecodeKernel::Result& result = returned().decoded;
    if (result.first_fault != device::DecodeKernel::Result::kNone)
      throw WrongResult(what + " finds chunk " + std::to_string(result.first_fault) + " at fault");
    if (result.kernel_never_ends != 0)
      throw WrongResult(what + " says that the official kernel would not end");
  }

  /// The decoded weights are the source's.
  void check_weights(const std::string& what, device::CompareStage& compare) const {
    compare.enqueue(stream_, d_weights_.get(), d_source_.get(), bf16_bytes());
    stream_.wait();
    const device::Comparison found = compare.result();
    if (found.num_different != 0)
      throw WrongResult(
          what + " gives other weights than the source: " + std::to_string(found.num_different) +
          " bytes differ, the first one in weight " + std::to_string(found.first_different / 2));
  }

  // ---- what is there

  const device::Stream& stream() const { return stream_; }
  const df11::UnitPlan& plan() const { return plan_; }
  std::uint64_t num_weights() const { return num_weights_; }
  std::uint64_t bf16_bytes() const { return 2 * num_weights_; }
  std::uint64_t densest_chunk() const { return densest_chunk_; }
  std::uint64_t stored_bytes() const {
    const df11::StreamLayout& layout = plan_.layout;
    return plan_.tables.size_bytes() + layout.num_bytes + num_weights_ + layout.gaps_bytes +
           layout.positions_bytes();
  }

  const device::DeviceBuffer& sign_mantissa() const { return d_sign_mantissa_; }
  const device::DeviceBuffer& encoded_exponent() const { return d_encoded_exponent_; }
  const device::DeviceBuffer& gaps() const { return d_gaps_; }
  const device::DeviceBuffer& positions() const { return d_positions_; }

  /// The first ones of a buffer. Waits.
  template <class T>
  std::vector<T> read(const device::DeviceBuffer& buffer, std::uint64_t count) const {
    std::vector<T> values(count);
    stream_.copy_to_host(values.data(), buffer.get(), count * sizeof(T));
    stream_.wait();
    return values;
  }

 private:
  /// In pinned memory.
  struct Returned {
    df11::Histogram histogram;
    std::uint64_t encode_status;
    device::DecodeKernel::Result decoded;
  };

  Returned& returned() const { return *reinterpret_cast<Returned*>(returned_.data()); }
  CUdeviceptr result() const { return d_results_.get(); }
  CUdeviceptr empty_result() const { return d_results_.get() + sizeof(device::DecodeKernel::Result); }
  std::uint64_t num_groups() const {
    return (plan_.layout.total_bits + device::kGroupBits - 1) / device::kGroupBits;
  }
  std::uint64_t num_opened_chunks() const {
    return plan_.layout.num_positions - 1 - (plan_.layout.end_opens_chunk ? 1 : 0);
  }

  void enqueue_decode(CUdeviceptr d_compared, CUdeviceptr d_out) {
    const df11::StreamLayout& layout = plan_.layout;
    stream_.copy_on_device(result(), empty_result(), sizeof(device::DecodeKernel::Result));
    launches_.decode(stream_, {.d_luts = d_luts_.get(),
                               .num_tables = plan_.tables.num_tables(),
                               .num_weights = num_weights_,
                               .stream_bytes = layout.num_bytes,
                               .num_chunks = layout.num_chunks,
                               .d_positions = d_positions_.get(),
                               .d_encoded_exponent = d_encoded_exponent_.get(),
                               .available_bytes = layout.num_bytes,
                               .d_gaps = d_gaps_.get(),
                               .d_sign_mantissa = d_sign_mantissa_.get(),
                               .d_source = d_compared,
                               .d_weights = d_out,
                               .d_result = result()});
    stream_.copy_to_host(&returned().decoded, result(), sizeof(device::DecodeKernel::Result));
  }

  const device::Gpu& gpu_;
  device::Df11Launches launches_;
  device::Stream stream_;
  std::uint64_t num_weights_, segment_weights_, num_segments_;
  std::uint16_t last_weight_;
  df11::UnitPlan plan_;
  device::EncodeTables tables_;
  std::uint64_t densest_chunk_ = 0;

  device::PinnedBuffer returned_;
  device::DeviceBuffer d_source_, d_weights_, d_histograms_, d_unit_histogram_, d_tables_, d_bits_, d_status_,
      d_results_, d_sign_mantissa_, d_luts_, d_encoded_exponent_, d_gaps_, d_positions_;
};

}  // namespace weightpress::bench
