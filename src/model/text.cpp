#include "model/text.h"

#include <cstdint>
#include <limits>

namespace weightpress::model {
namespace {

constexpr std::size_t kMaxPrintedBytes = 1000;
constexpr char kHexDigits[] = "0123456789abcdef";

struct CodePoint {
  char32_t value;
  std::size_t num_bytes;  // 0: the bytes are not UTF-8
};

CodePoint decode_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t num_bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < num_bytes) return {0, 0};
  char32_t value = lead & (0x7Fu >> num_bytes);
  for (std::size_t i = 1; i < num_bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0, 0};
    value = value << 6 | (byte(i) & 0x3Fu);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value < 0xE000;
  if (value < kSmallest[num_bytes] || value > 0x10FFFF || surrogate) return {0, 0};
  return {value, num_bytes};
}

bool disturbs_terminal(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

void append_hex_byte(std::string& out, char byte) {
  const auto value = static_cast<std::uint8_t>(byte);
  out += {'\\', 'x', kHexDigits[value >> 4], kHexDigits[value & 15]};
}

void append_u_escape(std::string& out, char32_t unit) {
  out += {'\\',
          'u',
          kHexDigits[unit >> 12 & 15],
          kHexDigits[unit >> 8 & 15],
          kHexDigits[unit >> 4 & 15],
          kHexDigits[unit & 15]};
}

// The letter of a two-character escape, 0 if `c` has none. Both writers use the same seven.
char short_escape(char c) {
  switch (c) {
    case '"':
      return '"';
    case '\\':
      return '\\';
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

void append_escaped(std::string& out, std::string_view text, std::size_t max_bytes) {
  while (!text.empty()) {
    if (out.size() > max_bytes) {
      out += "...";
      return;
    }
    const CodePoint point = decode_utf8(text);
    const std::size_t num_bytes = point.num_bytes == 0 ? 1 : point.num_bytes;
    if (point.num_bytes == 0 || disturbs_terminal(point.value)) {
      for (const char byte : text.substr(0, num_bytes)) append_hex_byte(out, byte);
    } else {
      out += text.substr(0, num_bytes);
    }
    text.remove_prefix(num_bytes);
  }
}

}  // namespace

std::string escaped_for_terminal(std::string_view text) {
  std::string out;
  append_escaped(out, text, std::numeric_limits<std::size_t>::max());
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  append_escaped(out, text, kMaxPrintedBytes);
  return out;
}

std::string in_quotes(std::string_view text) {
  return std::string("'").append(printable(text)).append("'");
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string text = "[";
  for (const std::uint64_t dimension : shape)
    text += (text.size() == 1 ? "" : ", ") + std::to_string(dimension);
  return text + "]";
}

std::string replaced_non_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    const std::size_t num_bytes = point.num_bytes == 0 ? 1 : point.num_bytes;
    out += point.num_bytes == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, num_bytes);
    text.remove_prefix(num_bytes);
  }
  return out;
}

void append_json_utf8(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (const char letter = short_escape(c)) {
      out += {'\\', letter};
    } else if (static_cast<std::uint8_t>(c) < 0x20) {
      append_u_escape(out, static_cast<std::uint8_t>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_json_ascii(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const auto [value, num_bytes] = decode_utf8(text);
    if (const char letter = short_escape(text[0])) {
      out += {'\\', letter};
    } else if (value >= 0x20 && value < 0x7F) {
      out += text[0];
    } else if (value >= 0x10000) {
      append_u_escape(out, 0xD800 + ((value - 0x10000) >> 10));
      append_u_escape(out, 0xDC00 + ((value - 0x10000) & 0x3FF));
    } else {
      append_u_escape(out, num_bytes == 0 ? 0xFFFD : value);
    }
    text.remove_prefix(num_bytes == 0 ? 1 : num_bytes);
  }
  out += '"';
}

}  // namespace weightpress::model
