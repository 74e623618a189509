// Writes JSON as it goes, without a tree: records of models with a million tensors stay cheap.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weightpress::model {

/// Members and elements stand on lines of their own, indented by one space a level, except inside containers
/// that were opened as kOneLine. Bytes of texts that are not UTF-8 become U+FFFD.
class JsonWriter {
 public:
  enum class Style : std::uint8_t { kLines, kOneLine };
  enum class Encoding : std::uint8_t {
    kUtf8,
    kAscii  ///< for terminals: control and direction-changing characters never appear raw
  };

  explicit JsonWriter(Encoding encoding = Encoding::kUtf8) : encoding_(encoding) {}

  JsonWriter& begin_object(Style style = Style::kLines) { return begin('{', style); }
  JsonWriter& end_object() { return end('}'); }
  JsonWriter& begin_array(Style style = Style::kLines) { return begin('[', style); }
  JsonWriter& end_array() { return end(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool truth) { return raw(truth ? "true" : "false"); }
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  JsonWriter& value(T number) {
    return raw(std::to_string(number));
  }
  /// As many digits as bring the number back exactly.
  JsonWriter& value(double number);
  /// Text that is JSON already.
  JsonWriter& raw(std::string_view json);

  template <class T>
  JsonWriter& member(std::string_view name, const T& content) {
    key(name);
    return value(content);
  }

  /// The document, with a line break at its end.
  std::string take() &&;

 private:
  struct Open {
    bool one_line;
    bool empty = true;
  };

  JsonWriter& begin(char bracket, Style style);
  JsonWriter& end(char bracket);
  void separate();
  void append_text(std::string_view text);

  Encoding encoding_;
  std::string out_;
  std::vector<Open> open_;
  bool after_key_ = false;
};

}  // namespace weightpress::model
