// Equal jobs have equal fingerprints; of others it is said what is different, in a user's words.
#include "job/job_fingerprint.h"

#include <chrono>
#include <functional>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <stdlib.h>

#include "job/journal.h"
#include "model/architectures.h"
#include "model/model_test_support.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<model::TensorSpec> kSpecs = {{"blocks.0.weight", model::Dtype::kBf16, {8, 4}},
                                               {"blocks.1.weight", model::Dtype::kBf16, {8, 4}},
                                               {"norm", model::Dtype::kF32, {4}}};

constexpr std::string_view kDefinition =
    R"({"name":"mine","layout":"diffusers","family":"f","pattern_dict":{"blocks\\.\\d+":[]},"rules":{}})";

/// A small model and how it is to be compressed.
struct Job {
  Job() {
    fs::create_directory(source());
    put_source("model-1.safetensors", model::safetensors_file(kSpecs));
    put_source("model-2.safetensors", model::safetensors_file({{"other", model::Dtype::kBf16, {6}}}));
    options.source = source();
    options.output = folder / "out";
    options.arch = folder.write("mine.json", kDefinition);
  }

  fs::path source() const { return folder / "source"; }

  /// With the same time each time: only what a test changes may differ.
  void put_source(const std::string& name, std::string_view text) const {
    folder.write("source/" + name, text);
    fs::last_write_time(source() / name, fs::file_time_type(std::chrono::hours(24 * 365)));
  }

  std::string fingerprint() const { return fingerprint(options); }
  std::string fingerprint(const CompressOptions& with) const {
    const model::Checkpoint checkpoint = model::Checkpoint::open(with.source);
    const ModelPlan plan =
        plan_model(checkpoint, {.arch = with.arch, .layout = with.layout, .cast_to_bf16 = with.cast_to_bf16});
    return make_fingerprint(checkpoint, plan, with, config, generation_config);
  }

  model::TempFolder folder;
  CompressOptions options;
  std::optional<std::string> config, generation_config;
};

TEST(JobFingerprint, IsOneLineThatAJournalBeginsWith) {
  const Job job;
  const std::string line = job.fingerprint();
  EXPECT_TRUE(line.starts_with("{\"" + std::string(kJournalKey) + "\": 1,")) << line;
  EXPECT_TRUE(line.ends_with('}'));
  EXPECT_EQ(line.find('\n'), line.npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json.at("source").size(), 2u);
  EXPECT_EQ(json.at("source")[0].at("name"), "model-1.safetensors");
  Journal::create(job.folder / "journal", line);
  EXPECT_EQ(examine_journal(job.folder / "journal"), JournalState::kUsable);
  EXPECT_EQ(read_fingerprint(job.folder / "journal"), line);
}

TEST(JobFingerprint, IsTheSameForTheSameJob) {
  Job job;
  const std::string before = job.fingerprint();
  EXPECT_EQ(job.fingerprint(), before);
  EXPECT_EQ(what_changed(before, before), "");
  // What decides no byte.
  job.options.num_threads = 7;
  job.options.ram_bytes = 1 << 30;
  job.options.force = true;
  job.options.resume = false;
  job.options.output = job.folder / "elsewhere";
  EXPECT_EQ(job.fingerprint(), before);
  // Other files beside the source, and the weights' bytes: the time of modification stands for them.
  job.put_source("README.md", "text");
  std::string other = model::safetensors_file(kSpecs);
  other.back() = static_cast<char>(other.back() ^ 1);
  job.put_source("model-1.safetensors", other);
  EXPECT_EQ(job.fingerprint(), before);
  // Where the source lies.
  fs::rename(job.source(), job.folder / "moved");
  job.options.source = job.folder / "moved";
  EXPECT_EQ(job.fingerprint(), before);
  // Where the definition lies.
  fs::create_directory(job.folder / "d");
  job.options.arch = job.folder.write("d/mine.json", kDefinition);
  EXPECT_EQ(job.fingerprint(), before);
}

