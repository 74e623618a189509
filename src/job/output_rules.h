// What holds for the output of every job: no input is lost to it, and what went wrong leaves either nothing
// or a folder that the next run removes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "job/output.h"

namespace weightpress::job {

/// Throws kUsage if one of the inputs lies in what is written: the file itself, or the link that names it.
/// What is replaced is deleted. `output`: as the user named it, for the message; `written`: resolved, the
/// output first, whose OUT.partial counts too.
void check_inputs_stay(const std::filesystem::path& output, std::vector<std::filesystem::path> written,
                       const std::vector<std::filesystem::path>& inputs);

/// Throws kUsage if `resolved`, a file, lies in a folder that is the source.
void check_not_in_source(const std::filesystem::path& output, const std::filesystem::path& resolved,
                         const std::filesystem::path& source);

/// Throws kNoSpace if so many bytes are not free where the output is written.
void check_free_space(const std::filesystem::path& output, const Output& partial, std::uint64_t bytes);

/// What the next run does with what was written before trouble of the machine.
enum class AfterTrouble : std::uint8_t { kResume, kRemove };

/// Runs `write`. If it throws, the output is discarded; but what was written before trouble of the machine
/// (which may be gone when the same command is run again) is left, and the message says where. has_written:
/// whether there is anything worth it.
void write_or_discard(Output& output, AfterTrouble after_trouble, const std::function<bool()>& has_written,
                      const std::function<void()>& write);

/// What Output::finish() returns. Messages of trouble of the machine say what is left and what to do.
std::string finish_or_tell(Output& output, AfterTrouble after_trouble);

}  // namespace weightpress::job
