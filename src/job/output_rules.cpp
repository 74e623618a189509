#include "job/output_rules.h"

#include <algorithm>
#include <array>
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

Error with_what_is_left(const Error& error, const fs::path& resolved, AfterTrouble after_trouble) {
  const fs::path partial = resolved.string() + ".partial";
  ErrorDetails details = error.details();
  if (fs::exists(fs::symlink_status(partial)) && !fs::is_empty(partial)) {
    details.message +=
        "; what was done so far is in " + name_of(partial) + ", which the next run " +
        (after_trouble == AfterTrouble::kResume ? "of the same command goes on with" : "removes");
  }
  return Error(std::move(details));
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

void write_or_discard(Output& output, const fs::path& resolved, AfterTrouble after_trouble,
                      const std::function<bool()>& has_written, const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    if (!is_trouble_of_the_machine(error.code()) || !has_written()) {
      output.discard();
      throw;
    }
    throw with_what_is_left(error, resolved, after_trouble);
  }
}

std::string finish_or_tell(Output& output, const fs::path& resolved, AfterTrouble after_trouble) {
  try {
    return output.finish();
  } catch (const Error& error) {
    if (!is_trouble_of_the_machine(error.code())) throw;
    throw with_what_is_left(error, resolved, after_trouble);
  }
}

}  // namespace weightpress::job
