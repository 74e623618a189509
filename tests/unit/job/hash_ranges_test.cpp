#include "job/hash_ranges.h"

#include <filesystem>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <weightpress/error.h>

#include "model/model_test_support.h"

namespace weightpress::job {
namespace {

constexpr std::uint64_t kPiece = 256 << 10;

std::string content(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>((i * i + i / 251) % 256);
  return text;
}

TEST(HashRanges, EachRangeHasItsOwnHashWithAnyNumberOfThreads) {
  const model::TempFolder folder;
  const std::string first = content(3 * kPiece + 5), second = content(70'000);
  const model::File a = model::File::open_readonly(folder.write("a", first));
  const model::File b = model::File::open_readonly(folder.write("b", second));
  const std::vector<FileRange> ranges = {{&a, 0, 0},          {&a, 0, first.size()},  {&b, 7, 1},
                                         {&a, 9, kPiece},     {&b, 0, second.size()}, {&a, 8, kPiece + 1},
                                         {&a, 1, kPiece - 1}, {&b, second.size(), 0}};
  for (const int threads : {1, 2, 5, 20}) {
    std::uint64_t told = 0, wanted = 0;
    const std::thread::id caller = std::this_thread::get_id();
    const auto digests = hash_ranges(ranges, threads, [&](std::uint64_t bytes) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      told += bytes;
    });
    ASSERT_EQ(digests.size(), ranges.size());
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const std::string_view whole = ranges[i].file == &a ? first : second;
      EXPECT_EQ(digests[i], model::sha256(whole.substr(ranges[i].offset_bytes, ranges[i].size_bytes)))
          << "range " << i << ", " << threads << " threads";
      wanted += ranges[i].size_bytes;
    }
    EXPECT_EQ(told, wanted);
  }
  EXPECT_TRUE(hash_ranges({}, 2).empty());
}

TEST(HashRanges, AFileThatEndsTooEarlyIsAnError) {
  const model::TempFolder folder;
  const model::File file = model::File::open_readonly(folder.write("a", content(1000)));
  std::vector<FileRange> ranges(50, {&file, 0, 1000});
  ranges[20].size_bytes = 1001;
  for (const int threads : {1, 3}) {
    const ErrorDetails error = model::error_of([&] { hash_ranges(ranges, threads); });
    EXPECT_EQ(error.code, ErrorCode::kSourceChanged);
  }
}

TEST(HashRanges, WhatTheCallbackThrowsArrives) {
  const model::TempFolder folder;
  const model::File file = model::File::open_readonly(folder.write("a", content(1000)));
  const std::vector<FileRange> ranges(50, {&file, 0, 1000});
  for (const int threads : {1, 3})
    EXPECT_THROW(hash_ranges(ranges, threads, [](std::uint64_t) { throw std::runtime_error("stop"); }),
                 std::runtime_error);
}

}  // namespace
}  // namespace weightpress::job