/// A change, and what is said of it in each direction.
struct Change {
  std::string what;
  std::function<void(Job&)> make;
  std::string forth, back;
};

const std::vector<Change> kChanges = {
    {"a file is longer",
     [](Job& job) {
       job.put_source("model-2.safetensors", model::safetensors_file({{"other", model::Dtype::kBf16, {8}}}));
     },
     "the source file 'model-2.safetensors' had 84 bytes and has 88 now",
     "the source file 'model-2.safetensors' had 88 bytes and has 84 now"},
    {"a file's header is another",
     [](Job& job) {
       job.put_source("model-2.safetensors", model::safetensors_file({{"outer", model::Dtype::kBf16, {6}}}));
     },
     "the source file 'model-2.safetensors' has another header (other tensors or metadata) now", ""},
    {"a file's time of modification is another",
     [](Job& job) {
       const fs::path file = job.source() / "model-1.safetensors";
       fs::last_write_time(file, fs::last_write_time(file) + std::chrono::microseconds(1));
     },
     "the source file 'model-1.safetensors' was modified since (its time of modification is another)", ""},
    {"a file more",
     [](Job& job) {
       job.put_source("model-3.safetensors", model::safetensors_file({{"more", model::Dtype::kBf16, {6}}}));
     },
     "the source file 'model-3.safetensors' was not there", "the source file 'model-3.safetensors' is gone"},
    {"a file has another name",
     [](Job& job) { fs::rename(job.source() / "model-2.safetensors", job.source() / "model-9.safetensors"); },
     "the source file 'model-9.safetensors' was not there",
     "the source file 'model-2.safetensors' was not there"},
    {"another layout", [](Job& job) { job.options.layout = "transformers"; },
     "the layout was diffusers and is transformers now", "the layout was transformers and is diffusers now"},
    {"the definition's file",
     [](Job& job) {
       std::string text(kDefinition);
       text.insert(text.size() - 1, " ");
       job.folder.write("mine.json", text);
     },
     "the file of the definition mine is another now", ""},
    {"another definition",
     [](Job& job) {
       std::string text(kDefinition);
       text.replace(text.find("mine"), 4, "yours");
       job.options.arch = job.folder.write("yours.json", text);
     },
     "the definition was mine and is yours now", "the definition was yours and is mine now"},
    {"safe tables", [](Job& job) { job.options.luts = LutFill::kSafe; },
     "--luts was \"compat\" and is \"safe\" now", "--luts was \"safe\" and is \"compat\" now"},
    {"strict identity", [](Job& job) { job.options.strict_identity = true; },
     "--strict-identity is given now and was not", "--strict-identity was given and is not now"},
    {"keep", [](Job& job) { job.options.keep_unencodable = true; },
     "--keep-unencodable is given now and was not", "--keep-unencodable was given and is not now"},
    {"cast", [](Job& job) { job.options.cast_to_bf16 = true; }, "--cast-to-bf16 is given now and was not",
     "--cast-to-bf16 was given and is not now"},
    {"with config", [](Job& job) { job.options.with_config = true; },
     "--with-config is given now and was not", "--with-config was given and is not now"},
    {"hashes", [](Job& job) { job.options.hashes = true; }, "--hashes is given now and was not",
     "--hashes was given and is not now"},
    {"fast", [](Job& job) { job.options.verify = false; }, "--fast is given now and was not",
     "--fast was given and is not now"},
    {"a config that is written", [](Job& job) { job.config = "{}"; }, "config.json is another now", ""},
    {"a config of the source", [](Job& job) { job.put_source("config.json", "{\"a\":1}"); },
     "config.json is another now", ""},
    {"a generation config", [](Job& job) { job.generation_config = ""; },
     "generation_config.json is another now", ""},
};

TEST(JobFingerprint, EachChangeIsNamed) {
  for (const Change& change : kChanges) {
    SCOPED_TRACE(change.what);
    Job job;
    const std::string before = job.fingerprint();
    change.make(job);
    const std::string after = job.fingerprint();
    EXPECT_NE(before, after);
    EXPECT_EQ(what_changed(before, after), change.forth);
    EXPECT_EQ(what_changed(after, before), change.back.empty() ? change.forth : change.back);
  }
}

