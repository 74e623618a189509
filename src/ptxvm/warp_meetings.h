// What a warp operation gives to each of the lanes that have met.
#pragma once

#include <array>
#include <cstdint>

#include "ptxvm/meetings.h"
#include "ptxvm/micro_ops.h"

namespace weightpress::ptxvm {

/// A lane's operands on entry, its results on return.
struct WarpValue {
  std::uint64_t a = 0, b = 0, c = 0;
  std::uint64_t d = 0, d2 = 0;
};

/// lanes: those that have met, not 0; the others' values are not looked at. What shfl reads of a lane that is
/// not there is not defined: it gets a conspicuous number.
void do_warp_meeting(MeetingKind kind, std::uint32_t lanes, std::array<WarpValue, 32>& values);

}  // namespace weightpress::ptxvm
