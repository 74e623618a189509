// The files are described in the kernel's Documentation/power/powercap/powercap.rst.
#include "job/energy_meter.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "job/system_file.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;

// "intel-rapl:0", on AMD as well. Not "intel-rapl:0:0", a part of it, and not "intel-rapl-mmio:0", the same
// counter by another way.
bool is_top_zone(std::string_view name) {
  constexpr std::string_view kPrefix = "intel-rapl:";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         name.find_first_not_of("0123456789", kPrefix.size()) == std::string_view::npos;
}

std::string trouble_of(const fs::path& path, int error) {
  if (error == EACCES || error == EPERM)
    return "this user may not read " + path.string() + " (root may, or whoever root lets)";
  return path.string() + " cannot be read: " + std::generic_category().message(error);
}

struct Number {
  std::uint64_t value = 0;
  std::string trouble;
};

Number read_number(const fs::path& path) {
  const SystemFile file = read_system_file(path);
  if (file.error != 0) return {0, trouble_of(path, file.error)};
  const auto value = number_in(file.text);
  return value ? Number{*value, {}} : Number{0, path.string() + " holds no number"};
}

std::uint64_t used_between(std::uint64_t before_uj, std::uint64_t now_uj, std::uint64_t range_uj) {
  if (now_uj >= before_uj) return now_uj - before_uj;
  return now_uj + (range_uj - std::min(range_uj, before_uj));  // began anew
}

}  // namespace

EnergyMeter::EnergyMeter(const fs::path& root) {
  find_packages(root);
  if (!never_readable_.empty()) return;
  const Readings first = read_counters();
  never_readable_ = first.trouble;
  for (std::size_t i = 0; i < first.values_uj.size(); ++i) packages_[i].last_uj = first.values_uj[i];
}

void EnergyMeter::find_packages(const fs::path& root) {
  const fs::path folder = root / "sys/class/powercap";
  std::vector<fs::path> zones;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    if (is_top_zone(entry->path().filename().native())) zones.push_back(entry->path());
  if (error) {
    never_readable_ = error == std::errc::no_such_file_or_directory
                          ? "there is no " + folder.string() +
                                ": a virtual machine, or a processor or a kernel without energy counters"
                          : trouble_of(folder, error.value());
    return;
  }

  std::sort(zones.begin(), zones.end());
  for (const fs::path& zone : zones) {
    const SystemFile name = read_system_file(zone / "name");
    if (name.error != 0) {
      never_readable_ = trouble_of(zone / "name", name.error);
      return;
    }
    // The other kind is "psys", the whole board, which holds the packages once more.
    if (!name.text.starts_with("package")) continue;
    const Number range = read_number(zone / "max_energy_range_uj");
    if (!range.trouble.empty()) {
      never_readable_ = range.trouble;
      return;
    }
    packages_.push_back({zone / "energy_uj", range.value, 0});
  }
  if (packages_.empty()) never_readable_ = folder.string() + " lists no processor package";
}

EnergyMeter::Readings EnergyMeter::read_counters() const {
  Readings readings;
  for (const Package& package : packages_) {
    const Number number = read_number(package.counter);
    if (!number.trouble.empty()) return {{}, number.trouble};
    readings.values_uj.push_back(number.value);
  }
  return readings;
}

std::uint64_t EnergyMeter::used_until(const Readings& now) const {
  std::uint64_t used_uj = used_uj_;
  for (std::size_t i = 0; i < packages_.size(); ++i)
    used_uj += used_between(packages_[i].last_uj, now.values_uj[i], packages_[i].range_uj);
  return used_uj;
}

void EnergyMeter::sample() {
  if (!never_readable_.empty()) return;
  const Readings now = read_counters();
  if (!now.trouble.empty()) return;
  used_uj_ = used_until(now);
  for (std::size_t i = 0; i < packages_.size(); ++i) packages_[i].last_uj = now.values_uj[i];
}

std::optional<double> EnergyMeter::joules() const {
  if (!never_readable_.empty()) return std::nullopt;
  const Readings now = read_counters();
  if (!now.trouble.empty()) return std::nullopt;
  return static_cast<double>(used_until(now)) * 1e-6;
}

std::string EnergyMeter::why_absent() const {
  return never_readable_.empty() ? read_counters().trouble : never_readable_;
}

}  // namespace weightpress::job
