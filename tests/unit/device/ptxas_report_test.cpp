// What ptxas -v said when it made the cubins: the kernels of kernel_policy.h and no others, within their
// budgets of registers and shared memory, without spilled registers.
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/kernel_policy.h"

namespace weightpress::device {
namespace {

#ifdef WP_KERNEL_FOLDER
const std::string kFolder = WP_KERNEL_FOLDER;
#else
const std::string kFolder;
#endif

/// What is not as it should be in a report on the module for an architecture.
std::vector<std::string> faults_in(const std::string& report, const std::string& module, int arch) {
  std::vector<std::string> faults;
  std::map<std::string, const KernelDescription*> expected;
  for (const KernelDescription& kernel : kKernels)
    if (kernel.module == module) expected[kernel.entry] = &kernel;

  static const std::regex entry_line("Compiling entry function '(.*)' for 'sm_([0-9]+)'");
  static const std::regex spill_line(
      "([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads");
  static const std::regex use_line("Used ([0-9]+) registers");
  static const std::regex shared_part("([0-9]+) bytes smem");
  const KernelDescription* kernel = nullptr;
  std::istringstream lines(report);
  int num_frames = 0, num_uses = 0, num_entries = 0;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    const auto number = [&](std::size_t i) { return static_cast<std::uint32_t>(std::stoul(match[i])); };
    if (line.find("warning") != std::string::npos) faults.push_back(line);
    if (std::regex_search(line, match, entry_line)) {
      ++num_entries;
      const auto found = expected.find(match[1]);
      kernel = found == expected.end() ? nullptr : found->second;
      if (kernel == nullptr) faults.push_back("kernel_policy.h does not know " + match[1].str());
      if (number(2) != static_cast<std::uint32_t>(arch)) faults.push_back("it is for sm_" + match[2].str());
      if (kernel != nullptr) expected.erase(found);
    } else if (std::regex_search(line, match, spill_line)) {
      ++num_frames;
      for (std::size_t i = 1; i <= 3; ++i)
        if (number(i) != 0) faults.push_back(line);
    } else if (std::regex_search(line, match, use_line)) {
      ++num_uses;
      if (kernel != nullptr && number(1) > kernel->max_registers)
        faults.push_back(std::string(kernel->entry) + " has " + std::to_string(kernel->max_registers) +
                         " registers: " + line);
      if (kernel != nullptr && std::regex_search(line, match, shared_part) &&
          number(1) > kernel->max_static_shared_bytes)
        faults.push_back(std::string(kernel->entry) + " has " +
                         std::to_string(kernel->max_static_shared_bytes) + " bytes: " + line);
    }
  }
  for (const auto& [entry, missing] : expected) faults.push_back("it does not name " + entry);
  if (num_uses != num_entries || num_frames < num_entries)
    faults.emplace_back("it does not say what every kernel uses: has ptxas another manner of speaking?");
  return faults;
}

std::string report_of(const std::string& module, int arch) {
  std::ifstream file(kFolder + "/" + module + ".sm_" + std::to_string(arch) + ".cubin.ptxas.txt");
  std::ostringstream text;
  text << file.rdbuf();
  return file ? text.str() : "";
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(PtxasReports, KernelsKeepToTheirBudgets) {
  if (kFolder.empty()) GTEST_SKIP() << "no nvcc when this was built";
  for (const KernelDescription& kernel : kKernels)
    for (const int arch : kCubinArchs) {
      SCOPED_TRACE(std::string(kernel.module) + ", sm_" + std::to_string(arch));
      const std::string report = report_of(kernel.module, arch);
      ASSERT_FALSE(report.empty());
      EXPECT_EQ(joined(faults_in(report, kernel.module, arch)), "") << report;
    }
}

// As ptxas 13.0 writes.
const std::string kGoodReport =
    "ptxas info    : 28 bytes gmem\n"
    "ptxas info    : Compiling entry function 'wp_compare' for 'sm_90'\n"
    "ptxas info    : Function properties for wp_compare\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 54 registers, used 1 barriers, 152 bytes smem\n"
    "ptxas info    : Compile time = 224.077 ms\n";

TEST(PtxasReports, FaultsAreSeen) {
  EXPECT_EQ(joined(faults_in(kGoodReport, "compare", 90)), "");
  EXPECT_NE(joined(faults_in(kGoodReport, "compare", 80)), "");
  EXPECT_NE(joined(faults_in("", "compare", 90)), "");
  const std::pair<const char*, const char*> changes[] = {{"'wp_compare'", "'wp_compares'"},
                                                         {"'sm_90'", "'sm_89'"},
                                                         {"0 bytes stack", "8 bytes stack"},
                                                         {"0 bytes spill stores", "4 bytes spill stores"},
                                                         {"0 bytes spill loads", "4 bytes spill loads"},
                                                         {"54 registers", "65 registers"},
                                                         {"152 bytes smem", "257 bytes smem"},
                                                         {"Used 54 registers", "Uses a few registers"},
                                                         {"bytes stack frame", "bytes of stack"},
                                                         {"Compile time", "warning : Compile time"}};
  for (const auto& [from, to] : changes) {
    std::string report = kGoodReport;
    const std::size_t at = report.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    report.replace(at, std::string(from).size(), to);
    EXPECT_NE(joined(faults_in(report, "compare", 90)), "") << to;
  }
  const std::string twice = kGoodReport + kGoodReport;
  EXPECT_NE(joined(faults_in(twice, "compare", 90)), "") << "an entry twice";
}

}  // namespace
}  // namespace weightpress::device
