// The header's text for the JSON parser, byte by byte from pieces, so that it is never held as a whole.
//
// The parser has one weakness: it keeps all bytes since the last string or number began, and if it fails it
// copies them several times, control characters eightfold. So of each run of white space it sees the first
// character only, and what is between quotes and between strings is bounded. For that this class follows
// where strings begin and end; it may be wrong only where the text is no JSON, and there the parser stops.
//
// State: next_ to span_end_ may be given out as it is; span_end_ to piece_end_ is not yet looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "model/safetensors_header.h"

namespace weightpress::model {

inline bool is_json_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

class HeaderText {
 public:
  // The next piece, which must stay in place until the next call; empty at the end.
  using ReadPiece = std::function<std::string_view()>;

  explicit HeaderText(ReadPiece read_piece) : read_piece_(std::move(read_piece)) {}

  // What the parser wants: two iterators, of which the second only tells the end.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = char;

    explicit Iterator(HeaderText* text) : text_(text) {}
    char operator*() const { return *text_->next_; }
    Iterator& operator++() {
      ++text_->next_;
      return *this;
    }
    bool operator==(const Iterator&) const { return !text_->has_next(); }

   private:
    HeaderText* text_;
  };
  Iterator begin() { return Iterator(this); }
  Iterator end() { return Iterator(this); }

  // Why the text ended early, if it did; a clause. Goes before what the parser thinks of the end.
  std::optional<std::string> failure;

  // White space that was not given out, up to where the parser is.
  std::uint64_t skipped_bytes() const { return skipped_bytes_; }

 private:
  bool has_next() { return next_ != span_end_ || next_span(); }

  // Called with next_ at span_end_. Afterwards at least one byte may be given out, or this is the end.
  bool next_span() {
    if (failure) return false;
    do {
      if (next_ == piece_end_ && !next_piece()) return false;
      if (after_space_) skip_space();
    } while (next_ == piece_end_);
    after_space_ = false;
    // The parser would take it for the end of the text.
    if (*next_ == '\0') return fail("the header holds a NUL byte (at its byte " + place_of(next_) + ")");

    const char* c = next_;
    while (!failure && c != piece_end_ && *c != '\0' && !(after_space_ && is_json_space(*c)))
      c = in_text_ ? pass_text(c) : pass_between_texts(c);
    if (!failure) span_end_ = c;
    return !failure;
  }

  bool next_piece() {
    piece_offset_ += piece_.size();
    piece_ = read_piece_();
    next_ = span_end_ = piece_.data();
    piece_end_ = next_ + piece_.size();
    return !piece_.empty();
  }

  void skip_space() {
    const char* const begin = next_;
    while (next_ != piece_end_ && is_json_space(*next_)) ++next_;
    span_end_ = next_;
    skipped_bytes_ += static_cast<std::uint64_t>(next_ - begin);
  }

  // From inside a string to behind its closing quote, or to where next_span() has to look.
  const char* pass_text(const char* c) {
    const char* const begin = c;
    for (; c != piece_end_ && *c != '\0'; ++c) {
      if (after_backslash_) {
        after_backslash_ = false;
      } else if (*c == '\\') {
        after_backslash_ = true;
      } else if (*c == '"') {
        in_text_ = false;
        break;
      }
    }
    count_run("text", c - begin, kMaxTextBytes);
    if (in_text_) return c;
    run_bytes_ = 0;
    return c + 1;
  }

  // From outside a string to behind the next opening quote, or to where next_span() has to look.
  const char* pass_between_texts(const char* c) {
    const char* const begin = c;
    for (; c != piece_end_ && *c != '\0'; ++c) {
      if (*c == '"') {
        in_text_ = true;
        after_space_ = false;
        break;
      }
      const bool space = is_json_space(*c);
      if (space && after_space_) break;
      after_space_ = space;
    }
    count_run("list or number", c - begin, kMaxBytesBetweenTexts);
    if (!in_text_) return c;
    run_bytes_ = 0;
    return c + 1;
  }

  void count_run(const char* what, std::ptrdiff_t bytes, std::uint64_t most) {
    run_bytes_ += static_cast<std::uint64_t>(bytes);
    if (run_bytes_ > most) {
      fail(std::string("a ") + what + " in its header has more than " + std::to_string(most) +
           " bytes, as no model's does: it is damaged or not a model");
    }
  }

  std::string place_of(const char* c) const {
    return std::to_string(piece_offset_ + static_cast<std::uint64_t>(c - piece_.data()) + 1);
  }

  // next_ is span_end_ here: nothing more is given out.
  bool fail(const std::string& what) {
    failure = what;
    return false;
  }

  ReadPiece read_piece_;
  std::string_view piece_;
  std::uint64_t piece_offset_ = 0;  // in the header
  const char* next_ = nullptr;
  const char* span_end_ = nullptr;
  const char* piece_end_ = nullptr;
  std::uint64_t skipped_bytes_ = 0;
  std::uint64_t run_bytes_ = 0;   // given out since the last quote
  bool in_text_ = false;          // between quotes
  bool after_backslash_ = false;  // in a text
  bool after_space_ = false;      // outside
};

}  // namespace weightpress::model
