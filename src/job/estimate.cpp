// The size of an output before it is made: the plan of every unit, and no file.
#include <chrono>

#include <weightpress/compress.h>

#include "job/compression.h"
#include "job/machine_trouble.h"
#include "job/process_memory.h"
#include "job/tile_ans_jobs.h"

namespace weightpress {
namespace {

class EstimateJob : private job::Compression {
 public:
  explicit EstimateJob(const CompressOptions& options) : Compression(options, job::Purpose::kEstimate) {}

  SizeEstimate run() {
    const auto start = std::chrono::steady_clock::now();
    settle();
    if (options_.on_planned) options_.on_planned(report_);
    if (is_single_file()) {
      const auto planned = plan_all_units();
      add(make_single_file({}, planned)->file_bytes());
    } else {
      estimate_folder();
    }
    if (generation_config_) add(generation_config_->size());
    if (config_) add(config_->size());
    finish_report();
    add(make_record().size());
    report_.output_bytes = estimate_.output_bytes;
    report_.peak_memory_bytes = job::peak_memory_bytes();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    estimate_.report = std::move(report_);
    return std::move(estimate_);
  }

 private:
  void estimate_folder() {
    std::vector<std::size_t> kept;
    for (std::size_t u = 0; u < plan_.assignment.units.size(); ++u) {
      if (const auto planned = plan_unit(u, CompressPhase::kPlanning)) {
        add(make_unit_file({}, *planned)->file_bytes());
      } else {
        kept.push_back(u);
      }
      ++progress_.units_done;
    }
    keep_units(kept);
    add(make_leftover_file({})->file_bytes());
  }

  void add(std::uint64_t file_bytes) {
    estimate_.output_bytes += file_bytes;
    ++estimate_.num_files;
  }

  SizeEstimate estimate_;
};

}  // namespace

SizeEstimate estimate(const CompressOptions& options) {
  return job::telling_trouble(options.source, "to count its weights", [&] {
    job::check_compress_options(options);
    if (options.format == Format::kTileAns) return job::estimate_tile_ans(options);
    return EstimateJob(options).run();
  });
}

}  // namespace weightpress
