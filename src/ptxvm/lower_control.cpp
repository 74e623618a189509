// Branches, calls, barriers and warp operations.
#include <algorithm>

#include "ptxvm/lowering_state.h"

namespace weightpress::ptxvm {
namespace {

constexpr Type kPredicate{TypeKind::kPredicate, 1};
constexpr Type kB32{TypeKind::kBits, 4};
constexpr Type kB64{TypeKind::kBits, 8};
constexpr int kMaxCallDepth = 32;

}  // namespace

/// The operation that jumps if the instruction's guard says so.
std::optional<std::uint32_t> Lowering::guard_of_jump(Opcode& opcode) {
  opcode = Opcode::kBra;
  if (instruction_->guard < 0) return std::nullopt;
  opcode = instruction_->guard_negated ? Opcode::kBrUnless : Opcode::kBrIf;
  return instance_->first_register + static_cast<std::uint32_t>(instruction_->guard);
}

void Lowering::lower_bra(Modifiers& modifiers) {
  modifiers.take("uni");
  expect_operands(1);
  if (operand(0).kind != OperandKind::kLabel) fail("it has to lead to a label");
  Opcode opcode{};
  const auto guard = guard_of_jump(opcode);
  instance_->jumps.emplace_back(static_cast<std::uint32_t>(out_.ops.size()), operand(0).index);
  IrOp& op = emit(opcode);
  if (guard) op.a = *guard;
}

void Lowering::lower_ret(Modifiers& modifiers) {
  modifiers.take("uni");
  expect_operands(0);
  Opcode opcode{};
  const auto guard = guard_of_jump(opcode);
  const auto index = static_cast<std::uint32_t>(out_.ops.size());
  (instance_->caller == nullptr ? exits_ : instance_->returns).push_back(index);
  IrOp& op = emit(opcode);
  if (guard) op.a = *guard;
}

void Lowering::lower_exit(Modifiers&) {
  expect_operands(0);
  Opcode opcode{};
  const auto guard = guard_of_jump(opcode);
  exits_.push_back(static_cast<std::uint32_t>(out_.ops.size()));
  IrOp& op = emit(opcode);
  if (guard) op.a = *guard;
}

void Lowering::lower_trap(Modifiers&) {
  expect_operands(0);
  emit(Opcode::kCall).function = trap;
}

/// Hints, and waiting.
void Lowering::lower_nothing(Modifiers& modifiers) {
  while (!modifiers.empty()) modifiers.take(modifiers.first());
  const std::uint32_t into = new_register();
  IrOp& op = emit(Opcode::kMovImm);
  op.d = into;
}

void Lowering::lower_fence(Modifiers& modifiers) {
  modifiers.take_any({"sc", "acq_rel", "acquire", "release"});
  if (modifiers.take_any({"cta", "gl", "gpu", "sys", "cluster"}).empty())
    fail("the scope is missing or not known");
  expect_operands(0);
  emit(Opcode::kCall).function = fence;
}

void Lowering::lower_call(Modifiers& modifiers) {
  modifiers.take("uni");
  const Function& callee = callee_of(*instruction_);
  std::vector<std::vector<Operand>> lists(2);  // results, arguments
  bool is_past_name = false;
  for (const Operand& part : instruction_->operands) {
    if (part.kind == OperandKind::kFunction) {
      is_past_name = true;
    } else if (part.kind == OperandKind::kList) {
      lists[is_past_name ? 1 : 0] = part.parts;
    } else {
      fail("a call has lists in parentheses and a name only");
    }
  }
  std::vector<std::uint64_t> places;
  std::vector<Operand> all = lists[0];
  all.insert(all.end(), lists[1].begin(), lists[1].end());
  for (const Operand& argument : all) {
    if (argument.kind != OperandKind::kLocalVariable ||
        instance_->function->variables[argument.index].space != Space::kParam || argument.integer != 0 ||
        (instance_->caller == nullptr && argument.index < kernel_.num_parameters)) {
      fail("only variables in .param space can be given to a function");
    }
    places.push_back(instance_->places[argument.index]);
  }
  if (!callee.has_body) {
    if (callee.name != "__assertfail" || places.size() < 4) fail("the function has no body");
    std::int64_t offsets = 0;
    for (int i = 0; i < 4; ++i) {
      if (places[i] > 0xFFFF) fail("too much local memory lies before the arguments");
      offsets |= static_cast<std::int64_t>(places[i] << 16 * i);
    }
    IrOp& op = emit(Opcode::kCall);
    op.function = fail_assertion;
    op.imm = offsets;
    return;
  }
  if (callee.is_entry) fail("a kernel cannot be called");
  if (lists[0].size() != callee.num_results || lists[1].size() != callee.num_parameters)
    fail("the function takes and returns another number of values");
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (instance_->function->variables[all[i].index].bytes != callee.variables[i].bytes)
      fail("an argument or result has another size in the function");
  }
  int depth = 0;
  for (const Instance* outer = instance_; outer != nullptr; outer = outer->caller) {
    if (outer->function == &callee) fail("recursion is not supported");
    if (++depth > kMaxCallDepth) fail("calls are nested too deeply");
  }
  const std::uint32_t into = new_register();
  emit(Opcode::kMovImm).d = into;  // the call itself, which counts
  Instance inner;
  inner.function = &callee;
  inner.caller = instance_;
  place_variables(inner, places);
  expand(inner);
  is_first_op_ = false;
}

