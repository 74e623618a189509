#include "model/json_writer.h"

#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <utility>

#include "model/text.h"

namespace weightpress::model {

void JsonWriter::separate() {
  if (std::exchange(after_key_, false) || open_.empty()) return;
  Open& open = open_.back();
  if (!open.empty) out_ += open.one_line ? ", " : ",";
  open.empty = false;
  if (!open.one_line) out_.append("\n").append(open_.size(), ' ');
}

void JsonWriter::append_text(std::string_view text) {
  if (encoding_ == Encoding::kAscii) {
    append_json_ascii(out_, text);
  } else {
    append_json_utf8(out_, replaced_non_utf8(text));
  }
}

JsonWriter& JsonWriter::begin(char bracket, Style style) {
  separate();
  out_ += bracket;
  open_.push_back({style == Style::kOneLine || (!open_.empty() && open_.back().one_line)});
  return *this;
}

JsonWriter& JsonWriter::end(char bracket) {
  assert(!open_.empty() && !after_key_);
  const Open open = open_.back();
  open_.pop_back();
  if (!open.one_line && !open.empty) out_.append("\n").append(open_.size(), ' ');
  out_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_text(name);
  out_ += ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  append_text(text);
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.begin(), text.end(), std::isfinite(number) ? number : 0.0).ptr;
  return raw({text.data(), static_cast<std::size_t>(end - text.data())});
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

std::string JsonWriter::take() && {
  assert(open_.empty());
  out_ += '\n';
  return std::move(out_);
}

}  // namespace weightpress::model
