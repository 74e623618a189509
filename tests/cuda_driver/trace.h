// The virtual time line as a file: a JSON object a line, in the order of the calls.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "operation.h"
#include "settings.h"

namespace weightpress::cuda_driver {

class Trace {
 public:
  /// Starts the file anew, with a line of settings. Without a path nothing is written.
  void open(const Settings& settings);
  bool is_open() const { return file_ != nullptr; }
  void close() { file_.reset(); }

  /// An operation whose times are known. `state`: done, cancelled (its context died) or abandoned (the
  /// process ended, and it touches memory that may be gone).
  void write(const Operation& operation, const char* state);
  /// Something else that happened: "event" and what.
  void note(const std::string& what, std::uint32_t device, const std::string& message);
  /// How often each planned failure could have happened.
  void totals(std::uint64_t calls, std::uint64_t allocations, std::uint64_t launches);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void line(const std::string& text);

  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace weightpress::cuda_driver