// ---- meetings

IrOp& Lowering::emit_meeting(MeetingKind kind, std::uint32_t flags) {
  IrOp& op = emit(Opcode::kMeet);
  op.bits = static_cast<std::uint32_t>(kind) | flags;
  return op;
}

void Lowering::lower_bar(Modifiers& modifiers) {
  const bool is_bar = instruction_->opcode == "bar";
  modifiers.take("cta");
  if (is_bar && modifiers.take("warp")) {
    if (!modifiers.take("sync")) fail("bar.warp is .sync");
    expect_operands(1);
    const std::uint32_t mask = source(0, kB32);
    emit_meeting(MeetingKind::kWarpSync).e = mask;
    return;
  }
  const std::string_view what = modifiers.take_any({"sync", "arrive", "red"});
  if (what.empty()) fail(".sync, .arrive or .red is missing");
  const bool is_aligned = modifiers.take("aligned") || is_bar;
  std::uint32_t flags = is_aligned ? kIsAligned : 0;
  MeetingKind kind = what == "sync" ? MeetingKind::kBarrierSync : MeetingKind::kBarrierArrive;
  std::size_t first = 0;
  if (what == "red") {
    const std::string_view reduction = modifiers.take_any({"popc", "and", "or"});
    if (reduction.empty()) fail(".popc, .and or .or is missing");
    kind = reduction == "popc"  ? MeetingKind::kBarrierPopc
           : reduction == "and" ? MeetingKind::kBarrierAnd
                                : MeetingKind::kBarrierOr;
    if (!modifiers.take(reduction == "popc" ? "u32" : "pred")) fail("the type does not fit the reduction");
    expect_operands(3, 4);
    first = 1;
  } else {
    expect_operands(what == "arrive" ? 2 : 1, 2);
  }
  if (literal(operand(first), kB32).value_or(0) >= kNumBarriers) fail("barriers are numbered 0 to 15");
  const std::uint32_t number = source(first, kB32);
  const std::size_t last = instruction_->operands.size() - (what == "red" ? 1 : 0);
  std::uint32_t count = kNoRegister;
  if (last > first + 1) {
    count = source(first + 1, kB32);
  } else {
    flags |= kCountsAllThreads;
  }
  std::uint32_t predicate = kNoRegister, into = kNoRegister;
  if (what == "red") {
    predicate = source(last, kPredicate);
    into = result(0, kind == MeetingKind::kBarrierPopc ? kB32 : kPredicate);
  }
  IrOp& op = emit_meeting(kind, flags);
  op.a = number;
  op.b = count;
  op.c = predicate;
  op.d = into;
}

void Lowering::lower_shfl(Modifiers& modifiers) {
  if (!modifiers.take("sync")) fail("only shfl.sync is supported");
  const std::string_view mode = modifiers.take_any({"up", "down", "bfly", "idx"});
  if (mode.empty() || !modifiers.take("b32")) fail("the mode or .b32 is missing");
  expect_operands(5);
  const MeetingKind kind = mode == "up"     ? MeetingKind::kShuffleUp
                           : mode == "down" ? MeetingKind::kShuffleDown
                           : mode == "bfly" ? MeetingKind::kShuffleButterfly
                                            : MeetingKind::kShuffleIndex;
  const bool has_pair = operand(0).kind == OperandKind::kPair;
  const std::uint32_t a = source(1, kB32), b = source(2, kB32), c = source(3, kB32), mask = source(4, kB32);
  const std::uint32_t d = has_pair ? result(operand(0).parts[0], kB32) : result(0, kB32);
  const std::uint32_t d2 = has_pair ? result(operand(0).parts[1], kPredicate) : kNoRegister;
  IrOp& op = emit_meeting(kind, has_pair ? kHasSecondResult : 0);
  op.a = a;
  op.b = b;
  op.c = c;
  op.e = mask;
  op.d = d;
  op.d2 = d2;
}

