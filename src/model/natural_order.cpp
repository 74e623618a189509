#include "model/natural_order.h"

#include <cstddef>

namespace weightpress::model {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0, j = 0;
  const auto digits_from = [](std::string_view text, std::size_t& position) {
    while (position + 1 < text.size() && text[position] == '0' && is_digit(text[position + 1])) ++position;
    const std::size_t begin = position;
    while (position < text.size() && is_digit(text[position])) ++position;
    return text.substr(begin, position - begin);
  };
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = digits_from(a, i), y = digits_from(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else if (a[i] != b[j]) {
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
    } else {
      ++i, ++j;
    }
  }
  if (i < a.size() || j < b.size()) return i == a.size();
  return a < b;  // equal but for leading zeros
}

}  // namespace weightpress::model
