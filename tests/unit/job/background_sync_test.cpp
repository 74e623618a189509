// Files that are synced beside the work: every failure arrives, and nothing waits for ever.
//
// Whether bytes are on the disk cannot be seen from here; that they were synced shows in a descriptor that is
// closed meanwhile: its sync fails. Each test runs under a watchdog.
#include "job/background_sync.h"

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <weightpress/error.h>

#include "model/model_test_support.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using FilePointer = std::shared_ptr<model::File>;

struct BackgroundSyncTest : ::testing::Test {
  FilePointer make_file(const std::string& name) const {
    auto file = std::make_shared<model::File>(model::File::create(folder / name));
    file->write_at("data", 4, 0);
    return file;
  }
  FilePointer make_closed_file(const std::string& name) const {
    FilePointer file = make_file(name);
    file->close();
    return file;
  }

  /// Ends the program if the call takes longer than a minute: what hangs could not be taken down.
  template <class Call>
  static void within_a_minute(Call call) {
    std::promise<void> done;
    std::thread watchdog([future = done.get_future()] {
      if (future.wait_for(60s) == std::future_status::ready) return;
      std::fputs("BackgroundSync hangs\n", stderr);
      std::abort();
    });
    try {
      call();
    } catch (...) {
      ADD_FAILURE() << "an exception";
    }
    done.set_value();
    watchdog.join();
  }

  static ErrorCode code_of(const std::function<void()>& call) { return model::error_of(call).code; }

  model::TempFolder folder;
  Journal journal = Journal::create(folder / "journal", "{\"weightpress_journal\":1}");
};

TEST_F(BackgroundSyncTest, FinishSyncsWhatWaitsAndLetsItGo) {
  within_a_minute([&] {
    std::weak_ptr<model::File> seen;
    BackgroundSync sync(journal, folder.path());
    {
      const FilePointer file = make_file("a");
      seen = file;
      sync.add(file);
      sync.add(file);  // written to again
    }
    EXPECT_FALSE(seen.expired());  // open until it is synced
    const auto begin = Clock::now();
    sync.finish();
    EXPECT_LT(Clock::now() - begin, 10s);
    EXPECT_TRUE(seen.expired());
  });
}

TEST_F(BackgroundSyncTest, WithoutFilesFinishEndsAtOnce) {
  within_a_minute([&] {
    BackgroundSync sync(journal, folder.path());
    sync.finish();
    BackgroundSync waiting(journal, folder.path());
    std::this_thread::sleep_for(1200ms);  // a round was due, and there was nothing to do
    const auto begin = Clock::now();
    waiting.finish();
    EXPECT_LT(Clock::now() - begin, 500ms);
  });
}

TEST_F(BackgroundSyncTest, RoundsComeByThemselves) {
  within_a_minute([&] {
    BackgroundSync sync(journal, folder.path());
    for (int round = 0; round < 2; ++round) {
      FilePointer file = make_file("a" + std::to_string(round));
      const std::weak_ptr<model::File> seen = file;
      sync.add(file);
      file.reset();
      while (!seen.expired()) std::this_thread::sleep_for(5ms);  // the watchdog ends this
    }
    sync.finish();
  });
}

TEST_F(BackgroundSyncTest, FailuresOfTheLastRoundArriveInFinish) {
  within_a_minute([&] {
    BackgroundSync sync(journal, folder.path());
    sync.add(make_file("a"));
    sync.add(make_closed_file("b"));
    EXPECT_EQ(code_of([&] { sync.finish(); }), ErrorCode::kIo);
  });
}

TEST_F(BackgroundSyncTest, FailuresInTheBackgroundArriveInAddAndInFinish) {
  within_a_minute([&] {
    BackgroundSync sync(journal, folder.path());
    sync.add(make_closed_file("closed"));
    ErrorDetails failure;
    for (int i = 0; failure.message.empty(); ++i) {
      try {
        sync.add(make_file("a" + std::to_string(i)));
        std::this_thread::sleep_for(5ms);
      } catch (const Error& error) {
        failure = error.details();
      }
    }
    EXPECT_EQ(failure.code, ErrorCode::kIo);
    EXPECT_NE(failure.message.find("closed"), std::string::npos) << failure.message;
    // For good: what was not synced may not count.
    EXPECT_EQ(code_of([&] { sync.add(make_file("later")); }), ErrorCode::kIo);
    EXPECT_EQ(code_of([&] { sync.finish(); }), ErrorCode::kIo);
    EXPECT_EQ(code_of([&] { sync.finish(); }), ErrorCode::kIo);
  });
}

TEST_F(BackgroundSyncTest, AFailureInTheBackgroundArrivesInFinishAlone) {
  within_a_minute([&] {
    BackgroundSync sync(journal, folder.path());
    sync.add(make_closed_file("closed"));
    std::this_thread::sleep_for(1500ms);
    EXPECT_EQ(code_of([&] { sync.finish(); }), ErrorCode::kIo);
  });
}

TEST_F(BackgroundSyncTest, ManyFilesDoNotLockUp) {
  within_a_minute([&] {
    std::vector<std::weak_ptr<model::File>> seen;
    {
      BackgroundSync sync(journal, folder.path());
      // Few enough descriptors at once for the usual limit of 1,024.
      for (int i = 0; i < 1'500; ++i) {
        FilePointer file = make_file("a" + std::to_string(i));
        seen.push_back(file);
        sync.add(std::move(file));
        journal.append("{\"kept\":\"" + std::to_string(i) + "\"}");
      }
      sync.finish();
    }
    for (const auto& file : seen) EXPECT_TRUE(file.expired());
  });
}

TEST_F(BackgroundSyncTest, AFailureFreesTheOneWhoWaitsToAdd) {
  within_a_minute([&] {
    BackgroundSync sync(journal, folder.path());
    std::vector<FilePointer> files;
    EXPECT_EQ(code_of([&] {
                for (int i = 0; i < 2'000; ++i)
                  sync.add(i == 100 ? make_closed_file("closed") : make_file("a" + std::to_string(i)));
              }),
              ErrorCode::kIo);
  });
}

TEST_F(BackgroundSyncTest, EndsAtOnceWithoutFinish) {
  within_a_minute([&] {
    const auto begin = Clock::now();
    for (int i = 0; i < 20; ++i) {
      const FilePointer closed = make_closed_file("a" + std::to_string(i));
      BackgroundSync sync(journal, folder.path());
      if (i % 2 == 0) sync.add(closed);
      if (i % 4 == 0) sync.add(make_file("b" + std::to_string(i)));
    }
    // Twenty rounds would be twenty seconds.
    EXPECT_LT(Clock::now() - begin, 5s);
  });
}

TEST_F(BackgroundSyncTest, AFolderThatIsGoneIsAFailure) {
  within_a_minute([&] {
    BackgroundSync sync(journal, folder / "none");
    sync.add(make_file("a"));
    EXPECT_EQ(code_of([&] { sync.finish(); }), ErrorCode::kNotFound);
  });
}

}  // namespace
}  // namespace weightpress::job
