#include "ptxvm/block_runner.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>

#include "ptxvm/warp_meetings.h"

namespace weightpress::ptxvm {
namespace {

// A lane that goes round a loop gives way to the others after so many turns: it may wait for one of them.
constexpr std::uint64_t kSliceBranches = 2048;
constexpr std::uint64_t kSlotsPerCacheLine = 8;
constexpr std::uint64_t kPageSlots = 512;
constexpr std::uint64_t kLocalAlign = 16;
// What memory holds that nothing has written.
constexpr int kUnwritten = 0xCD;

template <class Visit>
void for_each_lane(std::uint32_t lanes, Visit visit) {
  for (; lanes != 0; lanes &= lanes - 1) visit(static_cast<std::uint32_t>(std::countr_zero(lanes)));
}

}  // namespace

BlockRunner::BlockRunner(const LaunchState& launch, std::vector<std::uint64_t>& edges, AccessLog* log)
    : launch_(launch),
      ops_(launch.program->ops(launch.handlers)),
      num_threads_(static_cast<std::uint32_t>(launch.config.block.count())),
      num_warps_((num_threads_ + kWarpSize - 1) / kWarpSize),
      log_(log) {
  const Program& program = *launch.program;
  stride_ = (program.num_slots + kSlotsPerCacheLine - 1) / kSlotsPerCacheLine * kSlotsPerCacheLine;
  if (stride_ % kPageSlots == 0)
    stride_ += kSlotsPerCacheLine;  // or all frames would share few lines of the cache
  frames_.resize(stride_ * num_threads_ + kSlotsPerCacheLine);
  const auto begin = reinterpret_cast<std::uintptr_t>(frames_.data());
  frames_begin_ = frames_.data() + (64 - begin % 64) % 64 / 8;
  shared_.resize((launch.shared_bytes + 7) / 8 + 2);
  shared_begin_ = reinterpret_cast<std::uint8_t*>(shared_.data());
  local_stride_ = (program.layout.local_bytes + kLocalAlign - 1) / kLocalAlign * kLocalAlign;
  local_.resize(local_stride_ * num_threads_);
  lanes_.resize(num_threads_);
  exists_.assign(num_warps_, ~std::uint32_t{0});
  if (num_threads_ % kWarpSize != 0) exists_.back() = (std::uint32_t{1} << num_threads_ % kWarpSize) - 1;
  ended_.resize(num_warps_);
  barriers_.resize(kNumBarriers);
  warp_order_.resize(num_warps_);
  lane_order_.resize(kWarpSize);
  if (launch.options.check_initialised) shared_marks_.resize(launch.shared_bytes);
  if (launch.options.check_races) shadow_ = std::make_unique<SharedShadow>(launch.shared_bytes, num_threads_);

  machine_.allocations = launch.bounds.data();
  machine_.num_allocations = launch.bounds.size();
  machine_.details = launch.details.data();
  machine_.parameters = launch.parameters.data();
  machine_.parameter_bytes = launch.parameters.size();
  machine_.grid = launch.config.grid;
  machine_.block_size = launch.config.block;
  machine_.static_shared_bytes = program.layout.static_shared_bytes;
  machine_.dynamic_shared_bytes = launch.config.dynamic_shared_bytes;
  machine_.shared = shared_begin_;
  machine_.shared_bytes = launch.shared_bytes;
  machine_.shared_marks = shared_marks_.empty() ? nullptr : shared_marks_.data();
  machine_.shadow = shadow_.get();
  machine_.log = log;
  machine_.checks_initialised = launch.options.check_initialised;
  machine_.local_bytes = program.layout.local_bytes;
  machine_.first_op = ops_.data();
  machine_.edges = edges.data();
}

void BlockRunner::begin(std::uint64_t block_number) {
  block_number_ = block_number;
  const Dim3& grid = launch_.config.grid;
  machine_.block = {static_cast<std::uint32_t>(block_number % grid.x),
                    static_cast<std::uint32_t>(block_number / grid.x % grid.y),
                    static_cast<std::uint32_t>(block_number / grid.x / grid.y)};
  machine_.fault.reset();
  fault_.reset();
  std::memset(frames_begin_, 0, stride_ * num_threads_ * sizeof(std::uint64_t));
  for (const auto& [slot, value] : launch_.program->constants)
    for (std::uint32_t t = 0; t < num_threads_; ++t) frame(t)[slot] = value;
  std::memset(shared_begin_, kUnwritten, launch_.shared_bytes);
  std::ranges::fill(local_, static_cast<std::uint8_t>(kUnwritten));
  std::ranges::fill(shared_marks_, std::uint8_t{0});
  if (shadow_) shadow_->begin_block();
  for (Lane& lane : lanes_) lane = {ops_.data(), State::kReady, 0};
  std::ranges::fill(ended_, 0U);
  num_ended_ = 0;
  num_meetings_ = 0;
  for (Barrier& barrier : barriers_) barrier = {};
  std::iota(warp_order_.begin(), warp_order_.end(), 0U);
  std::iota(lane_order_.begin(), lane_order_.end(), 0U);
  random_.seed(launch_.options.seed * 0x9E3779B97F4A7C15 + block_number);
}

void BlockRunner::shuffle(std::vector<std::uint32_t>& order) {
  if (launch_.options.seed == 0) return;
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_() % i]);
}

