#include "model/source_record.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <weightpress/error.h>

#include "model/json_depth.h"
#include "model/safetensors_header.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

using nlohmann::json;

constexpr unsigned kMaxDepth = 64;
constexpr std::size_t kMaxFileNameBytes = 255;
constexpr std::string_view kFileSuffix = ".safetensors";

// An object or list of the record that is read; all others are skipped.
enum class Place : std::uint8_t {
  kRoot,
  kOptions,
  kDefinition,
  kPatternDict,
  kAttributes,
  kFiles,
  kFile,
  kMetadata,
  kTensors,
  kTensor,
  kShape,
  kTiedUnits,
  kTiedUnit,
  kSkipped
};

enum class Kind : std::uint8_t { kText, kNumber, kFlag, kObject, kList, kNull, kOther };

struct Member {
  Place in;
  std::string_view key;
  Kind kind;
  Place place;  // of an object or a list
};

constexpr std::array kMembers = {
    Member{Place::kRoot, "weightpress", Kind::kText, {}},
    Member{Place::kRoot, "format", Kind::kText, {}},
    Member{Place::kRoot, "layout", Kind::kText, {}},
    Member{Place::kRoot, "options", Kind::kObject, Place::kOptions},
    Member{Place::kOptions, "hashes", Kind::kFlag, {}},
    Member{Place::kRoot, "definition", Kind::kObject, Place::kDefinition},
    Member{Place::kRoot, "source_files", Kind::kList, Place::kFiles},
    Member{Place::kRoot, "tied_units", Kind::kList, Place::kTiedUnits},
    Member{Place::kDefinition, "pattern_dict", Kind::kObject, Place::kPatternDict},
    Member{Place::kFile, "name", Kind::kText, {}},
    Member{Place::kFile, "metadata", Kind::kObject, Place::kMetadata},
    Member{Place::kFile, "tensors", Kind::kList, Place::kTensors},
    Member{Place::kTensor, "name", Kind::kText, {}},
    Member{Place::kTensor, "dtype", Kind::kText, {}},
    Member{Place::kTensor, "shape", Kind::kList, Place::kShape},
    Member{Place::kTensor, "unit", Kind::kText, {}},
    Member{Place::kTensor, "renamed", Kind::kText, {}},
    Member{Place::kTensor, "cast", Kind::kText, {}},
    Member{Place::kTensor, "tied_to", Kind::kText, {}},
    Member{Place::kTensor, "dropped", Kind::kText, {}},
    Member{Place::kTiedUnit, "unit", Kind::kText, {}},
    Member{Place::kTiedUnit, "made_from", Kind::kText, {}}};

// Elements of lists, and members of objects whose keys are names.
constexpr std::array kElements = {Member{Place::kFiles, "", Kind::kObject, Place::kFile},
                                  Member{Place::kTensors, "", Kind::kObject, Place::kTensor},
                                  Member{Place::kTiedUnits, "", Kind::kObject, Place::kTiedUnit},
                                  Member{Place::kPatternDict, "", Kind::kList, Place::kAttributes},
                                  Member{Place::kAttributes, "", Kind::kText, {}},
                                  Member{Place::kShape, "", Kind::kNumber, {}},
                                  Member{Place::kMetadata, "", Kind::kText, {}}};

const char* list_name(Place place) {
  switch (place) {
    case Place::kFiles:
      return "source_files";
    case Place::kTensors:
      return "tensors";
    case Place::kTiedUnits:
      return "tied_units";
    case Place::kPatternDict:
    case Place::kAttributes:
      return "pattern_dict";
    case Place::kShape:
      return "shape";
    default:
      return "metadata";
  }
}

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kCorruptFile, what);
}

// The members of an object that are texts, by key.
using Texts = std::map<std::string, std::string, std::less<>>;

// Builds the record event by event: no tree, and metadata keep their order. Throws Error without the file's
// name.
class RecordEvents final : public json::json_sax_t {
 public:
  SourceRecord record;

