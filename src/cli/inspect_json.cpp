#include "cli/inspect_json.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

#include "model/text.h"

namespace weightpress::cli {
namespace {

class JsonWriter {
 public:
  // Everything outside ASCII is escaped: a terminal shows no name raw, and paths need not be UTF-8.
  void string(std::string_view text) { model::append_json_ascii(separate(), text); }
  void number(std::uint64_t value) { separate() += std::to_string(value); }
  void number(double value) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.begin(), text.end(), value).ptr;
    separate().append(text.data(), end);
  }
  void boolean(bool value) { separate() += value ? "true" : "false"; }
  void null() { separate() += "null"; }

  JsonWriter& key(std::string_view name) {
    string(name);
    out_ += ':';
    needs_comma_ = false;
    return *this;
  }
  template <class Members>
  void object(Members members) {
    enclosed('{', '}', members);
  }
  template <class List, class Element>
  void list(const List& elements, Element write) {
    enclosed('[', ']', [&] {
      for (const auto& element : elements) write(element);
    });
  }

  std::string take() { return std::move(out_); }

 private:
  std::string& separate() {
    if (needs_comma_) out_ += ',';
    needs_comma_ = true;
    return out_;
  }
  template <class Content>
  void enclosed(char open, char close, Content content) {
    separate() += open;
    needs_comma_ = false;
    content();
    out_ += close;
    needs_comma_ = true;
  }

  std::string out_;
  bool needs_comma_ = false;
};

void write_files(JsonWriter& json, const InspectReport& report) {
  json.key("files").list(report.files, [&](const InspectedFile& file) {
    json.object([&] {
      json.key("name").string(file.name);
      json.key("bytes").number(file.size_bytes);
      json.key("tensors").number(file.num_tensors);
      json.key("metadata").boolean(file.has_metadata);
    });
  });
  json.key("file_bytes").number(report.file_bytes());
}

void write_dtypes(JsonWriter& json, const char* key, const InspectReport& report) {
  json.key(key).object([&] {
    for (const DtypeTotal& total : report.tensors) {
      json.key(total.dtype).object([&] {
        json.key("tensors").number(total.num_tensors);
        json.key("elements").number(total.num_elements);
        json.key("bytes").number(total.size_bytes);
      });
    }
  });
}

void write_unit(JsonWriter& json, const InspectedUnit& unit) {
  json.object([&] {
    json.key("name").string(unit.name);
    json.key("weights").number(unit.num_weights);
    json.key("tensors").number(unit.num_tensors);
    json.key("bytes").number(unit.size_bytes);
    json.key("bits_per_weight").number(unit.bits_per_weight());
    json.key("tables").number(unit.num_tables);
    json.key("shortest_code").number(std::uint64_t{unit.shortest_code_bits});
    json.key("longest_code").number(std::uint64_t{unit.longest_code_bits});
    json.key("exponents").number(std::uint64_t{unit.num_exponents});
  });
}

void write_record(JsonWriter& json, const InspectReport& report) {
  const InspectedRecord none;
  const InspectedRecord& record = report.record ? *report.record : none;
  json.key("record");
  if (report.record) {
    json.object([&] {
      json.key("file").string(record.file);
      json.key("weightpress").string(record.weightpress);
      json.key("definition").string(record.definition);
      json.key("format_version").string(record.format_version);
      json.key("patterns").number(record.num_patterns);
      json.key("layout").string(record.layout);
    });
  } else {
    json.null();
  }
  json.key("kept_units").list(record.kept_units, [&](const InspectedRecord::KeptUnit& kept) {
    json.object([&] {
      json.key("unit").string(kept.unit);
      json.key("reason").string(kept.reason);
    });
  });
  json.key("own_coding").list(record.own_coding, [&](const InspectedRecord::OwnCoding& own) {
    json.object([&] {
      json.key("unit").string(own.unit);
      json.key("reasons").list(own.reasons, [&](const std::string& reason) { json.string(reason); });
    });
  });
}

void write_df11(JsonWriter& json, const InspectReport& report) {
  const std::uint64_t weights = report.num_weights();
  json.key("units").list(report.units, [&](const InspectedUnit& unit) { write_unit(json, unit); });
  json.key("weights").number(weights);
  json.key("unit_bytes").number(report.unit_bytes());
  json.key("bits_per_weight")
      .number(8 * static_cast<double>(report.unit_bytes()) / static_cast<double>(weights));
  write_dtypes(json, "kept", report);
  json.key("kept_bytes").number(report.tensor_bytes());
  json.key("bf16_bytes").number(report.bf16_bytes());
  json.key("ratio").number(report.ratio());
  write_record(json, report);
  json.key("config");
  if (report.config) {
    json.object([&] {
      json.key("version").string(report.config->version);
      json.key("patterns").number(report.config->num_patterns);
    });
  } else {
    json.null();
  }
}

void write_source(JsonWriter& json, const InspectReport& report) {
  write_dtypes(json, "tensors", report);
  json.key("tensor_bytes").number(report.tensor_bytes());
  json.key("source");
  if (report.source) {
    json.object([&] {
      json.key("definition").string(report.source->definition);
      json.key("units").number(report.source->num_units);
      json.key("unit_weights").number(report.source->unit_weights);
    });
  } else {
    json.null();
  }
}

}  // namespace

std::string inspect_json(const InspectReport& report, const std::string& path) {
  JsonWriter json;
  json.object([&] {
    json.key("path").string(path);
    json.key("kind").string(report.is_df11() ? "df11" : "safetensors");
    write_files(json, report);
    report.is_df11() ? write_df11(json, report) : write_source(json, report);
    json.key("notes").list(report.notes, [&](const std::string& note) { json.string(note); });
  });
  return json.take() + "\n";
}

}  // namespace weightpress::cli
