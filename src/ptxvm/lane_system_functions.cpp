#include <array>
#include <atomic>
#include <chrono>
#include <string>

#include "ptxvm/lane_access.h"
#include "ptxvm/lane_functions.h"

namespace weightpress::ptxvm {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr u32 kWarpSize = 32;

template <class F>
bool read(Machine& machine, u64* frame, const MicroOp& op) {
  frame[op.d] = F::of(machine);
  return true;
}

#define WP_PTX_SPECIAL(Name, expression) \
  struct Name {                          \
    static u64 of(const Machine& m) {    \
      static_cast<void>(m);              \
      return expression;                 \
    }                                    \
  };
WP_PTX_SPECIAL(TidX, m.thread_index.x)
WP_PTX_SPECIAL(TidY, m.thread_index.y)
WP_PTX_SPECIAL(TidZ, m.thread_index.z)
WP_PTX_SPECIAL(NtidX, m.block_size.x)
WP_PTX_SPECIAL(NtidY, m.block_size.y)
WP_PTX_SPECIAL(NtidZ, m.block_size.z)
WP_PTX_SPECIAL(CtaidX, m.block.x)
WP_PTX_SPECIAL(CtaidY, m.block.y)
WP_PTX_SPECIAL(CtaidZ, m.block.z)
WP_PTX_SPECIAL(NctaidX, m.grid.x)
WP_PTX_SPECIAL(NctaidY, m.grid.y)
WP_PTX_SPECIAL(NctaidZ, m.grid.z)
WP_PTX_SPECIAL(LaneId, m.thread % kWarpSize)
WP_PTX_SPECIAL(WarpId, m.thread / kWarpSize)
WP_PTX_SPECIAL(NumWarps, (m.block_size.count() + kWarpSize - 1) / kWarpSize)
WP_PTX_SPECIAL(MaskEq, u64{1} << m.thread % kWarpSize)
WP_PTX_SPECIAL(MaskLt, (u64{1} << m.thread % kWarpSize) - 1)
WP_PTX_SPECIAL(MaskLe, (u64{2} << m.thread % kWarpSize) - 1)
WP_PTX_SPECIAL(MaskGt, ~((u64{2} << m.thread % kWarpSize) - 1) & 0xFFFFFFFF)
WP_PTX_SPECIAL(MaskGe, ~((u64{1} << m.thread % kWarpSize) - 1) & 0xFFFFFFFF)
WP_PTX_SPECIAL(WarpSize, kWarpSize)
WP_PTX_SPECIAL(Zero, 0)
WP_PTX_SPECIAL(One, 1)
WP_PTX_SPECIAL(DynamicShared, m.dynamic_shared_bytes)
WP_PTX_SPECIAL(TotalShared, m.static_shared_bytes + m.dynamic_shared_bytes)
#undef WP_PTX_SPECIAL

/// Never the same twice, as on a GPU: every reading counts one.
u64 tick() {
  static std::atomic<u64> ticks{0};
  return ++ticks;
}
struct Clock {
  static u64 of(const Machine&) { return tick() & 0xFFFFFFFF; }
};
struct ClockHigh {
  static u64 of(const Machine&) { return tick() >> 32; }
};
struct Clock64 {
  static u64 of(const Machine&) { return tick(); }
};
u64 nanoseconds() {
  return static_cast<u64>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::steady_clock::now().time_since_epoch())
                              .count());
}
struct Timer {
  static u64 of(const Machine&) { return nanoseconds(); }
};
struct TimerLow {
  static u64 of(const Machine&) { return nanoseconds() & 0xFFFFFFFF; }
};
struct TimerHigh {
  static u64 of(const Machine&) { return nanoseconds() >> 32; }
};

