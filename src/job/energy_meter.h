// What the processors of the machine used while a job ran, from the counters that Linux calls RAPL.
//
// The counters are those of whole processor packages (Intel and AMD): other programs are in them, memory,
// disks and GPUs are not. Since Linux 5.10 only root may read them; virtual machines rarely have any. So the
// usual answer is "nothing", with a reason.
//
// A counter begins anew at max_energy_range_uj, under load after a few minutes to an hour: some 260 kJ on
// desktop processors, 65 kJ on some servers. One such turn between two readings is made up for, more than one
// is not noticed. A long run calls sample() once a minute or so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace weightpress::job {

/// For one thread at a time.
class EnergyMeter {
 public:
  /// Begins to count. `root` stands for "/" in every path.
  explicit EnergyMeter(const std::filesystem::path& root = "/");

  /// Adds up what was used since the last call; nothing happens while a counter cannot be read.
  void sample();

  /// Joules since construction, all packages; nothing where the machine does not tell of each of them.
  std::optional<double> joules() const;
  /// Why there is none, a clause without a full stop; empty if there is one.
  std::string why_absent() const;

 private:
  struct Package {
    std::filesystem::path counter;
    std::uint64_t range_uj;
    std::uint64_t last_uj;
  };
  struct Readings {
    std::vector<std::uint64_t> values_uj;  // [packages_.size()], unless
    std::string trouble;                   // is not empty
  };

  void find_packages(const std::filesystem::path& root);
  Readings read_counters() const;
  std::uint64_t used_until(const Readings& now) const;

  std::vector<Package> packages_;
  std::uint64_t used_uj_ = 0;   // until the last sample
  std::string never_readable_;  // the reason
};

}  // namespace weightpress::job