  bool null() override {
    if (in() == Place::kFile && key_ == "metadata") return true;
    return expect(Kind::kNull), true;
  }
  bool boolean(bool value) override {
    if (expect(Kind::kFlag) != nullptr) record.has_hashes = value;
    return true;
  }
  bool number_integer(json::number_integer_t) override { return expect(Kind::kOther), true; }
  bool number_float(json::number_float_t, const std::string&) override { return expect(Kind::kOther), true; }
  bool binary(json::binary_t&) override { return expect(Kind::kOther), true; }
  bool number_unsigned(json::number_unsigned_t value) override {
    if (expect(Kind::kNumber) == nullptr) return true;
    if (tensor().shape.size() == kMaxDimensions) fail(of_tensor() + "has more than 64 dimensions");
    tensor().shape.push_back(value);
    return true;
  }
  bool string(std::string& value) override {
    const Member* member = expect(Kind::kText);
    if (member == nullptr) return true;
    if (member->in == Place::kAttributes) {
      record.pattern_dict.back().attributes.push_back(std::move(value));
    } else if (member->in == Place::kMetadata) {
      std::string& metadata = record.files.back().metadata_json;
      metadata += metadata.size() > 1 ? "," : "";
      append_json_utf8(metadata, key_);
      metadata += ':';
      append_json_utf8(metadata, value);
    } else {
      texts_.back()[key_] = std::move(value);
    }
    return true;
  }
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }

  bool start_object(std::size_t) override {
    if (open_.empty()) return open(Place::kRoot);
    const Member* member = expect(Kind::kObject);
    if (member == nullptr) return open(Place::kSkipped);
    if (member->place == Place::kFile) record.files.emplace_back();
    if (member->place == Place::kTensor) begin_tensor();
    if (member->place == Place::kMetadata) record.files.back().metadata_json = "{";
    if (member->place == Place::kTiedUnit) record.tied_units.emplace_back();
    if (member->place == Place::kDefinition) has_definition_ = true;
    return open(member->place);
  }
  bool start_array(std::size_t) override {
    if (open_.empty()) fail("is not a JSON object");
    const Member* member = expect(Kind::kList);
    if (member == nullptr) return open(Place::kSkipped);
    if (member->place == Place::kAttributes) record.pattern_dict.push_back({key_, {}});
    if (member->place == Place::kFiles) has_files_ = true;
    if (member->place == Place::kTiedUnits) has_tied_units_ = true;
    if (member->place == Place::kTensors) has_tensors_ = true;
    if (member->place == Place::kShape) {
      has_shape_ = true;
      tensor().shape.clear();
    }
    return open(member->place);
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    fail("is not valid JSON (at byte " + std::to_string(position) + ")");
  }

 private:
  Place in() const { return open_.empty() ? Place::kSkipped : open_.back(); }
  RecordedTensor& tensor() { return record.files.back().tensors.back(); }

  // What is known about the value that comes; nullptr if it is skipped. A value of another kind is an error.
  const Member* expect(Kind kind) {
    if (open_.empty()) fail("is not a JSON object");
    const Member* found = nullptr;
    for (const Member& member : kMembers)
      if (member.in == in() && member.key == key_) found = &member;
    for (const Member& element : kElements)
      if (element.in == in()) found = &element;
    if (found == nullptr || found->kind == kind) return found;
    const std::string name =
        found->key.empty() ? "what is in " + std::string(list_name(found->in)) : std::string(found->key);
    fail(name + " must be " +
         (found->kind == Kind::kText     ? "a string"
          : found->kind == Kind::kNumber ? "a number of 0 or more"
          : found->kind == Kind::kFlag   ? "true or false"
          : found->kind == Kind::kList   ? "a list"
                                         : "an object"));
  }

  bool open(Place place) {
    open_.push_back(place);
    texts_.emplace_back();
    return true;
  }

  bool close() {
    const Place place = open_.back();
    const Texts texts = std::move(texts_.back());
    open_.pop_back();
    texts_.pop_back();
    switch (place) {
      case Place::kRoot:
        end_root(texts);
        break;
      case Place::kDefinition:
        if (record.pattern_dict.empty()) fail("pattern_dict is missing or empty");
        break;
      case Place::kFile:
        record.files.back().name = needed(texts, "name", "a file of source_files");
        if (!std::exchange(has_tensors_, false)) fail("a file of source_files has no tensors");
        break;
      case Place::kMetadata:
        record.files.back().metadata_json += '}';
        break;
      case Place::kTensor:
        end_tensor(texts);
        break;
      case Place::kTiedUnit:
        record.tied_units.back() = {needed(texts, "unit", "an element of tied_units"),
                                    needed(texts, "made_from", "an element of tied_units")};
        break;
      default:
        break;
    }
    return true;
  }

  static const std::string& needed(const Texts& texts, const char* key, const std::string& where) {
    const auto found = texts.find(key);
    if (found == texts.end()) fail(where + " has no " + key);
    return found->second;
  }

  void end_root(const Texts& texts) {
    needed(texts, "weightpress", "the record");
    if (const std::string& format = needed(texts, "format", "the record"); format != "df11")
      fail("is about the format " + in_quotes(format));
    record.layout = needed(texts, "layout", "the record");
    if (!has_definition_) fail("the record has no definition");
    if (!has_files_) fail("the record has no source_files");
    if (!has_tied_units_) fail("the record has no tied_units");
  }

  void begin_tensor() {
    record.files.back().tensors.emplace_back();
    has_shape_ = false;
  }

  // While its shape is read.
  std::string of_tensor() const {
    const Texts& texts = texts_[texts_.size() - 2];
    const auto name = texts.find("name");
    return name == texts.end() ? "a tensor " : "tensor " + in_quotes(name->second) + " ";
  }

  static Dtype dtype_of(const std::string& name, const std::string& where) {
    const auto dtype = parse_dtype(name);
    if (!dtype) fail(where + " has the type " + in_quotes(name) + ", which safetensors files do not know");
    return *dtype;
  }

  void end_tensor(const Texts& texts) {
    RecordedTensor& read = tensor();
    read.name = needed(texts, "name", "a tensor");
    const std::string where = "tensor " + in_quotes(read.name);
    if (!has_shape_) fail(where + " has no shape");
    read.dtype = read.stored_dtype = dtype_of(needed(texts, "dtype", where), where);
    const auto find = [&](const char* key) -> const std::string* {
      const auto found = texts.find(key);
      return found == texts.end() ? nullptr : &found->second;
    };
    if (const std::string* cast = find("cast")) read.stored_dtype = dtype_of(*cast, where);
    if (!checked_size_bytes(read.dtype, read.shape) || !checked_size_bytes(read.stored_dtype, read.shape))
      fail(where + " has a size that overflows or is not a whole number of bytes");
    const std::string* renamed = find("renamed");
    read.stored_name = renamed != nullptr ? *renamed : read.name;
    const std::string* unit = find("unit");
    const std::string* tied_to = find("tied_to");
    const std::string* dropped = find("dropped");
    if ((unit != nullptr) + (tied_to != nullptr) + (dropped != nullptr) > 1)
      fail(where + " is said to be two of: in a unit, tied, dropped");
    if (unit != nullptr) {
      read.fate = TensorFate::kInUnit;
      read.unit = *unit;
    } else if (tied_to != nullptr) {
      read.fate = TensorFate::kTied;
      read.tied_to = *tied_to;
    } else if (dropped != nullptr) {
      read.fate = TensorFate::kDropped;
      read.drop_reason = *dropped;
    }
  }

  std::vector<Place> open_;
  std::vector<Texts> texts_;  // of each that is open
  std::string key_;           // the last one
  bool has_definition_ = false, has_files_ = false, has_tied_units_ = false;
  bool has_tensors_ = false, has_shape_ = false;  // the last file, the last tensor
};

