#include "ptxvm/warp_meetings.h"

#include <algorithm>
#include <bit>

namespace weightpress::ptxvm {
namespace {

constexpr std::uint64_t kNobodysValue = 0xABADCAFE;

template <class Visit>
void for_each_lane(std::uint32_t lanes, Visit visit) {
  for (; lanes != 0; lanes &= lanes - 1) visit(std::countr_zero(lanes));
}

void shuffle(MeetingKind kind, std::uint32_t lanes, std::array<WarpValue, 32>& values) {
  for_each_lane(lanes, [&](int lane) {
    WarpValue& own = values[lane];
    const int by = static_cast<int>(own.b & 31), clamp = static_cast<int>(own.c & 31),
              segment = static_cast<int>(own.c >> 8 & 31);
    const int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    int from = 0;
    bool is_in_range = false;
    switch (kind) {
      case MeetingKind::kShuffleUp:
        from = lane - by;
        is_in_range = from >= last;
        break;
      case MeetingKind::kShuffleDown:
        from = lane + by;
        is_in_range = from <= last;
        break;
      case MeetingKind::kShuffleButterfly:
        from = lane ^ by;
        is_in_range = from <= last;
        break;
      default:
        from = first | (by & ~segment);
        is_in_range = from <= last;
    }
    if (!is_in_range) from = lane;
    own.d = lanes >> from & 1 ? values[from].a : kNobodysValue;
    own.d2 = is_in_range ? 1 : 0;
  });
}

std::uint64_t reduce(MeetingKind kind, std::uint32_t x, std::uint32_t y) {
  const auto signed_x = static_cast<std::int32_t>(x), signed_y = static_cast<std::int32_t>(y);
  switch (kind) {
    case MeetingKind::kReduceAdd:
      return static_cast<std::uint32_t>(x + y);
    case MeetingKind::kReduceMinUnsigned:
      return std::min(x, y);
    case MeetingKind::kReduceMaxUnsigned:
      return std::max(x, y);
    case MeetingKind::kReduceMinSigned:
      return static_cast<std::uint32_t>(std::min(signed_x, signed_y));
    case MeetingKind::kReduceMaxSigned:
      return static_cast<std::uint32_t>(std::max(signed_x, signed_y));
    case MeetingKind::kReduceAnd:
      return x & y;
    case MeetingKind::kReduceOr:
      return x | y;
    default:
      return x ^ y;
  }
}

}  // namespace

void do_warp_meeting(MeetingKind kind, std::uint32_t lanes, std::array<WarpValue, 32>& values) {
  const int leader = std::countr_zero(lanes);
  std::uint32_t truths = 0, equal_to_leader = 0;
  for_each_lane(lanes, [&](int lane) {
    if (values[lane].a != 0) truths |= 1U << lane;
    if (values[lane].a == values[leader].a) equal_to_leader |= 1U << lane;
  });
  const auto give = [&](auto value_of, auto second_of) {
    for_each_lane(lanes, [&](int lane) {
      values[lane].d = value_of(lane);
      values[lane].d2 = second_of(lane);
    });
  };
  const auto give_all = [&](std::uint64_t value, bool second = false) {
    give([value](int) { return value; }, [second](int) { return second ? 1U : 0U; });
  };
  switch (kind) {
    case MeetingKind::kShuffleUp:
    case MeetingKind::kShuffleDown:
    case MeetingKind::kShuffleButterfly:
    case MeetingKind::kShuffleIndex:
      return shuffle(kind, lanes, values);
    case MeetingKind::kVoteAll:
      return give_all(truths == lanes);
    case MeetingKind::kVoteAny:
      return give_all(truths != 0);
    case MeetingKind::kVoteUniform:
      return give_all(truths == 0 || truths == lanes);
    case MeetingKind::kBallot:
      return give_all(truths);
    case MeetingKind::kMatchAny:
      return give(
          [&](int lane) {
            std::uint64_t same = 0;
            for_each_lane(lanes, [&](int other) {
              if (values[other].a == values[lane].a) same |= std::uint64_t{1} << other;
            });
            return same;
          },
          [](int) { return 0U; });
    case MeetingKind::kMatchAll:
      return give_all(equal_to_leader == lanes ? lanes : 0, equal_to_leader == lanes);
    case MeetingKind::kElect:
      return give([&](int) { return static_cast<std::uint64_t>(leader); },
                  [&](int lane) { return lane == leader ? 1U : 0U; });
    case MeetingKind::kActiveMask:
      return give_all(lanes);
    case MeetingKind::kWarpSync:
      return;
    default:
      break;
  }
  std::uint64_t sum = values[leader].a;
  for_each_lane(lanes & (lanes - 1), [&](int lane) {
    sum = reduce(kind, static_cast<std::uint32_t>(sum), static_cast<std::uint32_t>(values[lane].a));
  });
  give_all(sum);
}

}  // namespace weightpress::ptxvm
