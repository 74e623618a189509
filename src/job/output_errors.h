// Errors about the places that an output is written to.
#pragma once

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include <weightpress/error.h>

#include "model/text.h"

namespace weightpress::job {

inline std::string name_of(const std::filesystem::path& path) {
  return model::printable(path.native());
}

/// Throws kNoSpace or kIo with the system's reason.
[[noreturn]] inline void fail_output(const std::string& what, const std::filesystem::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw Error(full ? ErrorCode::kNoSpace : ErrorCode::kIo,
              what + " " + name_of(path) + ": " + std::generic_category().message(error));
}

/// Throws kOutputExists.
[[noreturn]] inline void refuse(const std::string& message) {
  throw Error(ErrorCode::kOutputExists, message);
}

}  // namespace weightpress::job
