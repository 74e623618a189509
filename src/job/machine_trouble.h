// What a whole job says when memory or the file system fails it.
#pragma once

#include <filesystem>
#include <new>
#include <string>

#include <weightpress/error.h>

#include "model/text.h"

namespace weightpress::job {

/// Returns what run() returns. std::bad_alloc and filesystem_error become Errors that name `source`, the
/// input; `task` is what there was not enough memory for, e.g. "to compress it".
template <class Run>
auto telling_trouble(const std::filesystem::path& source, const std::string& task, Run run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kOutOfMemory, model::printable(source.native()) + ": there is not enough memory " +
                                             task + ": close other programs or use a machine with more");
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(ErrorCode::kIo, model::printable(error.path1().native()) + ": " + error.code().message());
  }
}

}  // namespace weightpress::job
