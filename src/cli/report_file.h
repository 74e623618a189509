// --report FILE.json: what a run did, for programs.
#pragma once

#include <filesystem>
#include <string>

#include <weightpress/compress.h>

namespace weightpress::job {
class EnergyMeter;
}

namespace weightpress::cli {

struct ReportInput {
  const CompressOptions& options;
  const std::string& device;  ///< as it was asked for
  bool fast = false;
  const job::EnergyMeter& energy;  ///< since the run began
};

/// Throws kUsage or kNotFound if the report could not be written there at the end, or would replace something
/// that the run needs. Removes an earlier report, and nothing else.
void prepare_report(const std::filesystem::path& path, const CompressOptions& options);

/// Replace the file at once. Throw Error.
void write_report(const std::filesystem::path& path, const ReportInput& input, const CompressReport& report);
void write_failure_report(const std::filesystem::path& path, const ReportInput& input, const Error& error);

}  // namespace weightpress::cli
