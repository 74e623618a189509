// Stored units through job::OfficialDecoder, in the interpreter and on the emulated driver.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "device/device_paths.h"
#include "device/emulated_gpu.h"
#include "host/decode.h"
#include "job/interpreted_kernel.h"
#include "job/official_decoder.h"
#include "job/official_kernel_on_gpu.h"
#include "official_kernel/decode_kernel.h"
#include "support/stored_units.h"

namespace weightpress::testing {

/// What is said of a unit.
struct OfficialVerdict {
  std::optional<job::UnitFault> fault;
  job::KernelCounts counts;
  bool can_launch = false, own_kernel_ends = false;

  std::string text() const {
    if (!fault) return "no fault";
    const auto place = [](std::uint64_t where) {
      return where == job::UnitFault::kNowhere ? std::string("-") : std::to_string(where);
    };
    return fault->kind + ": " + fault->message + " [chunk " + place(fault->chunk) + ", window " +
           place(fault->window) + ", weight " + place(fault->weight) + "]";
  }
};

/// Of the chunks [first, end). source: nullptr: none.
inline OfficialVerdict official_verdict(const Df11Unit& unit, const std::vector<std::uint16_t>* source,
                                        job::OfficialKernelRunner& kernel, std::uint64_t slab_chunks,
                                        std::uint64_t first, std::uint64_t end) {
  const Df11UnitView view = job::view_of(unit);
  const job::MemoryUnit bytes(view);
  host::HostDecodeStage own(1);
  job::KernelBuffers buffers;
  job::OfficialDecoder decoder(sizes_of(unit), bytes, own, kernel, buffers, 1, slab_chunks);
  std::optional<job::MemorySource> weights;
  if (source != nullptr) weights.emplace(*source);
  OfficialVerdict verdict;
  verdict.fault = decoder.compare_chunks(first, end, weights ? &*weights : nullptr);
  verdict.counts = decoder.counts();
  verdict.can_launch = decoder.can_launch();
  verdict.own_kernel_ends = decoder.own_kernel_ends();
  return verdict;
}

inline OfficialVerdict official_verdict(const Df11Unit& unit, const std::vector<std::uint16_t>* source,
                                        job::OfficialKernelRunner& kernel, std::uint64_t slab_chunks) {
  return official_verdict(unit, source, kernel, slab_chunks, 0, sizes_of(unit).num_chunks);
}

/// The official kernel in the interpreter and on the emulated driver, which is there as long as the object.
class BothKernels {
 public:
  explicit BothKernels(const std::string& text, const device::EmulatedGpu::Variables& variables = {})
      : interpreted_(std::move(job::InterpretedKernel::load(text).value())),
        emulated_(variables, device::EmulatedGpu::Opens::kNothing),
        path_(device::open_gpu(0)),
        on_gpu_(std::make_unique<Watched>(std::make_unique<job::OfficialKernelOnGpu>(*path_, known(text)))) {}

  /// The same verdict from both, and no launch on the GPU but over slabs that are sound, and on which the
  /// kernel ends. source: nullptr: none.
  ::testing::AssertionResult tell_alike(const Df11Unit& unit, const std::vector<std::uint16_t>* source,
                                        std::uint64_t slab_chunks) {
    verdict_ = official_verdict(unit, source, *interpreted_, slab_chunks);
    on_gpu_->slabs.clear();
    const OfficialVerdict told = official_verdict(unit, source, *on_gpu_, slab_chunks);
    num_launches_ += on_gpu_->slabs.size();
    const std::string both = "\n  interpreter: " + verdict_.text() + "\n  GPU:         " + told.text();
    // Our decoder's word may be more than what happens: a look-up that leads past the tables counts as never
    // ending, and a code length that there cannot be.
    const bool is_said_only =
        told.can_launch && !told.own_kernel_ends && (!verdict_.fault || verdict_.fault->kind == "kernel");
    if (is_said_only ? !told.fault || told.fault->kind != "padding" : verdict_.text() != told.text())
      return ::testing::AssertionFailure() << both;
    if (!is_said_only && (verdict_.counts.num_chunks != told.counts.num_chunks ||
                          verdict_.counts.num_weights != told.counts.num_weights))
      return ::testing::AssertionFailure() << "other counts" << both;
    is_padding_ = told.fault && told.fault->kind == "padding";
    if (told.counts.lane_instructions + told.counts.reads_past_gaps + told.counts.reads_past_positions != 0)
      return ::testing::AssertionFailure() << "counts that a GPU does not have";
    return launches_were_right(unit, source, told) << both;
  }

