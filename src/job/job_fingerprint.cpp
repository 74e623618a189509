#include "job/job_fingerprint.h"

#include <algorithm>
#include <array>
#include <vector>

#include <nlohmann/json.hpp>

#include "job/block_hash.h"
#include "job/journal.h"
#include "model/architectures.h"
#include "model/json_writer.h"
#include "model/text.h"

namespace weightpress::job {
namespace {

using model::in_quotes;
using model::JsonWriter;
using nlohmann::json;

std::string header_hash(const model::File& file) {
  std::array<std::uint8_t, 8> prefix{};
  file.read_at(prefix.data(), prefix.size(), 0);
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < prefix.size(); ++i) header_bytes |= std::uint64_t{prefix[i]} << (8 * i);
  file.check_unchanged();  // since the checkpoint was opened and the length checked
  const std::uint64_t end = prefix.size() + header_bytes;
  BlockHash hash(end);
  std::vector<char> piece(std::min<std::uint64_t>(end, 64 * 1024));
  for (std::uint64_t done = 0; done < end;) {
    const std::uint64_t now = std::min<std::uint64_t>(piece.size(), end - done);
    file.read_at(piece.data(), now, done);
    hash.add(done, piece.data(), now);
    done += now;
  }
  return hex16(hash.digest());
}

void write_text_hash(JsonWriter& line, const char* key, const std::optional<std::string>& text) {
  line.member(key, text ? hex16(xxh3(*text)) : std::string());
}

/// The last member, the source's files.
std::string finish(JsonWriter line, const model::Checkpoint& checkpoint) {
  line.key("source").begin_array();
  for (const model::File& file : checkpoint.files()) {
    line.begin_object().member("name", file.path().filename().string()).member("bytes", file.size_bytes());
    line.member("modified_ns", file.modified_ns()).member("header_xxh3", header_hash(file)).end_object();
  }
  line.end_array().end_object();
  std::string result = std::move(line).take();
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

std::string files_changed(const json& past, const json& now) {
  const auto find = [](const json& files, const json& name) {
    return std::ranges::find_if(files, [&](const json& file) { return file.at("name") == name; });
  };
  for (const json& file : now) {
    const std::string name = in_quotes(file.at("name").get<std::string>());
    const auto before = find(past, file.at("name"));
    if (before == past.end()) return "the source file " + name + " was not there";
    if (before->at("bytes") != file.at("bytes")) {
      return "the source file " + name + " had " + std::to_string(before->at("bytes").get<std::uint64_t>()) +
             " bytes and has " + std::to_string(file.at("bytes").get<std::uint64_t>()) + " now";
    }
    if (before->at("header_xxh3") != file.at("header_xxh3"))
      return "the source file " + name + " has another header (other tensors or metadata) now";
    if (before->at("modified_ns") != file.at("modified_ns"))
      return "the source file " + name + " was modified since (its time of modification is another)";
  }
  for (const json& file : past) {
    if (find(now, file.at("name")) == now.end())
      return "the source file " + in_quotes(file.at("name").get<std::string>()) + " is gone";
  }
  return "the source files are others";
}

std::string option_changed(const json& past, const json& now) {
  for (const auto& [name, value] : now.items()) {
    const json before = past.value(name, json());
    if (before == value) continue;
    if (value.is_boolean())
      return "--" + name + (value.get<bool>() ? " is given now and was not" : " was given and is not now");
    return "--" + name + " was " + before.dump() + " and is " + value.dump() + " now";
  }
  return "other options were given";
}

}  // namespace

std::string make_fingerprint(const model::Checkpoint& checkpoint, const ModelPlan& plan,
                             const CompressOptions& options, const std::optional<std::string>& config,
                             const std::optional<std::string>& generation_config) {
  JsonWriter line;
  line.begin_object(JsonWriter::Style::kOneLine).member(kJournalKey, 1).member("version", WP_VERSION);
  line.member("layout", plan.definition.layout).key("definition").begin_object();
  line.member("name", plan.definition.name);
  // Those built in belong to the version; a user's folder has others, or replaces them.
  std::optional<std::string> text;
  if (model::names_definition_file(options.arch)) {
    text = model::read_definition_text(options.arch);
  } else if (const model::Architecture found = model::find_architecture(plan.definition.name);
             found.origin != model::kBuiltInOrigin) {
    text = found.text;
  }
  write_text_hash(line, "xxh3", text);
  line.end_object().key("options").begin_object();
  line.member("luts", options.luts == LutFill::kSafe ? "safe" : "compat");
  line.member("strict-identity", options.strict_identity);
  line.member("keep-unencodable", options.keep_unencodable);
  line.member("cast-to-bf16", options.cast_to_bf16).member("with-config", options.with_config);
  line.member("hashes", options.hashes).member("fast", !options.verify).end_object();
  // The source's own too: more follows from it than the file that is written.
  std::optional<std::string> source_config;
  if (plan.config) source_config = plan.config->text;
  write_text_hash(line, "source_config", source_config);
  write_text_hash(line, "config", config);
  write_text_hash(line, "generation_config", generation_config);
  return finish(std::move(line), checkpoint);
}

std::string make_tile_ans_fingerprint(const model::Checkpoint& checkpoint, const CompressOptions& options,
                                      const std::optional<std::string>& config,
                                      const std::optional<std::string>& generation_config) {
  const TileAnsOptions& given = options.tile_ans;
  JsonWriter line;
  line.begin_object(JsonWriter::Style::kOneLine).member(kJournalKey, 1).member("version", WP_VERSION);
  line.member("layout", "tile-ans").key("definition").begin_object().member("name", "").end_object();
  line.key("options").begin_object().member("tile-elements", given.tile_elements);
  line.member("probability-bits", given.probability_bits);
  line.member("raw-lane-threshold", given.raw_lane_threshold);
  const auto write_list = [&](const char* key, const std::vector<std::string>& texts) {
    line.key(key).begin_array();
    for (const std::string& text : texts) line.value(text);
    line.end_array();
  };
  write_list("include", given.include);
  write_list("exclude", given.exclude);
  write_list("dtype", given.dtypes);
  line.member("fast", !options.verify).end_object();
  write_text_hash(line, "config", config);
  write_text_hash(line, "generation_config", generation_config);
  return finish(std::move(line), checkpoint);
}

std::string what_changed(std::string_view past_line, std::string_view now_line) {
  if (past_line == now_line) return {};
  const json past = json::parse(past_line, nullptr, false), now = json::parse(now_line);
  try {
    const auto differs = [&](const char* key) { return past.at(key) != now.at(key); };
    if (differs(std::string(kJournalKey).c_str()) || differs("version")) {
      return "weightpress " + past.at("version").get<std::string>() + " began it, and this is " +
             now.at("version").get<std::string>();
    }
    if (differs("source")) return files_changed(past.at("source"), now.at("source"));
    if (differs("layout")) {
      return "the layout was " + past.at("layout").get<std::string>() + " and is " +
             now.at("layout").get<std::string>() + " now";
    }
    if (differs("definition")) {
      const json before = past.at("definition").at("name"), name = now.at("definition").at("name");
      if (before == name) return "the file of the definition " + name.get<std::string>() + " is another now";
      return "the definition was " + before.get<std::string>() + " and is " + name.get<std::string>() +
             " now";
    }
    if (differs("options")) return option_changed(past.at("options"), now.at("options"));
    if (differs("config") || past.value("source_config", "") != now.value("source_config", ""))
      return "config.json is another now";
    if (differs("generation_config")) return "generation_config.json is another now";
  } catch (const json::exception&) {
    return "its journal cannot be read";
  }
  return "something about the job is another";
}

}  // namespace weightpress::job