void Lowering::lower_vote(Modifiers& modifiers) {
  if (!modifiers.take("sync")) fail("only vote.sync is supported");
  const std::string_view mode = modifiers.take_any({"all", "any", "uni", "ballot"});
  if (mode.empty() || !modifiers.take(mode == "ballot" ? "b32" : "pred")) fail("the mode or type is missing");
  expect_operands(3);
  const MeetingKind kind = mode == "all"   ? MeetingKind::kVoteAll
                           : mode == "any" ? MeetingKind::kVoteAny
                           : mode == "uni" ? MeetingKind::kVoteUniform
                                           : MeetingKind::kBallot;
  const std::uint32_t a = source(1, kPredicate), mask = source(2, kB32);
  const std::uint32_t d = result(0, mode == "ballot" ? kB32 : kPredicate);
  IrOp& op = emit_meeting(kind);
  op.a = a;
  op.e = mask;
  op.d = d;
}

void Lowering::lower_match(Modifiers& modifiers) {
  const std::string_view mode = modifiers.take_any({"any", "all"});
  const Type type = modifiers.take_type();
  if (mode.empty() || !modifiers.take("sync") || (type != kB32 && type != kB64))
    fail("the mode, .sync or the type is missing");
  expect_operands(3);
  const bool has_pair = operand(0).kind == OperandKind::kPair;
  if (has_pair && mode == "any") fail("match.any has one result");
  const std::uint32_t a = source(1, type), mask = source(2, kB32);
  const std::uint32_t d = has_pair ? result(operand(0).parts[0], kB32) : result(0, kB32);
  const std::uint32_t d2 = has_pair ? result(operand(0).parts[1], kPredicate) : kNoRegister;
  IrOp& op = emit_meeting(mode == "any" ? MeetingKind::kMatchAny : MeetingKind::kMatchAll,
                          has_pair ? kHasSecondResult : 0);
  op.a = a;
  op.e = mask;
  op.d = d;
  op.d2 = d2;
}

void Lowering::lower_redux(Modifiers& modifiers) {
  if (!modifiers.take("sync")) fail("only redux.sync is supported");
  const std::string_view what = modifiers.take_any({"add", "min", "max", "and", "or", "xor"});
  const Type type = modifiers.take_type();
  if (what.empty() || type.bytes != 4 || type.kind == TypeKind::kFloat)
    fail("the operation or type is not supported");
  const bool is_signed = type.kind == TypeKind::kSigned, is_bits = type.kind == TypeKind::kBits;
  if (is_bits != (what == "and" || what == "or" || what == "xor"))
    fail("the type does not fit the operation");
  const MeetingKind kind =
      what == "add"   ? MeetingKind::kReduceAdd
      : what == "min" ? (is_signed ? MeetingKind::kReduceMinSigned : MeetingKind::kReduceMinUnsigned)
      : what == "max" ? (is_signed ? MeetingKind::kReduceMaxSigned : MeetingKind::kReduceMaxUnsigned)
      : what == "and" ? MeetingKind::kReduceAnd
      : what == "or"  ? MeetingKind::kReduceOr
                      : MeetingKind::kReduceXor;
  expect_operands(3);
  const std::uint32_t a = source(1, type), mask = source(2, kB32);
  const std::uint32_t d = result(0, type);
  IrOp& op = emit_meeting(kind);
  op.a = a;
  op.e = mask;
  op.d = d;
}

void Lowering::lower_elect(Modifiers& modifiers) {
  if (!modifiers.take("sync")) fail("only elect.sync is known");
  expect_operands(2);
  if (operand(0).kind != OperandKind::kPair) fail("it has two results, d|p");
  const std::uint32_t mask = source(1, kB32);
  const std::uint32_t d = result(operand(0).parts[0], kB32), d2 = result(operand(0).parts[1], kPredicate);
  IrOp& op = emit_meeting(MeetingKind::kElect, kHasSecondResult);
  op.e = mask;
  op.d = d;
  op.d2 = d2;
}

void Lowering::lower_activemask(Modifiers& modifiers) {
  if (!modifiers.take("b32")) fail(".b32 is missing");
  expect_operands(1);
  const std::uint32_t d = result(0, kB32);
  emit_meeting(MeetingKind::kActiveMask).d = d;
}

}  // namespace weightpress::ptxvm