  /// On the GPU, the last time.
  bool is_padding() const { return is_padding_; }
  /// Of the interpreter, the last time.
  const OfficialVerdict& verdict() const { return verdict_; }
  std::uint64_t num_launches() const { return num_launches_; }

  /// Gives all back. Returns how often the driver ran the kernel.
  std::uint64_t end(std::vector<std::string>& left_over) {
    on_gpu_.reset();
    path_.reset();
    std::uint64_t count = 0;
    for (const auto& run : emulated_.end()) count += run.name == "decode";
    left_over = emulated_.left_over();
    return count;
  }

  static job::KernelFile known(const std::string& text) {
    job::KernelFile file;
    file.path = "decode.ptx";
    file.text = text;
    file.is_known = true;
    return file;
  }

 private:
  /// Remembers over which chunks it was to run.
  class Watched final : public job::OfficialKernelRunner {
   public:
    explicit Watched(std::unique_ptr<job::OfficialKernelRunner> runner) : runner_(std::move(runner)) {}
    const std::string& name() const override { return runner_->name(); }
    bool is_interpreter() const override { return runner_->is_interpreter(); }
    job::KernelRun run(const job::KernelSlab& slab) override {
      slabs.emplace_back(slab.arguments.first_chunk, slab.end_chunk());
      return runner_->run(slab);
    }

    std::vector<std::pair<std::uint64_t, std::uint64_t>> slabs;

   private:
    std::unique_ptr<job::OfficialKernelRunner> runner_;
  };

  /// By the walk along the whole unit, whose faults have a place.
  ::testing::AssertionResult launches_were_right(const Df11Unit& unit,
                                                 const std::vector<std::uint16_t>* source,
                                                 const OfficialVerdict& told) const {
    UnitInMemory memory(unit);
    std::optional<job::UnitFault> fault;
    if (source != nullptr) {
      job::MemorySource weights(*source);
      fault = memory.decoder().compare(weights);
    } else {
      fault = memory.decoder().check_lengths();
    }
    const std::uint64_t num_chunks = sizes_of(unit).num_chunks;
    std::uint64_t next = 0;
    for (const auto& [first, end] : on_gpu_->slabs) {
      if (first != next) return ::testing::AssertionFailure() << "chunk " << next << " was left out";
      next = end;
      if (fault && end > fault->chunk)
        return ::testing::AssertionFailure()
               << "launched over chunks up to " << end << ", though " << fault->message;
      if (end == num_chunks && !memory.decoder().kernel_ends())
        return ::testing::AssertionFailure() << "launched, though the kernel never ends";
    }
    if (!told.can_launch && next != 0) return ::testing::AssertionFailure() << "launched a unit it cannot";
    if (told.can_launch && !told.fault && next != num_chunks)
      return ::testing::AssertionFailure() << "launched over " << next << " chunks only";
    return ::testing::AssertionSuccess();
  }

  std::unique_ptr<job::InterpretedKernel> interpreted_;
  device::EmulatedGpu emulated_;
  std::unique_ptr<device::GpuPath> path_;
  std::unique_ptr<Watched> on_gpu_;
  OfficialVerdict verdict_;
  bool is_padding_ = false;
  std::uint64_t num_launches_ = 0;
};

}  // namespace weightpress::testing