BlockRunner::Progress BlockRunner::run_round(std::uint64_t progress) {
  bool has_met = false;
  if (progress != progress_)
    for (Lane& lane : lanes_) lane.branches = 0;
  progress_ = progress;
  shuffle(warp_order_);
  for (const std::uint32_t warp : warp_order_) {
    has_met |= run_warp(warp);
    if (fault_) return Progress::kFault;
  }
  has_met |= arrive_at_barriers();
  has_met |= complete_barriers();
  if (fault_) return Progress::kFault;
  if (num_ended_ == num_threads_) {
    if (log_ != nullptr) log_->end_block();
    return Progress::kDone;
  }
  bool spins = false;
  for (Lane& lane : lanes_) {
    if (lane.state != State::kGaveWay) continue;
    lane.state = State::kReady;
    spins = true;
  }
  if (has_met) return Progress::kSome;
  if (spins) return Progress::kNone;
  fail_waiting();
  return Progress::kFault;
}

/// Returns whether lanes have met or ended.
bool BlockRunner::run_warp(std::uint32_t warp) {
  bool has_met = false;
  const std::uint32_t ended_before = num_ended_;
  for (;;) {
    shuffle(lane_order_);
    for (const std::uint32_t lane : lane_order_) {
      const std::uint32_t thread = first_thread(warp) + lane;
      if (thread >= num_threads_ || lanes_[thread].state != State::kReady) continue;
      if (!run_lane(thread)) return true;
    }
    const bool met = meet_in_warp(warp) || (!fault_ && meet_active(warp));
    if (fault_) return true;
    if (!met) return has_met || num_ended_ != ended_before;
    has_met = true;
  }
}

bool BlockRunner::run_lane(std::uint32_t thread) {
  Lane& lane = lanes_[thread];
  machine_.thread = thread;
  machine_.thread_index = thread_index(thread);
  machine_.local = local_.data() + local_stride_ * thread;
  const std::uint64_t slice = std::min(kSliceBranches, launch_.options.max_branches);
  machine_.branches_left = slice;
  switch (ptxvm::run_lane(launch_.handlers, machine_, frame(thread), lane.pc)) {
    case Stop::kMeet:
      lane.state = State::kWaits;
      return true;
    case Stop::kExit:
      lane.state = State::kEnded;
      ++num_ended_;
      ended_[thread / kWarpSize] |= 1U << thread % kWarpSize;
      if (log_ != nullptr) log_->rendezvous(thread / kWarpSize, 1U << thread % kWarpSize);
      return true;
    case Stop::kSlice:
      lane.branches += slice;
      lane.state = State::kGaveWay;
      if (lane.branches < launch_.options.max_branches) return true;
      fail(FaultKind::kEndless, thread, *lane.pc,
           "the thread went " + std::to_string(lane.branches) + " times round loops without an end");
      return false;
    case Stop::kFault:
      fail(machine_.fault->kind, thread, *lane.pc, machine_.fault->what);
      return false;
  }
  return false;
}

void BlockRunner::release(std::uint32_t thread) {
  lanes_[thread].state = State::kReady;
  lanes_[thread].branches = 0;
}

// ---- warp operations

bool BlockRunner::meet_in_warp(std::uint32_t warp) {
  bool has_met = false;
  for (std::uint32_t lane = 0; lane < kWarpSize && first_thread(warp) + lane < num_threads_; ++lane) {
    if (lanes_[first_thread(warp) + lane].state != State::kWaits) continue;
    has_met |= try_meeting(warp, lane);
    if (fault_) return true;
  }
  return has_met;
}

