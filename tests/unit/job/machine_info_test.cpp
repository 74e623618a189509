#include "job/machine_info.h"

#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace weightpress::job {
namespace {

TEST(MachineInfo, NamesTheProcessor) {
  EXPECT_EQ(cpu_name("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some CPU @ 2.00GHz \nstepping\t: 7\n\n"
                     "processor\t: 1\nmodel name\t: Another\n"),
            "Some CPU @ 2.00GHz");
  EXPECT_EQ(cpu_name("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\nCPU revision\t: 1\n"),
            "CPU part 0xd0c");
  EXPECT_EQ(cpu_name("CPU part\t: 0xd03\n\nHardware\t: A Board\n"), "A Board");
  for (const char* text :
       {"", "\n", "model name", "model name\t:\n", "model names\t: x\n", "vendor_id\t: y\n"})
    EXPECT_EQ(cpu_name(text), "unknown") << text;
}

TEST(MachineInfo, OfThisMachine) {
  const MachineInfo info = find_machine_info();
  EXPECT_NE(info.cpu, "");
  EXPECT_GE(info.logical_cores, 1u);
  EXPECT_LE(static_cast<long>(info.logical_cores), ::sysconf(_SC_NPROCESSORS_CONF));
  EXPECT_GT(info.memory_bytes, 0u);
  EXPECT_NE(info.kernel, "");
  EXPECT_EQ(info.kernel.find('\n'), std::string::npos);
  EXPECT_EQ(simd_level(), "portable");
}

}  // namespace
}  // namespace weightpress::job
