#include "job/output_rules.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include <weightpress/error.h>

#include "job/output_errors.h"

namespace weightpress::job {
namespace {

namespace fs = std::filesystem;

bool is_trouble_of_the_machine(ErrorCode code) {
  return code == ErrorCode::kIo || code == ErrorCode::kNoSpace || code == ErrorCode::kSourceChanged ||
         code == ErrorCode::kOutOfMemory;
}

Error with_what_is_left(const Error& error, Output& output, AfterTrouble after_trouble) {
  ErrorDetails details = error.details();
  // It is not if the output has its name by now.
  if (!output.partial().is_in_place()) return Error(std::move(details));
  details.message += "; what was done so far is in " + name_of(output.partial().path());
  if (after_trouble == AfterTrouble::kRemove) {
    details.message += ", which the next run removes";
  } else if (error.code() == ErrorCode::kSourceChanged) {
    details.message +=
        ": the same command goes on if the source is as it was, else start over with --no-resume";
  } else {
    details.message += ", which the next run of the same command goes on with";
  }
  return Error(std::move(details));
}

/// Runs it; what the system throws becomes an Error.
template <class Run>
auto with_errors(const Run& run) {
  try {
    return run();
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::kIo, name_of(error.path1()) + ": " + error.code().message());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kOutOfMemory, "there is not enough memory: close other programs");
  }
}

}  // namespace

void check_inputs_stay(const fs::path& output, std::vector<fs::path> written,
                       const std::vector<fs::path>& inputs) {
  written.emplace_back(written.front().string() + ".partial");
  for (const fs::path& input : inputs) {
    const fs::path above = input.has_parent_path() ? input.parent_path() : fs::path(".");
    const std::array<fs::path, 3> places = {fs::weakly_canonical(input), fs::weakly_canonical(above),
                                            fs::weakly_canonical(above) / input.filename()};
    for (const fs::path& target : written) {
      for (const fs::path& place : places) {
        if (std::mismatch(target.begin(), target.end(), place.begin(), place.end()).first == target.end()) {
          throw Error(ErrorCode::kUsage, "the output " + name_of(output) + " would replace the input " +
                                             name_of(input) + ": name another output");
        }
      }
    }
  }
}

void check_not_in_source(const fs::path& output, const fs::path& resolved, const fs::path& source) {
  if (!fs::is_directory(source) || fs::weakly_canonical(source) != resolved.parent_path()) return;
  throw Error(ErrorCode::kUsage, "the output " + name_of(output) +
                                     " lies in the source folder and would be a part of the model from then "
                                     "on: write it elsewhere");
}

void check_free_space(const fs::path& output, const Output& partial, std::uint64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(partial.file(".").parent_path(), error);
  if (error || space.available >= bytes) return;
  throw Error(ErrorCode::kNoSpace, "the output " + name_of(output) + " needs " + std::to_string(bytes) +
                                       " bytes, and only " + std::to_string(space.available) +
                                       " are free: make room or choose another disk");
}

void write_or_discard(Output& output, AfterTrouble after_trouble, const std::function<bool()>& has_written,
                      const std::function<void()>& write) {
  try {
    with_errors(write);
  } catch (const Error& error) {
    if (!is_trouble_of_the_machine(error.code()) || !has_written()) {
      output.discard();
      throw;
    }
    throw with_what_is_left(error, output, after_trouble);
  }
}

std::string finish_or_tell(Output& output, AfterTrouble after_trouble) {
  try {
    return with_errors([&] { return output.finish(); });
  } catch (const Error& error) {
    if (!is_trouble_of_the_machine(error.code())) throw;
    throw with_what_is_left(error, output, after_trouble);
  }
}

}  // namespace weightpress::job