/// Whether all lanes that this one waits for have come.
bool BlockRunner::try_meeting(std::uint32_t warp, std::uint32_t lane) {
  const std::uint32_t thread = first_thread(warp) + lane;
  const MicroOp& op = met(thread);
  const MeetingKind kind = kind_of(op);
  if (is_barrier(kind) || kind == MeetingKind::kActiveMask) return false;
  const auto named = static_cast<std::uint32_t>(frame(thread)[op.e]);
  if ((named >> lane & 1) == 0) {
    fail(FaultKind::kWarp, thread, op, "the member mask does not name the lane itself");
    return false;
  }
  const std::uint32_t members = named & exists_[warp] & ~ended_[warp];
  bool all_wait = true;
  for_each_lane(members, [&](std::uint32_t other) {
    const std::uint32_t other_thread = first_thread(warp) + other;
    if (lanes_[other_thread].state != State::kWaits) {
      all_wait = false;
      return;
    }
    const MicroOp& others = met(other_thread);
    // They may come to it at several places.
    const bool is_same = kind_of(others) == kind;
    all_wait = all_wait && is_same && static_cast<std::uint32_t>(frame(other_thread)[others.e]) == named;
  });
  if (!all_wait) return false;
  do_meeting(warp, members, kind);
  return true;
}

/// activemask: those that have come together, once nobody in the warp can go on otherwise.
bool BlockRunner::meet_active(std::uint32_t warp) {
  const MicroOp* op = nullptr;
  std::uint32_t lanes = 0;
  for_each_lane(exists_[warp] & ~ended_[warp], [&](std::uint32_t lane) {
    const std::uint32_t thread = first_thread(warp) + lane;
    if (lanes_[thread].state != State::kWaits || kind_of(met(thread)) != MeetingKind::kActiveMask) return;
    if (op == nullptr) op = &met(thread);
    if (op == &met(thread)) lanes |= 1U << lane;
  });
  if (op == nullptr) return false;
  do_meeting(warp, lanes, MeetingKind::kActiveMask);
  return true;
}

void BlockRunner::do_meeting(std::uint32_t warp, std::uint32_t lanes, MeetingKind kind) {
  std::array<WarpValue, kWarpSize> values;
  for_each_lane(lanes, [&](std::uint32_t lane) {
    const std::uint32_t thread = first_thread(warp) + lane;
    const std::uint64_t* const slots = frame(thread);
    const MicroOp& op = met(thread);
    values[lane].a = slots[op.a];
    values[lane].b = slots[op.b];
    values[lane].c = slots[op.c];
  });
  do_warp_meeting(kind, lanes, values);
  for_each_lane(lanes, [&](std::uint32_t lane) {
    const std::uint32_t thread = first_thread(warp) + lane;
    const MicroOp& op = met(thread);
    if (kind != MeetingKind::kWarpSync) frame(thread)[op.d] = values[lane].d;
    if ((op.bits & kHasSecondResult) != 0) frame(thread)[op.d2] = values[lane].d2;
    release(thread);
  });
  if (shadow_ && kind == MeetingKind::kWarpSync) shadow_->warp_sync(warp, lanes);
  if (log_ != nullptr) log_->rendezvous(warp, lanes);
  count_meeting(first_thread(warp) + static_cast<std::uint32_t>(std::countr_zero(lanes)));
}

/// Loops with a meeting in them can be endless too.
void BlockRunner::count_meeting(std::uint32_t thread) {
  if (++num_meetings_ < launch_.options.max_meetings || fault_) return;
  fail(FaultKind::kEndless, thread, met(thread),
       "threads of the block met " + std::to_string(num_meetings_) + " times without an end");
}

// ---- barriers

