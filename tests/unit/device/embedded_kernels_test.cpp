// The table of embedded images: complete, each a file for the GPUs that it says it is for, with the kernels
// of kernel_policy.h and their parameters in it.
#include "device/embedded_kernels.h"

#include <cstdio>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "cubin_file.h"
#include "kernels/kernel_policy.h"
#include "ptxvm/launch.h"

namespace weightpress::device {
namespace {

using testing::CubinFile;

class EmbeddedKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (embedded_images().empty()) GTEST_SKIP() << why_no_kernels();
  }
};

std::string name_of(const EmbeddedImage& image) {
  return std::string(image.module) + (image.is_ptx() ? ".ptx" : " for sm_" + std::to_string(image.arch));
}

std::string text_of(const EmbeddedImage& image) {
  return {reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size()};
}

TEST(EmbeddedKernelsOrReason, ExactlyOneIsThere) {
  EXPECT_EQ(embedded_images().empty(), !why_no_kernels().empty());
  if (embedded_images().empty()) {
    EXPECT_TRUE(why_no_kernels().starts_with("left out of this build: ")) << why_no_kernels();
  }
}

TEST_F(EmbeddedKernels, EveryModuleHasOneImageAnArchitecture) {
  std::map<std::string, std::multiset<int>> archs, expected;
  for (const EmbeddedImage& image : embedded_images()) archs[std::string(image.module)].insert(image.arch);
  for (const KernelDescription& kernel : kKernels) {
    expected[kernel.module] = {kCubinArchs.begin(), kCubinArchs.end()};
    expected[kernel.module].insert(0);
  }
  EXPECT_EQ(archs, expected);
}

TEST_F(EmbeddedKernels, ImagesAreApartAndAligned) {
  const std::uint8_t* last_end = nullptr;
  std::set<const std::uint8_t*> begins;
  for (const EmbeddedImage& image : embedded_images()) {
    SCOPED_TRACE(name_of(image));
    ASSERT_FALSE(image.bytes.empty());
    const std::uint8_t* const end = image.bytes.data() + image.bytes.size();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(image.bytes.data()) % 64, 0u);
    EXPECT_EQ(*end, 0) << "drivers read PTX up to a 0 byte";
    EXPECT_TRUE(begins.insert(image.bytes.data()).second);
    EXPECT_TRUE(last_end == nullptr || last_end < image.bytes.data());
    last_end = end;
  }
}

TEST_F(EmbeddedKernels, CubinsAreForTheirArchitecture) {
  for (const EmbeddedImage& image : embedded_images()) {
    if (image.is_ptx()) continue;
    SCOPED_TRACE(name_of(image));
    const CubinFile cubin(image.bytes);
    ASSERT_TRUE(cubin.is_cubin());
    EXPECT_EQ(cubin.arch(), image.arch);
  }
}

TEST_F(EmbeddedKernels, CubinsDeclareTheParametersOfThePolicy) {
  for (const EmbeddedImage& image : embedded_images()) {
    if (image.is_ptx()) continue;
    const CubinFile cubin(image.bytes);
    for (const KernelDescription& kernel : kKernels) {
      if (kernel.module != image.module) continue;
      SCOPED_TRACE(name_of(image) + ", " + kernel.entry);
      ASSERT_FALSE(cubin.section(std::string(".text.") + kernel.entry).empty());
      const auto parameters = cubin.parameters(kernel.entry);
      EXPECT_EQ(parameters.bytes, kernel.parameter_bytes);
      ASSERT_EQ(parameters.places.size(), kernel.parameters.size());
      for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
        EXPECT_EQ(parameters.places[i].offset_bytes, kernel.parameters[i].offset_bytes) << i;
        EXPECT_EQ(parameters.places[i].size_bytes, kernel.parameters[i].size_bytes) << i;
      }
    }
  }
}

TEST_F(EmbeddedKernels, PtxIsForOldDrivers) {
  for (const EmbeddedImage& image : embedded_images()) {
    if (!image.is_ptx()) continue;
    SCOPED_TRACE(name_of(image));
    const std::string text = text_of(image);
    EXPECT_EQ(text.find('\0'), std::string::npos);
    EXPECT_NE(text.find("\n.target sm_" + std::to_string(kPtxArch) + "\n"), std::string::npos);
    const std::size_t at = text.find("\n.version ");
    ASSERT_NE(at, std::string::npos);
    int major = 0, minor = 0;
    ASSERT_EQ(std::sscanf(text.c_str() + at, " .version %d.%d", &major, &minor), 2);
    // 7.0: CUDA 11.0, of 2020.
    EXPECT_LE(10 * major + minor, 70)
        << "a kernel uses something new: is it worth the drivers that it costs?";
    EXPECT_GE(10 * major + minor, 63) << "no text for sm_75 can be older";
  }
}

TEST_F(EmbeddedKernels, PtxLoadsAndDeclaresWhatThePolicySays) {
  for (const EmbeddedImage& image : embedded_images()) {
    if (!image.is_ptx()) continue;
    SCOPED_TRACE(name_of(image));
    ptxvm::Memory memory;
    const auto module = ptxvm::LoadedModule::load(text_of(image), memory);
    ASSERT_TRUE(module.has_value()) << module.error().message;
    std::set<std::string> entries, expected;
    for (const std::string& name : (*module)->kernel_names()) entries.insert(name);
    for (const KernelDescription& kernel : kKernels) {
      if (kernel.module != image.module) continue;
      expected.insert(kernel.entry);
      SCOPED_TRACE(kernel.entry);
      const ptxvm::KernelInfo* const info = (*module)->find_kernel(kernel.entry);
      ASSERT_NE(info, nullptr);
      EXPECT_EQ(info->max_threads, kernel.num_threads);
      EXPECT_EQ(info->local_bytes, 0u);
      EXPECT_LE(info->static_shared_bytes, kernel.max_static_shared_bytes);
      EXPECT_EQ(info->parameter_bytes, kernel.parameter_bytes);
      ASSERT_EQ(info->parameters.size(), kernel.parameters.size());
      for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
        EXPECT_EQ(info->parameters[i].offset_bytes, kernel.parameters[i].offset_bytes) << i;
        EXPECT_EQ(info->parameters[i].size_bytes, kernel.parameters[i].size_bytes) << i;
      }
    }
    EXPECT_EQ(entries, expected);
  }
}

}  // namespace
}  // namespace weightpress::device
