#include "job/energy_meter.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/fake_system.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::string_view kFolder = "sys/class/powercap/";

// A zone of /sys/class/powercap.
void put_zone(const FakeSystem& system, const std::string& zone, std::string_view name,
              std::uint64_t energy_uj, std::uint64_t range_uj = 262143328850) {
  const std::string folder = std::string(kFolder) + zone;
  system.put(folder + "/name", std::string(name) + "\n");
  system.put(folder + "/energy_uj", std::to_string(energy_uj) + "\n");
  system.put(folder + "/max_energy_range_uj", std::to_string(range_uj) + "\n");
}

void set_energy(const FakeSystem& system, const std::string& zone, std::uint64_t energy_uj) {
  system.put(std::string(kFolder) + zone + "/energy_uj", std::to_string(energy_uj) + "\n");
}

TEST(EnergyMeter, AddsUpThePackages) {
  const FakeSystem system;
  put_zone(system, "intel-rapl:0", "package-0", 5'000'000);
  put_zone(system, "intel-rapl:12", "package-1-die-0", 0);
  const EnergyMeter meter(system.root());
  ASSERT_EQ(meter.joules(), 0.0);
  EXPECT_EQ(meter.why_absent(), "");
  set_energy(system, "intel-rapl:0", 6'500'000);
  EXPECT_DOUBLE_EQ(meter.joules().value(), 1.5);
  set_energy(system, "intel-rapl:12", 250'000);
  EXPECT_DOUBLE_EQ(meter.joules().value(), 1.75);
  EXPECT_DOUBLE_EQ(meter.joules().value(), 1.75);
}

TEST(EnergyMeter, CountsNothingTwice) {
  const FakeSystem system;
  const std::vector<std::pair<std::string, std::string>> others = {
      {"intel-rapl", "intel-rapl"},    {"intel-rapl:1", "psys"},      {"intel-rapl:0:0", "core"},
      {"intel-rapl:0:1", "package-0"}, {"intel-rapl-mmio", "mmio"},   {"intel-rapl-mmio:0", "package-0"},
      {"intel-rapl:", "package-0"},    {"intel-rapl:x", "package-0"}, {"dtpm:0", "package-0"}};
  put_zone(system, "intel-rapl:0", "package-0", 100);
  for (const auto& [zone, name] : others) put_zone(system, zone, name, 100);
  const EnergyMeter meter(system.root());
  for (const auto& [zone, name] : others) set_energy(system, zone, 1'000'000'100);
  EXPECT_EQ(meter.joules(), 0.0);
  set_energy(system, "intel-rapl:0", 2'000'100);
  EXPECT_DOUBLE_EQ(meter.joules().value(), 2.0);
}

TEST(EnergyMeter, ACounterThatBeginsAnew) {
  const FakeSystem system;
  put_zone(system, "intel-rapl:0", "package-0", 9'000'000, 10'000'000);
  put_zone(system, "intel-rapl:1", "package-1", 1'000'000, 20'000'000);
  EnergyMeter meter(system.root());
  set_energy(system, "intel-rapl:0", 2'000'000);
  set_energy(system, "intel-rapl:1", 4'000'000);
  EXPECT_DOUBLE_EQ(meter.joules().value(), 6.0);  // 1 + 2, and 3
  // Seen by samples in between, any number of turns is counted.
  meter.sample();
  EXPECT_DOUBLE_EQ(meter.joules().value(), 6.0);
  for (int turn = 0; turn < 100; ++turn) {
    set_energy(system, "intel-rapl:0", 9'000'000);
    meter.sample();
    set_energy(system, "intel-rapl:0", 2'000'000);
    meter.sample();
  }
  EXPECT_DOUBLE_EQ(meter.joules().value(), 1006.0);
}

TEST(EnergyMeter, ACounterAboveItsRangeIsNotNegative) {
  const FakeSystem system;
  put_zone(system, "intel-rapl:0", "package-0", 9'000'000, 1'000'000);
  const EnergyMeter meter(system.root());
  set_energy(system, "intel-rapl:0", 500'000);
  EXPECT_DOUBLE_EQ(meter.joules().value(), 0.5);
}

TEST(EnergyMeter, AbsentWithAReason) {
  const FakeSystem system;
  const auto why = [&] {
    EnergyMeter meter(system.root());
    meter.sample();
    EXPECT_EQ(meter.joules(), std::nullopt);
    return meter.why_absent();
  };
  EXPECT_THAT(why(), HasSubstr("there is no " + (system / "sys/class/powercap").string()));
  fs::create_directories(system / "sys/class/powercap");
  EXPECT_THAT(why(), HasSubstr("lists no processor package"));
  put_zone(system, "intel-rapl:0", "psys", 100);
  EXPECT_THAT(why(), HasSubstr("lists no processor package"));

  // One of two packages without a figure: none at all.
  put_zone(system, "intel-rapl:0", "package-0", 100);
  put_zone(system, "intel-rapl:1", "package-1", 100);
  const std::string zone = std::string(kFolder) + "intel-rapl:1/";
  for (const char* name : {"energy_uj", "max_energy_range_uj"}) {
    for (const char* content : {"", "\n", "-5\n", "many\n", "99999999999999999999\n"}) {
      system.put(zone + name, content);
      EXPECT_THAT(why(), HasSubstr(zone + name + " holds no number")) << content;
    }
    system.remove(zone + name);
    EXPECT_THAT(why(), HasSubstr(zone + name + " cannot be read: No such file")) << name;
    put_zone(system, "intel-rapl:1", "package-1", 100);
  }
  system.remove(zone + "name");
  EXPECT_THAT(why(), HasSubstr(zone + "name cannot be read"));
  put_zone(system, "intel-rapl:1", "package-1", 100);
  EXPECT_EQ(EnergyMeter(system.root()).why_absent(), "");
}

TEST(EnergyMeter, ACounterThatFailsForAWhileLosesNothing) {
  const FakeSystem system;
  put_zone(system, "intel-rapl:0", "package-0", 0);
  put_zone(system, "intel-rapl:1", "package-1", 0);
  EnergyMeter meter(system.root());
  set_energy(system, "intel-rapl:0", 1'000'000);
  system.remove("sys/class/powercap/intel-rapl:1");
  meter.sample();
  EXPECT_EQ(meter.joules(), std::nullopt);
  EXPECT_THAT(meter.why_absent(), HasSubstr("intel-rapl:1/energy_uj cannot be read"));
  put_zone(system, "intel-rapl:1", "package-1", 2'000'000);
  EXPECT_DOUBLE_EQ(meter.joules().value(), 3.0);
  EXPECT_EQ(meter.why_absent(), "");
}

// As on a machine as it comes: only root may read the counter.
TEST(EnergyMeter, ACounterThatTheUserMayNotRead) {
  const FakeSystem system;
  put_zone(system, "intel-rapl:0", "package-0", 100);
  constexpr auto kReadable = fs::perms::owner_all | fs::perms::group_all | fs::perms::others_all;
  fs::permissions(system.root(), kReadable);
  for (const auto& entry : fs::recursive_directory_iterator(system.root()))
    fs::permissions(entry.path(), kReadable);
  fs::permissions(system / "sys/class/powercap/intel-rapl:0/energy_uj", fs::perms::none);
  constexpr uid_t kNobody = 65534;
  const bool root = ::geteuid() == 0;
  if (root && ::seteuid(kNobody) != 0) GTEST_SKIP() << "root that cannot be another user reads everything";
  const EnergyMeter meter(system.root());
  const auto joules = meter.joules();
  const std::string why = meter.why_absent();
  if (root && ::seteuid(0) != 0) FAIL() << "cannot be root again";
  EXPECT_EQ(joules, std::nullopt);
  EXPECT_THAT(why, HasSubstr("this user may not read"));
  EXPECT_THAT(why, HasSubstr("energy_uj"));
}

TEST(EnergyMeter, OfThisMachine) {
  EnergyMeter meter;
  meter.sample();
  const auto joules = meter.joules();
  EXPECT_EQ(joules.has_value(), meter.why_absent().empty());
  EXPECT_GE(joules.value_or(0.0), 0.0);
}

}  // namespace
}  // namespace weightpress::job
