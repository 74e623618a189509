// What is written must be JSON for another reader (nlohmann's) and hold what was put in.
#include "model/json_writer.h"

#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace weightpress::model {
namespace {

TEST(JsonWriter, WritesWhatWasPutIn) {
  JsonWriter writer;
  writer.begin_object().member("text", "a\"b\\\n\x01 \xC3\xA9").member("yes", true).member("minus", -7);
  writer.member("large", std::numeric_limits<std::uint64_t>::max()).member("half", 0.5);
  writer.key("empty").begin_array().end_array().key("none").begin_object().end_object();
  writer.key("list").begin_array().value(1).begin_object(JsonWriter::Style::kOneLine).member("k", "v");
  writer.key("inner").begin_array().value("x").value("y").end_array().end_object().raw("null").end_array();
  writer.end_object();
  const std::string text = std::move(writer).take();
  EXPECT_EQ(nlohmann::json::parse(text), nlohmann::json::parse(R"({"text": "a\"b\\\n\u0001 é", "yes": true,
      "minus": -7, "large": 18446744073709551615, "half": 0.5, "empty": [], "none": {},
      "list": [1, {"k": "v", "inner": ["x", "y"]}, null]})"));
  EXPECT_NE(text.find("\n  {\"k\": \"v\", \"inner\": [\"x\", \"y\"]},\n"), std::string::npos) << text;
}

TEST(JsonWriter, BytesThatAreNoTextAndNumbersThatAreNone) {
  JsonWriter writer;
  writer.begin_array().value("a\xFFz").value(std::numeric_limits<double>::infinity()).end_array();
  EXPECT_EQ(nlohmann::json::parse(std::move(writer).take()), nlohmann::json::parse(R"(["a\ufffdz", 0])"));
}

TEST(JsonWriter, AsciiForTerminals) {
  JsonWriter writer(JsonWriter::Encoding::kAscii);
  writer.begin_object(JsonWriter::Style::kOneLine).member("\xC3\xA9", "\xC2\x9B[31m\xFF").end_object();
  EXPECT_EQ(std::move(writer).take(), "{\"\\u00e9\": \"\\u009b[31m\\ufffd\"}\n");
}

TEST(JsonWriter, NumbersComeBackExactly) {
  for (const double number : {0.1, 1.0 / 3, 1e-300, 123456789.125}) {
    JsonWriter writer;
    writer.begin_array().value(number).end_array();
    EXPECT_EQ(nlohmann::json::parse(std::move(writer).take())[0].get<double>(), number);
  }
}

}  // namespace
}  // namespace weightpress::model
