// kernels/planted_bugs.cu: mistakes as people make them, compiled by nvcc. They are found under all checks in
// any order, and the kernels without them are clean.
#include <algorithm>
#include <fstream>
#include <span>
#include <sstream>

#include <gtest/gtest.h>

#include "hand_written_ptx.h"
#include "ptxvm/launch.h"

namespace weightpress::ptxvm {
namespace {

LaunchOptions checked(std::uint64_t seed, int num_threads) {
  LaunchOptions options;
  options.seed = seed;
  options.num_threads = num_threads;
  options.check_initialised = options.check_races = options.check_barriers = true;
  options.max_branches = 50'000;
  return options;
}

struct Mistake {
  const char* kernel;
  FaultKind kind;
  std::vector<std::string> opcodes;  ///< the line has one of them
};

#ifdef WP_PTXVM_PTX_FOLDER
const std::string kPtxFolder = WP_PTXVM_PTX_FOLDER;
#else
const std::string kPtxFolder;
#endif

std::string compiled_bugs() {
  std::ifstream file(kPtxFolder + "/planted_bugs.compute_75.ptx", std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// 3 blocks of 128 with 300 values from 0 to 6, and room for as many threads. scalar: the parameter between
/// in and out.
Result<LaunchReport> run_mistake(const LoadedModule& module, Memory& memory, const std::string& kernel,
                                 std::uint64_t scalar, std::uint64_t num_values,
                                 const LaunchOptions& options) {
  AllocationOptions named;
  named.name = "in";
  std::vector<std::uint32_t> values(num_values);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint32_t>(i * 5 % 7);
  const std::uint64_t in = memory.allocate(values.size() * 4, named), out = memory.allocate(384 * 4);
  EXPECT_TRUE(memory.write(in, {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * 4}));
  const std::uint64_t parameters[] = {in, scalar, out};
  LaunchConfig config;
  config.grid.x = 3;
  config.block.x = 128;
  auto report = launch(module, kernel, config, std::span<const std::uint64_t>(parameters), memory, options);
  EXPECT_TRUE(memory.free(in));
  EXPECT_TRUE(memory.free(out));
  return report;
}

TEST(CompiledBugs, AreFound) {
  if (kPtxFolder.empty()) GTEST_SKIP() << "no nvcc when this was built: there are no kernels to run";
  const std::string ptx = compiled_bugs();
  Memory memory;
  const auto module = LoadedModule::load(ptx, memory);
  ASSERT_TRUE(module.has_value()) << module.error().message;
  const Mistake mistakes[] = {
      {"storage_used_twice", FaultKind::kRace, {"ld.shared", "st.shared"}},
      {"last_warp_alone", FaultKind::kRace, {"ld.shared", "st.shared"}},
      {"neighbour_sum", FaultKind::kOutOfBounds, {"ld.global"}},
      {"early_return", FaultKind::kBarrier, {"bar.sync"}},
      {"shuffle_in_branch", FaultKind::kWarp, {"shfl.sync", "bar.sync"}},
      {"bins_not_cleared", FaultKind::kUninitialised, {"atom.shared.add"}},
      {"search", FaultKind::kEndless, {""}},  // any line of the loop
  };
  for (const Mistake& mistake : mistakes)
    for (const std::uint64_t seed : {0u, 1u, 2u, 3u})
      for (const int num_threads : {1, 3}) {
        SCOPED_TRACE(std::string(mistake.kernel) + ", order " + std::to_string(seed) + ", " +
                     std::to_string(num_threads) + " host threads");
        const bool reads_n = std::string_view(mistake.kernel) == "neighbour_sum";
        const auto run = [&](const char* ending) {
          return run_mistake(**module, memory, std::string(mistake.kernel) + ending, reads_n ? 300 : 50,
                             reads_n ? 300 : 384, checked(seed, num_threads));
        };
        const auto right = run("_right");
        ASSERT_TRUE(right.has_value()) << right.error().message;
        EXPECT_FALSE(right->fault.has_value()) << fault_name(right->fault->kind) << ", line "
                                               << right->fault->line << ": " << right->fault->message;
        const auto wrong = run("_wrong");
        ASSERT_TRUE(wrong.has_value()) << wrong.error().message;
        if (!wrong->fault.has_value()) {
          ADD_FAILURE() << "nothing is found";
          continue;
        }
        const Fault& fault = *wrong->fault;
        EXPECT_EQ(fault.kind, mistake.kind) << fault.message;
        const std::string_view line = testing::line_of(ptx, fault.line);
        EXPECT_TRUE(std::any_of(
            mistake.opcodes.begin(), mistake.opcodes.end(),
            [line](const std::string& opcode) { return line.find(opcode) != std::string_view::npos; }))
            << fault.line << ": " << line;
        if (reads_n) {
          EXPECT_EQ(fault.block.x * 128 + fault.thread.x, 299u);
        }
        if (mistake.kind == FaultKind::kEndless) {
          EXPECT_EQ(fault.block.x * 128 + fault.thread.x, 200u);
        }
      }
}

TEST(CompiledBugs, FailedAssertionsAreTraps) {
  if (kPtxFolder.empty()) GTEST_SKIP() << "no nvcc when this was built: there are no kernels to run";
  const std::string ptx = compiled_bugs();
  Memory memory;
  const auto module = LoadedModule::load(ptx, memory);
  ASSERT_TRUE(module.has_value()) << module.error().message;
  for (const std::uint64_t seed : {0u, 1u, 2u}) {
    const auto good = run_mistake(**module, memory, "assertion", 7, 384, checked(seed, 1));
    ASSERT_TRUE(good.has_value()) << good.error().message;
    EXPECT_FALSE(good->fault.has_value()) << good->fault->message;
    const auto bad = run_mistake(**module, memory, "assertion", 6, 384, checked(seed, 1));
    ASSERT_TRUE(bad.has_value()) << bad.error().message;
    ASSERT_TRUE(bad->fault.has_value());
    EXPECT_EQ(bad->fault->kind, FaultKind::kTrap);
    EXPECT_NE(bad->fault->message.find("in[place()] < static_cast<int>(limit)"), std::string::npos)
        << bad->fault->message;
    EXPECT_NE(bad->fault->message.find("planted_bugs.cu"), std::string::npos) << bad->fault->message;
    EXPECT_EQ((bad->fault->block.x * 128 + bad->fault->thread.x) * 5 % 7, 6u) << "whose value is 6";
  }
}

}  // namespace
}  // namespace weightpress::ptxvm