/// A warp arrives when all its lanes that have not ended wait at the same barrier.
bool BlockRunner::arrive_at_barriers() {
  bool has_met = false;
  for (std::uint32_t warp = 0; warp < num_warps_; ++warp) {
    const std::uint32_t living = exists_[warp] & ~ended_[warp];
    if (living == 0) continue;
    std::uint32_t waiting = 0;
    std::optional<std::uint64_t> number;
    const MicroOp* first = nullptr;
    bool agree = true;
    for_each_lane(living, [&](std::uint32_t lane) {
      const std::uint32_t thread = first_thread(warp) + lane;
      if (lanes_[thread].state != State::kWaits || !is_barrier(kind_of(met(thread)))) return;
      const MicroOp& op = met(thread);
      waiting |= 1U << lane;
      const std::uint64_t own = frame(thread)[op.a] & 0xFFFFFFFF;
      agree = agree && (!number || *number == own);
      number = own;
      if (first == nullptr) first = &op;
      if (launch_.options.check_barriers && first != &op && (op.bits & kIsAligned) != 0 && !fault_) {
        fail(FaultKind::kBarrier, thread, op,
             "threads of one warp wait at different barriers: another waits at " + place_of(*first));
      }
    });
    if (fault_) return true;
    if (waiting != living || !agree) continue;
    const std::uint32_t thread = first_thread(warp) + static_cast<std::uint32_t>(std::countr_zero(living));
    if (*number >= kNumBarriers) {
      fail(FaultKind::kBarrier, thread, *first,
           "there is no barrier " + std::to_string(*number) + ", only 0 to 15");
      return true;
    }
    Barrier& barrier = barriers_[*number];
    if (!barrier.is_in_use) {
      barrier.lanes.assign(num_warps_, 0);
      barrier.waiting.assign(num_warps_, 0);
      barrier.is_in_use = true;
      barrier.num_threads = 0;
      barrier.num_expected.reset();
    }
    if (barrier.waiting[warp] != 0) continue;  // has arrived already
    std::optional<std::uint64_t> expected;
    if ((first->bits & kCountsAllThreads) == 0) expected = frame(thread)[first->b] & 0xFFFFFFFF;
    const bool is_first = barrier.num_threads == 0;
    if ((expected && (*expected == 0 || *expected % kWarpSize != 0)) ||
        (!is_first && expected != barrier.num_expected)) {
      fail(FaultKind::kBarrier, thread, *first,
           "the number of threads is no multiple of 32, or another than others have given for this barrier");
      return true;
    }
    barrier.num_expected = expected;
    barrier.num_threads += kWarpSize;
    barrier.lanes[warp] |= living;
    if (kind_of(*first) != MeetingKind::kBarrierArrive) {
      barrier.waiting[warp] = living;
      continue;
    }
    for_each_lane(living, [&](std::uint32_t lane) { release(first_thread(warp) + lane); });
    has_met = true;
  }
  return has_met;
}

bool BlockRunner::complete_barriers() {
  bool has_met = false;
  for (std::uint32_t number = 0; number < kNumBarriers && !fault_; ++number)
    if (barriers_[number].is_in_use) has_met |= complete(number, barriers_[number]);
  return has_met;
}

bool BlockRunner::complete(std::uint32_t number, Barrier& barrier) {
  if (barrier.num_expected && barrier.num_threads < *barrier.num_expected) return false;
  if (barrier.num_expected && barrier.num_threads > *barrier.num_expected) {
    const auto warp = static_cast<std::uint32_t>(
        std::ranges::find_if(barrier.lanes, [](auto m) { return m != 0; }) - barrier.lanes.begin());
    fail(FaultKind::kBarrier, first_thread(warp), *lanes_[first_thread(warp)].pc,
         "more threads than were expected came to barrier " + std::to_string(number));
    return false;
  }
  const MicroOp* first = nullptr;
  for (std::uint32_t warp = 0; warp < num_warps_; ++warp) {
    const std::uint32_t living = exists_[warp] & ~ended_[warp];
    if (!barrier.num_expected && living != 0 && barrier.lanes[warp] == 0) return false;
    if (!launch_.options.check_barriers || barrier.num_expected) continue;
    if (barrier.waiting[warp] == 0 && living != 0) continue;
    for_each_lane(exists_[warp], [&](std::uint32_t lane) {
      const std::uint32_t thread = first_thread(warp) + lane;
      if (lanes_[thread].state == State::kEnded) return;
      if (first == nullptr) first = &met(thread);
      if (first != &met(thread) && !fault_)
        fail(FaultKind::kBarrier, thread, met(thread),
             "threads of one block meet at different barriers: another waits at " + place_of(*first));
    });
    if (fault_) return false;
  }
  if (launch_.options.check_barriers && !barrier.num_expected && num_ended_ != 0 && first != nullptr) {
    for (std::uint32_t thread = 0; thread < num_threads_; ++thread) {
      if (lanes_[thread].state != State::kEnded) continue;
      fail(FaultKind::kBarrier, thread, *first,
           "the thread ended without coming to a barrier of all threads");
      return false;
    }
  }
  reduce(barrier);
  for (std::uint32_t warp = 0; warp < num_warps_; ++warp) {
    for_each_lane(barrier.waiting[warp], [&](std::uint32_t lane) { release(first_thread(warp) + lane); });
    if (log_ != nullptr && barrier.waiting[warp] != 0) log_->rendezvous(warp, barrier.waiting[warp]);
    if (!barrier.num_expected) barrier.lanes[warp] |= ended_[warp];  // what they did came before
  }
  if (shadow_) shadow_->barrier(barrier.lanes);
  barrier.is_in_use = false;
  for (std::uint32_t warp = 0; warp < num_warps_; ++warp) {
    if (barrier.waiting[warp] == 0) continue;
    count_meeting(first_thread(warp) + static_cast<std::uint32_t>(std::countr_zero(barrier.waiting[warp])));
    break;
  }
  return true;
}