struct Named {
  std::string_view name;
  SlotFunction function;
};
constexpr Named kSpecialRegisters[] = {
    {"%tid.x", read<TidX>},
    {"%tid.y", read<TidY>},
    {"%tid.z", read<TidZ>},
    {"%ntid.x", read<NtidX>},
    {"%ntid.y", read<NtidY>},
    {"%ntid.z", read<NtidZ>},
    {"%ctaid.x", read<CtaidX>},
    {"%ctaid.y", read<CtaidY>},
    {"%ctaid.z", read<CtaidZ>},
    {"%nctaid.x", read<NctaidX>},
    {"%nctaid.y", read<NctaidY>},
    {"%nctaid.z", read<NctaidZ>},
    {"%laneid", read<LaneId>},
    {"%warpid", read<WarpId>},
    {"%nwarpid", read<NumWarps>},
    {"%lanemask_eq", read<MaskEq>},
    {"%lanemask_lt", read<MaskLt>},
    {"%lanemask_le", read<MaskLe>},
    {"%lanemask_gt", read<MaskGt>},
    {"%lanemask_ge", read<MaskGe>},
    {"WARP_SZ", read<WarpSize>},
    {"%smid", read<Zero>},
    {"%nsmid", read<One>},
    {"%gridid", read<One>},
    {"%dynamic_smem_size", read<DynamicShared>},
    {"%total_smem_size", read<TotalShared>},
    {"%clock", read<Clock>},
    {"%clock_hi", read<ClockHigh>},
    {"%clock64", read<Clock64>},
    {"%globaltimer", read<Timer>},
    {"%globaltimer_lo", read<TimerLow>},
    {"%globaltimer_hi", read<TimerHigh>},
};

/// A text in the kernel's memory, or nothing.
std::string text_at(Machine& machine, u64 address) {
  constexpr std::size_t kMostBytes = 300;
  std::string text;
  while (text.size() < kMostBytes) {
    const std::uint8_t* const byte =
        locate(machine, Space::kGeneric, address + text.size(), 1, AccessType::kLoad, 0);
    if (byte == nullptr) {
      machine.fault.reset();
      return {};
    }
    if (*byte == 0) break;
    text += *byte < 32 || *byte > 126 ? '?' : static_cast<char>(*byte);
  }
  return text;
}

}  // namespace

SlotFunction special_register(std::string_view name) {
  for (const Named& entry : kSpecialRegisters)
    if (entry.name == name) return entry.function;
  return nullptr;
}

bool is_in_space(Machine& machine, u64* frame, const MicroOp& op) {
  const u64 number = frame[op.a] >> kAllocationShift;
  const auto space = static_cast<Space>(op.bits);
  bool is_in = false;
  switch (space) {
    case Space::kShared:
      is_in = number == kSharedWindow >> kAllocationShift;
      break;
    case Space::kLocal:
      is_in = number == kLocalWindow >> kAllocationShift;
      break;
    case Space::kParam:
      is_in = number == kParamWindow >> kAllocationShift;
      break;
    case Space::kConst:
      is_in = number >= kFirstAllocation && number - kFirstAllocation < machine.num_allocations &&
              !machine.details[number - kFirstAllocation]->is_writable;
      break;
    default:
      is_in = number >= kFirstAllocation;
  }
  frame[op.d] = is_in ? 1 : 0;
  return true;
}

bool trap(Machine& machine, u64*, const MicroOp&) {
  machine.fault = PendingFault{FaultKind::kTrap, "the kernel trapped"};
  return false;
}

bool fail_assertion(Machine& machine, u64*, const MicroOp& op) {
  const auto argument = [&](int number, u32 bytes) {
    const u64 offset = static_cast<u64>(op.imm) >> 16 * number & 0xFFFF;
    u64 value = 0;
    for (u32 i = 0; i < bytes && offset + i < machine.local_bytes; ++i)
      value |= u64{machine.local[offset + i]} << 8 * i;
    return value;
  };
  const std::string condition = text_at(machine, argument(0, 8)), file = text_at(machine, argument(1, 8)),
                    function = text_at(machine, argument(3, 8));
  machine.fault =
      PendingFault{FaultKind::kTrap, "the assertion '" + condition + "' failed (" + file + ", line " +
                                         std::to_string(argument(2, 4)) + ", in " + function + ")"};
  return false;
}

bool fence(Machine&, u64*, const MicroOp&) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return true;
}

}  // namespace weightpress::ptxvm