TEST(JobFingerprint, TheSourceIsNamedBeforeWhatFollowsFromIt) {
  Job job;
  const std::string before = job.fingerprint();
  job.put_source("config.json", "{}");
  job.options.hashes = true;
  EXPECT_THAT(what_changed(before, job.fingerprint()), HasSubstr("--hashes"));
  job.put_source("model-3.safetensors", model::safetensors_file({{"more", model::Dtype::kBf16, {6}}}));
  EXPECT_THAT(what_changed(before, job.fingerprint()), HasSubstr("model-3.safetensors"));
}

TEST(JobFingerprint, AnotherVersionIsNamedFirst) {
  Job job;
  const std::string now = job.fingerprint();
  auto past = nlohmann::ordered_json::parse(now);
  const std::string version = past["version"];
  past["version"] = "0.0.1-before";
  past["source"] = nlohmann::ordered_json::array();
  const std::string words = what_changed(past.dump(), now);
  EXPECT_THAT(words, AllOf(HasSubstr("0.0.1-before"), HasSubstr(version), Not(HasSubstr("source"))));
  past = nlohmann::ordered_json::parse(now);
  past[std::string(kJournalKey)] = 2;
  EXPECT_NE(what_changed(past.dump(), now), "");
}

TEST(JobFingerprint, NothingOfAStrangeOneIsTrusted) {
  const Job job;
  const std::string now = job.fingerprint();
  for (const char* past : {"", "{", "{}", "[]", "null", "1", "\"x\"", "{\"weightpress_journal\":1}"})
    EXPECT_NE(what_changed(past, now), "") << past;
  // Each member gone or of another type, at any depth: a clause, and no exception.
  std::size_t changes = 0;
  const auto whole = nlohmann::ordered_json::parse(now);
  const auto flat = whole.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    for (std::string place = pointer; !place.empty(); place = place.substr(0, place.rfind('/'))) {
      const nlohmann::ordered_json::json_pointer at(place);
      for (const char* other : {"null", "true", "-1", "\"x\"", "[]", "[1]", "{}", "{\"a\":1}", "[{}]"}) {
        auto past = whole;
        past[at] = nlohmann::ordered_json::parse(other);
        if (past == whole) continue;
        ++changes;
        EXPECT_NE(what_changed(past.dump(), now), "") << place << " = " << other;
      }
      auto past = whole;
      auto& parent = past[at.parent_pointer()];
      if (parent.is_array()) {
        parent.erase(std::stoul(at.back()));
      } else {
        parent.erase(at.back());
      }
      EXPECT_NE(what_changed(past.dump(), now), "") << "without " << place;
    }
  }
  EXPECT_GT(changes, 200u);
}

TEST(JobFingerprint, ADefinitionOfTheUsersFolderCountsWithItsText) {
  // By name or detected: a file of WEIGHTPRESS_ARCH_DIR can change as one that is given can.
  for (const char* arch : {"mine", "auto"}) {
    SCOPED_TRACE(arch);
    Job job;
    fs::create_directory(job.folder / "definitions");
    std::string text(kDefinition);
    text.replace(text.find("\"pattern_dict\""), 0, R"("detection":[{"all":["blocks.0.weight","norm"]}],)");
    job.folder.write("definitions/mine.json", text);
    ASSERT_EQ(::setenv(model::kArchitecturesVariable, (job.folder / "definitions").c_str(), 1), 0);
    job.options.arch = arch;
    const std::string before = job.fingerprint();
    EXPECT_EQ(job.fingerprint(), before);
    text.replace(text.find("d+"), 2, "d*");  // matches the same modules
    job.folder.write("definitions/mine.json", text);
    const std::string after = job.fingerprint();
    ::unsetenv(model::kArchitecturesVariable);
    EXPECT_EQ(what_changed(before, after), "the file of the definition mine is another now");
  }
}

}  // namespace
}  // namespace weightpress::job
