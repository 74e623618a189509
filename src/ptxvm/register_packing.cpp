#include "ptxvm/register_packing.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

namespace weightpress::ptxvm {
namespace {

constexpr std::uint64_t kMaxLivenessBits = std::uint64_t{1} << 31;  // of one of the two sets

using Words = std::vector<std::uint64_t>;

template <class Visit>
void for_each_use(const IrOp& op, Visit visit) {
  for (const std::uint32_t reg : {op.a, op.b, op.c, op.e})
    if (reg != kNoRegister) visit(reg);
}
template <class Visit>
void for_each_result(const IrOp& op, Visit visit) {
  for (const std::uint32_t reg : {op.d, op.d2})
    if (reg != kNoRegister) visit(reg);
}

template <class Visit>
void for_each_successor(const Intermediate& code, const BasicBlocks& blocks, std::size_t block, Visit visit) {
  const IrOp& last = code.ops[blocks.blocks[block].end - 1];
  if (last.opcode == Opcode::kExit) return;
  if (last.target != kNoTarget) visit(blocks.block_of[last.target]);
  if (last.opcode != Opcode::kBra && block + 1 < blocks.blocks.size())
    visit(static_cast<std::uint32_t>(block + 1));
}

/// [begin, end] in half steps: uses of operation i at 2 i, results at 2 i + 1.
struct Interval {
  std::uint64_t begin = ~std::uint64_t{0}, end = 0;

  void extend(std::uint64_t place) {
    begin = std::min(begin, place);
    end = std::max(end, place);
  }
  bool is_used() const { return begin <= end; }
};

struct Liveness {
  std::vector<Words> in, out;  // by block

  static bool has(const Words& words, std::size_t reg) { return words[reg / 64] >> (reg % 64) & 1; }
};

Liveness find_liveness(const Intermediate& code, const BasicBlocks& blocks) {
  const std::size_t num_blocks = blocks.blocks.size(), num_words = (code.num_registers + 63) / 64;
  // By block: what is used before it is written, and what is written.
  std::vector<Words> used(num_blocks, Words(num_words)), written(num_blocks, Words(num_words));
  const auto set = [](Words& words, std::size_t reg) { words[reg / 64] |= std::uint64_t{1} << (reg % 64); };
  for (std::size_t b = 0; b < num_blocks; ++b) {
    for (std::uint32_t i = blocks.blocks[b].begin; i < blocks.blocks[b].end; ++i) {
      for_each_use(code.ops[i], [&](std::uint32_t reg) {
        if (!Liveness::has(written[b], reg)) set(used[b], reg);
      });
      for_each_result(code.ops[i], [&](std::uint32_t reg) { set(written[b], reg); });
    }
  }
  Liveness live{used, std::vector<Words>(num_blocks, Words(num_words))};
  std::vector<std::vector<std::uint32_t>> predecessors(num_blocks);
  for (std::size_t b = 0; b < num_blocks; ++b)
    for_each_successor(code, blocks, b,
                       [&](std::uint32_t to) { predecessors[to].push_back(static_cast<std::uint32_t>(b)); });
  std::vector<std::uint32_t> work(num_blocks);
  std::iota(work.begin(), work.end(), 0U);  // taken from the back: later blocks first
  std::vector<bool> is_waiting(num_blocks, true);
  while (!work.empty()) {
    const std::uint32_t b = work.back();
    work.pop_back();
    is_waiting[b] = false;
    Words& out = live.out[b];
    for_each_successor(code, blocks, b, [&](std::uint32_t to) {
      for (std::size_t w = 0; w < num_words; ++w) out[w] |= live.in[to][w];
    });
    bool is_new = false;
    for (std::size_t w = 0; w < num_words; ++w) {
      const std::uint64_t in = used[b][w] | (out[w] & ~written[b][w]);
      is_new |= in != live.in[b][w];
      live.in[b][w] = in;
    }
    if (!is_new) continue;
    for (const std::uint32_t before : predecessors[b]) {
      if (is_waiting[before]) continue;
      is_waiting[before] = true;
      work.push_back(before);
    }
  }
  return live;
}

}  // namespace

BasicBlocks find_blocks(const std::vector<IrOp>& ops) {
  std::vector<bool> begins(ops.size() + 1);
  begins[0] = true;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].target != kNoTarget) begins[ops[i].target] = true;
    if (ends_block(ops[i].opcode)) begins[i + 1] = true;
  }
  BasicBlocks found;
  found.block_of.resize(ops.size());
  for (std::uint32_t i = 0; i < ops.size(); ++i) {
    if (begins[i]) found.blocks.push_back({i, i});
    found.blocks.back().end = i + 1;
    found.block_of[i] = static_cast<std::uint32_t>(found.blocks.size() - 1);
  }
  return found;
}

Packing pack_registers(const Intermediate& code, const BasicBlocks& blocks) {
  Packing packing;
  packing.slot_of.assign(code.num_registers, 0);
  if (std::uint64_t{code.num_registers} * blocks.blocks.size() > kMaxLivenessBits) {
    std::iota(packing.slot_of.begin(), packing.slot_of.end(), 0U);
    packing.num_slots = code.num_registers;
    return packing;
  }
  const Liveness live = find_liveness(code, blocks);
  std::vector<Interval> intervals(code.num_registers);
  packing.live_out.resize(blocks.blocks.size());
  for (std::size_t b = 0; b < blocks.blocks.size(); ++b) {
    const BasicBlock& block = blocks.blocks[b];
    packing.live_out[b].resize(code.num_registers);
    for (std::uint32_t reg = 0; reg < code.num_registers; ++reg) {
      if (Liveness::has(live.in[b], reg)) intervals[reg].extend(2 * std::uint64_t{block.begin});
      if (!Liveness::has(live.out[b], reg)) continue;
      intervals[reg].extend(2 * std::uint64_t{block.end});
      packing.live_out[b][reg] = true;
    }
    for (std::uint64_t i = block.begin; i < block.end; ++i) {
      for_each_use(code.ops[i], [&](std::uint32_t reg) { intervals[reg].extend(2 * i); });
      for_each_result(code.ops[i], [&](std::uint32_t reg) { intervals[reg].extend(2 * i + 1); });
    }
  }
  for (const Constant& constant : code.constants)
    if (intervals[constant.reg].is_used()) intervals[constant.reg] = {0, 2 * code.ops.size() + 2};

  std::vector<std::uint32_t> order;
  for (std::uint32_t reg = 0; reg < code.num_registers; ++reg)
    if (intervals[reg].is_used()) order.push_back(reg);
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(intervals[a].begin, a) < std::pair(intervals[b].begin, b);
  });
  using Busy = std::pair<std::uint64_t, std::uint32_t>;  // until when, slot
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> free_slots;
  packing.num_slots = 1;  // 0: of registers that nothing uses
  for (const std::uint32_t reg : order) {
    while (!busy.empty() && busy.top().first < intervals[reg].begin) {
      free_slots.push(busy.top().second);
      busy.pop();
    }
    std::uint32_t slot = packing.num_slots;
    if (free_slots.empty()) {
      ++packing.num_slots;
    } else {
      slot = free_slots.top();
      free_slots.pop();
    }
    packing.slot_of[reg] = slot;
    busy.emplace(intervals[reg].end, slot);
  }
  return packing;
}

}  // namespace weightpress::ptxvm
