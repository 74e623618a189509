// PTX text to a Module.
#pragma once

#include <string>

#include "format/result.h"
#include "ptxvm/ptx_module.h"

namespace weightpress::ptxvm {

/// Bytes of text that are read at most; and registers, variables, instructions or operands of a module.
constexpr std::uint64_t kMaxPtxBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxPtxItems = std::uint64_t{1} << 22;

/// Errors are kCorruptFile; the message begins with "line N: " and holds the text in question. Any bytes may
/// be given: it ends, takes memory in proportion to them (kMaxPtxItems bounds "%r<4000000000>"), and does not
/// recurse with them.
Result<Module> parse_ptx(std::string text);

}  // namespace weightpress::ptxvm