void check_file_names(const SourceRecord& record) {
  if (record.files.empty()) fail("source_files is empty");
  std::set<std::string_view> names;
  for (const RecordedFile& file : record.files) {
    const std::string& name = file.name;
    if (!name.ends_with(kFileSuffix) || name.size() > kMaxFileNameBytes ||
        name.find_first_of(std::string_view("/\0", 2)) != name.npos)
      fail("source file " + in_quotes(name) + ": is not the plain name of a .safetensors file");
    if (!names.insert(name).second) fail("lists the source file " + in_quotes(name) + " twice");
  }
}

void check_tensors(const SourceRecord& record) {
  std::map<std::string_view, const RecordedTensor*> by_name;
  std::map<std::string_view, const RecordedTensor*> by_stored_name;
  for (const RecordedFile& file : record.files) {
    for (const RecordedTensor& tensor : file.tensors) {
      if (!by_name.emplace(tensor.name, &tensor).second)
        fail("lists the tensor " + in_quotes(tensor.name) + " twice");
      if (tensor.fate != TensorFate::kKept && tensor.fate != TensorFate::kInUnit) continue;
      if (const auto [other, is_new] = by_stored_name.emplace(tensor.stored_name, &tensor); !is_new) {
        fail("tensors " + in_quotes(other->second->name) + " and " + in_quotes(tensor.name) +
             " would both be " + in_quotes(tensor.stored_name) + " in the output");
      }
    }
  }
  const auto find_stored = [&](const std::string& name) -> const RecordedTensor* {
    const auto found = by_name.find(name);
    if (found == by_name.end()) return nullptr;
    const TensorFate fate = found->second->fate;
    return fate == TensorFate::kKept || fate == TensorFate::kInUnit ? found->second : nullptr;
  };
  for (const auto& [name, tensor] : by_name) {
    if (tensor->fate != TensorFate::kTied) continue;
    const std::string says =
        "tensor " + in_quotes(name) + " is said to be tied to " + in_quotes(tensor->tied_to) + ", which ";
    const RecordedTensor* other = find_stored(tensor->tied_to);
    if (other == nullptr) fail(says + "is not a tensor that the output holds");
    if (other->shape != tensor->shape || other->stored_dtype != tensor->stored_dtype)
      fail(says + "has another shape or type");
  }
  for (const RecordedTiedUnit& tied : record.tied_units) {
    if (find_stored(tied.made_from) == nullptr) {
      fail("unit " + in_quotes(tied.unit) + " is said to be made from " + in_quotes(tied.made_from) +
           ", which is not a tensor that the output holds");
    }
  }
}

}  // namespace

Result<SourceRecord> parse_source_record(const std::string& text, const std::string& file_name) try {
  if (text.find('\0') != text.npos) fail("holds a NUL byte: it is not JSON");
  if (is_nested_deeper(text, kMaxDepth)) fail("is nested too deeply");
  RecordEvents events;
  json::sax_parse(text, &events);
  check_file_names(events.record);
  check_tensors(events.record);
  return std::move(events.record);
} catch (const Error& error) {
  return Unexpected(error.code(), printable(file_name) + ": " + error.what());
}

}  // namespace weightpress::model
