#include "model/text.h"

#include <gtest/gtest.h>

namespace weightpress::model {
namespace {

using namespace std::string_view_literals;

TEST(Text, PrintableHidesWhatDisturbsATerminal) {
  EXPECT_EQ(printable("layers.0/weight \xC3\xA9 \xF0\x9F\x98\x80"),
            "layers.0/weight \xC3\xA9 \xF0\x9F\x98\x80");
  EXPECT_EQ(printable("a\x1B[31m\n\0\x7F"sv), "a\\x1b[31m\\x0a\\x00\\x7f");
  EXPECT_EQ(printable("\xC2\x9B"), "\\xc2\\x9b");                    // CSI in one character
  EXPECT_EQ(printable("\xE2\x80\xAE"), "\\xe2\\x80\\xae");           // right-to-left override
  EXPECT_EQ(printable("\xC3"), "\\xc3");                             // cut short
  EXPECT_EQ(printable("\xC0\xAF"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
  EXPECT_LT(printable(std::string(100'000, '\n')).size(), 1100u);
  EXPECT_EQ(in_quotes("a"), "'a'");
}

// As Python's json.dumps(chr(c)) prints them.
TEST(Text, AsciiJsonIsPythons) {
  std::string out;
  append_json_ascii(out, "\"\\/\b\f\n\r\t\x01\x7F\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80~"sv);
  EXPECT_EQ(out, R"("\"\\/\b\f\n\r\t\u0001\u007f\u00e9\u20ac\ud83d\ude00~")");
}

TEST(Text, Utf8JsonIsSerdes) {
  std::string out;
  append_json_utf8(out, "\"\\/\b\f\n\r\t\x01\x1F\0\x7F\xC3\xA9"sv);
  EXPECT_EQ(out, "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\\u0000\x7F\xC3\xA9\"");
}

}  // namespace
}  // namespace weightpress::model