/// bar.red: the number of threads whose predicate holds, whether all are, whether one is.
void BlockRunner::reduce(const Barrier& barrier) {
  std::uint64_t num_true = 0, num_asked = 0;
  const auto for_each_asked = [&](auto visit) {
    for (std::uint32_t warp = 0; warp < num_warps_; ++warp) {
      for_each_lane(barrier.waiting[warp], [&](std::uint32_t lane) {
        const std::uint32_t thread = first_thread(warp) + lane;
        if (kind_of(met(thread)) >= MeetingKind::kBarrierPopc) visit(thread, met(thread));
      });
    }
  };
  for_each_asked([&](std::uint32_t thread, const MicroOp& op) {
    ++num_asked;
    num_true += frame(thread)[op.c] & 1;
  });
  for_each_asked([&](std::uint32_t thread, const MicroOp& op) {
    const MeetingKind kind = kind_of(op);
    frame(thread)[op.d] = kind == MeetingKind::kBarrierPopc  ? num_true
                          : kind == MeetingKind::kBarrierAnd ? std::uint64_t{num_true == num_asked}
                                                             : std::uint64_t{num_true != 0};
  });
}

// ---- faults

Dim3 BlockRunner::thread_index(std::uint32_t thread) const {
  const Dim3& size = launch_.config.block;
  return {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
}

std::string BlockRunner::place_of(const MicroOp& op) const {
  constexpr std::size_t kMostText = 100;
  const SourceLine& source = launch_.program->sources[launch_.program->source_of[&op - ops_.data()]];
  std::string text(source.text.substr(0, kMostText));
  for (char& c : text)
    if (c < ' ' || c > '~') c = ' ';
  return "line " + std::to_string(source.line) + " (" + text + ")";
}

void BlockRunner::fail(FaultKind kind, std::uint32_t thread, const MicroOp& op, const std::string& what) {
  const SourceLine& source = launch_.program->sources[launch_.program->source_of[&op - ops_.data()]];
  fault_ = Fault{.kind = kind,
                 .message = what + ": thread " + std::to_string(thread) + " of block " +
                            std::to_string(block_number_) + ", " + place_of(op),
                 .line = source.line,
                 .block = machine_.block,
                 .thread = thread_index(thread),
                 .block_number = block_number_};
}

std::string BlockRunner::where_waits(std::uint32_t thread) const {
  return "thread " + std::to_string(thread) + " at " + place_of(met(thread));
}

/// Nobody can go on.
void BlockRunner::fail_waiting() {
  std::optional<std::uint32_t> at_barrier, in_warp;
  for (std::uint32_t thread = num_threads_; thread-- > 0;)
    if (lanes_[thread].state == State::kWaits)
      (is_barrier(kind_of(met(thread))) ? at_barrier : in_warp) = thread;
  const std::uint32_t thread = in_warp ? *in_warp : *at_barrier;
  std::string what = in_warp ? "a warp operation waits for lanes that do not come"
                             : "a barrier waits for threads that do not come";
  if (in_warp && at_barrier) {
    what += " (" + where_waits(*at_barrier) + " waits too)";
  } else if (num_ended_ != 0) {
    what += " (" + std::to_string(num_ended_) + " threads have ended)";
  } else {
    for (std::uint32_t other = 0; other < num_threads_; ++other) {
      if (&met(other) == &met(thread)) continue;
      what += " (" + where_waits(other) + " waits too)";
      break;
    }
  }
  fail(in_warp ? FaultKind::kWarp : FaultKind::kBarrier, thread, met(thread), what);
}

}  // namespace weightpress::ptxvm
