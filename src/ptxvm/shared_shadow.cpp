#include "ptxvm/shared_shadow.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

namespace weightpress::ptxvm {
namespace {

std::uint32_t lowest(std::uint32_t lanes) {
  return static_cast<std::uint32_t>(std::countr_zero(lanes));
}

std::uint32_t bit(std::uint32_t lane) {
  return std::uint32_t{1} << lane;
}

}  // namespace

SharedShadow::SharedShadow(std::uint64_t shared_bytes, std::uint32_t num_threads)
    : num_threads_(num_threads),
      num_warps_((num_threads + kWarpLanes - 1) / kWarpLanes),
      words_((shared_bytes + kWordBytes - 1) / kWordBytes),
      bytes_(words_.size() * kWordBytes),
      warps_(num_warps_) {
  assert(num_threads >= 1 && num_threads <= kMaxThreads);
  for (std::uint32_t w = 0; w < num_warps_; ++w) {
    Warp& warp = warps_[w];
    const std::uint32_t num_lanes = std::min(kWarpLanes, num_threads - w * kWarpLanes);
    warp.all_lanes = num_lanes == kWarpLanes ? ~std::uint32_t{0} : bit(num_lanes) - 1;
    warp.clock.fill(warp.time);
    warp.knowledge[0].lanes = warp.all_lanes;
  }
}

void SharedShadow::begin_block() {
  begin_epoch();
}

void SharedShadow::begin_epoch() {
  num_sets_ = 0;
  free_sets_.clear();
  if (epoch_ == std::numeric_limits<std::uint32_t>::max()) {
    std::ranges::fill(words_, Record{});
    std::ranges::fill(bytes_, Record{});
    epoch_ = 0;
  }
  ++epoch_;
  // Clocks go on, so that what is known of a lane stays below what it does from now on.
  for (Warp& warp : warps_) {
    const bool is_near_end = warp.time > std::numeric_limits<std::uint32_t>::max() / 2;
    if (!warp.is_uneven && !is_near_end) continue;
    for (Knowledge& knowledge : warp.knowledge) {
      knowledge.lanes = 0;
      use_remote(knowledge.remote, kNoRemote);
    }
    if (is_near_end) {
      // A Remote that another warp holds may still know large clocks of this one: all go.
      for (Warp& other : warps_)
        for (Knowledge& knowledge : other.knowledge) use_remote(knowledge.remote, kNoRemote);
      warp.time = 0;
    }
    warp.knowledge[0].lanes = warp.all_lanes;
    warp.knowledge[0].known.fill(0);
    warp.knowledge_of.fill(0);
    warp.clock.fill(++warp.time);
    warp.is_uneven = false;
  }
}

std::uint8_t SharedShadow::free_knowledge(const Warp& warp) const {
  std::uint8_t free = 0;
  while (warp.knowledge[free].lanes != 0) ++free;
  return free;
}

void SharedShadow::share(Warp& warp, std::uint32_t lanes, std::uint8_t to) {
  ++warp.time;
  for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const std::uint32_t lane = lowest(rest);
    const std::uint8_t from = warp.knowledge_of[lane];
    warp.knowledge_of[lane] = to;
    warp.clock[lane] = warp.time;
    if (from == to) continue;
    warp.knowledge[from].lanes &= ~bit(lane);
    if (warp.knowledge[from].lanes == 0) use_remote(warp.knowledge[from].remote, kNoRemote);
  }
  warp.knowledge[to].lanes = lanes;
}

std::uint32_t SharedShadow::new_remote() {
  if (free_remotes_.empty()) {
    free_remotes_.push_back(static_cast<std::uint32_t>(remotes_.size()));
    remotes_.push_back({std::vector<std::uint32_t>(num_threads_), 0});
  }
  const std::uint32_t remote = free_remotes_.back();
  free_remotes_.pop_back();
  return remote;
}

void SharedShadow::use_remote(std::uint32_t& slot, std::uint32_t remote) {
  if (slot == remote) return;
  if (remote != kNoRemote) ++remotes_[remote].uses;
  if (slot != kNoRemote && --remotes_[slot].uses == 0) free_remotes_.push_back(slot);
  slot = remote;
}

void SharedShadow::join_remotes(Warp& warp, std::uint32_t lanes, std::vector<std::uint32_t>& found) const {
  for (std::uint32_t rest = lanes; rest != 0;) {
    const Knowledge& knowledge = warp.knowledge[warp.knowledge_of[lowest(rest)]];
    rest &= ~knowledge.lanes;
    if (knowledge.remote != kNoRemote && std::ranges::find(found, knowledge.remote) == found.end())
      found.push_back(knowledge.remote);
  }
}

void SharedShadow::warp_sync(std::uint32_t warp_number, std::uint32_t lanes) {
  Warp& warp = warps_[warp_number];
  lanes &= warp.all_lanes;
  if (std::popcount(lanes) < 2) return;

  const std::uint8_t first = warp.knowledge_of[lowest(lanes)];
  if (warp.knowledge[first].lanes == lanes) {  // they share it already, with nobody else
    Knowledge& shared = warp.knowledge[first];
    for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1)
      shared.known[lowest(rest)] = warp.clock[lowest(rest)];
    share(warp, lanes, first);
    return;
  }

  warp.is_uneven = true;
  const std::uint8_t to = free_knowledge(warp);
  Knowledge& joined = warp.knowledge[to];
  joined.known.fill(0);
  for (std::uint32_t rest = lanes; rest != 0;) {
    const Knowledge& part = warp.knowledge[warp.knowledge_of[lowest(rest)]];
    rest &= ~part.lanes;
    for (std::uint32_t l = 0; l < kWarpLanes; ++l) joined.known[l] = std::max(joined.known[l], part.known[l]);
  }
  for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1)
    joined.known[lowest(rest)] = warp.clock[lowest(rest)];

  joined_.clear();
  join_remotes(warp, lanes, joined_);
  if (joined_.size() == 1) use_remote(joined.remote, joined_.front());
  if (joined_.size() > 1) {
    const std::uint32_t remote = new_remote();
    std::vector<std::uint32_t>& known = remotes_[remote].known;
    std::ranges::fill(known, 0);
    for (const std::uint32_t part : joined_)
      for (std::uint32_t t = 0; t < num_threads_; ++t) known[t] = std::max(known[t], remotes_[part].known[t]);
    use_remote(joined.remote, remote);
  }
  share(warp, lanes, to);
}

void SharedShadow::barrier(const std::vector<std::uint32_t>& took_part) {
  const std::size_t num_listed = std::min<std::size_t>(took_part.size(), num_warps_);
  bool all = num_listed == num_warps_;
  for (std::size_t w = 0; all && w < num_listed; ++w)
    all = (took_part[w] & warps_[w].all_lanes) == warps_[w].all_lanes;
  if (all) {
    begin_epoch();
    return;
  }

  joined_.clear();
  for (std::size_t w = 0; w < num_listed; ++w)
    join_remotes(warps_[w], took_part[w] & warps_[w].all_lanes, joined_);
  const std::uint32_t remote = new_remote();
  std::vector<std::uint32_t>& known = remotes_[remote].known;
  std::ranges::fill(known, 0);
  for (const std::uint32_t part : joined_)
    for (std::uint32_t t = 0; t < num_threads_; ++t) known[t] = std::max(known[t], remotes_[part].known[t]);
  for (std::size_t w = 0; w < num_listed; ++w) {
    const Warp& warp = warps_[w];
    const std::uint32_t lanes = took_part[w] & warp.all_lanes;
    const std::size_t begin = w * kWarpLanes;
    const std::size_t num_lanes = std::min<std::size_t>(kWarpLanes, num_threads_ - begin);
    for (std::uint32_t rest = lanes; rest != 0;) {
      const Knowledge& part = warp.knowledge[warp.knowledge_of[lowest(rest)]];
      rest &= ~part.lanes;
      for (std::size_t l = 0; l < num_lanes; ++l)
        known[begin + l] = std::max(known[begin + l], part.known[l]);
    }
    for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1)
      known[begin + lowest(rest)] = warp.clock[lowest(rest)];
  }

  ++remotes_[remote].uses;  // held until all have it
  for (std::size_t w = 0; w < num_listed; ++w) {
    Warp& warp = warps_[w];
    const std::uint32_t lanes = took_part[w] & warp.all_lanes;
    if (lanes == 0) continue;
    warp.is_uneven = true;
    const std::uint8_t to = free_knowledge(warp);
    Knowledge& joined = warp.knowledge[to];
    const std::size_t begin = w * kWarpLanes;
    const std::size_t num_lanes = std::min<std::size_t>(kWarpLanes, num_threads_ - begin);
    joined.known.fill(0);
    std::copy_n(known.begin() + static_cast<std::ptrdiff_t>(begin), num_lanes, joined.known.begin());
    use_remote(joined.remote, remote);
    share(warp, lanes, to);
  }
  if (--remotes_[remote].uses == 0) free_remotes_.push_back(remote);
}

bool SharedShadow::is_before(const Actor& actor, std::uint32_t warp, std::uint32_t lane,
                             std::uint32_t clock) const {
  if (warp == actor.warp) return lane == actor.lane || actor.knowledge->known[lane] >= clock;
  const std::uint32_t remote = actor.knowledge->remote;
  return remote != kNoRemote && remotes_[remote].known[warp * kWarpLanes + lane] >= clock;
}

std::uint32_t SharedShadow::lanes_not_before(const Actor& actor, const Group& group) const {
  if (group.warp != actor.warp && actor.knowledge->remote == kNoRemote) return group.lanes;
  std::uint32_t result = 0;
  for (std::uint32_t rest = group.lanes; rest != 0; rest &= rest - 1)
    if (!is_before(actor, group.warp, lowest(rest), group.clock)) result |= rest & -rest;
  return result;
}

std::optional<std::uint32_t> SharedShadow::find_unordered(const Actor& actor, const Threads& threads) const {
  const auto in_group = [&](const Group& group) -> std::optional<std::uint32_t> {
    if (group.lanes == 0) return std::nullopt;
    const std::uint32_t lanes = lanes_not_before(actor, group);
    if (lanes == 0) return std::nullopt;
    return group.warp * kWarpLanes + lowest(lanes);
  };
  if (!threads.is_set) return in_group({threads.lanes_or_set, threads.clock, threads.warp});
  for (const Group& group : sets_[threads.lanes_or_set])
    if (const auto found = in_group(group)) return found;
  return std::nullopt;
}

void SharedShadow::note(const Actor& actor, Threads& threads) {
  if (!threads.is_set) {
    if (threads.lanes_or_set == 0) {
      threads = {bit(actor.lane), actor.clock, static_cast<std::uint16_t>(actor.warp), false};
      return;
    }
    if (threads.warp == actor.warp && threads.clock == actor.clock) {
      threads.lanes_or_set |= bit(actor.lane);
      return;
    }
    const Group before{threads.lanes_or_set, threads.clock, threads.warp};
    const std::uint32_t left = lanes_not_before(actor, before);
    if (left == 0) {
      threads = {bit(actor.lane), actor.clock, static_cast<std::uint16_t>(actor.warp), false};
      return;
    }
    const std::uint32_t set = new_set();
    sets_[set][before.warp] = {left, before.clock, before.warp};
    threads = {set, 0, 0, true};
  }
  note_in_set(actor, sets_[threads.lanes_or_set]);
}

void SharedShadow::note_in_set(const Actor& actor, ThreadSet& set) {
  Group& first = set[actor.warp];
  const bool has_further = set.size() > num_warps_;
  if (!has_further && first.lanes != 0 && first.clock == actor.clock) {
    first.lanes |= bit(actor.lane);
    return;
  }
  // What of this warp is before now is forgotten; the lane goes to the group with its clock, or a free one.
  Group* same = nullptr;
  Group* free = nullptr;
  const auto visit = [&](Group& group) {
    if (group.lanes != 0 && group.warp == actor.warp) {
      group.lanes = lanes_not_before(actor, group);
      if (group.lanes != 0 && group.clock == actor.clock) same = &group;
    }
  };
  visit(first);
  if (first.lanes == 0) free = &first;
  for (std::size_t i = num_warps_; i < set.size(); ++i) {
    visit(set[i]);
    if (set[i].lanes == 0 && !free) free = &set[i];
  }
  if (same) {
    same->lanes |= bit(actor.lane);
  } else if (free) {
    *free = {bit(actor.lane), actor.clock, actor.warp};
  } else {
    set.push_back({bit(actor.lane), actor.clock, actor.warp});
  }
}

std::uint32_t SharedShadow::new_set() {
  std::uint32_t set = 0;
  if (!free_sets_.empty()) {
    set = free_sets_.back();
    free_sets_.pop_back();
  } else {
    set = static_cast<std::uint32_t>(num_sets_++);
    if (num_sets_ > sets_.size()) sets_.emplace_back();
  }
  sets_[set].assign(num_warps_, Group{});
  return set;
}

void SharedShadow::clear(Threads& threads) {
  if (threads.is_set) free_sets_.push_back(threads.lanes_or_set);
  threads = Threads{};
}

SharedShadow::Threads SharedShadow::copy(const Threads& threads) {
  if (!threads.is_set) return threads;
  const std::uint32_t set = new_set();
  sets_[set] = sets_[threads.lanes_or_set];
  return {set, 0, 0, true};
}

void SharedShadow::split(std::uint64_t word) {
  Record& whole = words_[word];
  if (refresh(whole)) {  // so its bytes are of an older epoch too
    whole.is_split = true;
    return;
  }
  for (std::uint64_t i = 0; i < kWordBytes; ++i) {
    Record& part = bytes_[word * kWordBytes + i];
    part = whole;
    part.reads = copy(whole.reads);
    part.atomics = copy(whole.atomics);
  }
  clear(whole.reads);
  clear(whole.atomics);
  whole.is_split = true;
}

std::optional<SharedShadow::Race> SharedShadow::find_race(const Actor& actor, const Record& record,
                                                          Access access) const {
  if (record.writer != kNoThread &&
      !is_before(actor, record.writer / kWarpLanes, record.writer % kWarpLanes, record.write_clock))
    return Race{0, record.writer, Access::kWrite};
  if (access != Access::kRead && !record.reads.is_empty())
    if (const auto other = find_unordered(actor, record.reads)) return Race{0, *other, Access::kRead};
  if (access != Access::kAtomic && !record.atomics.is_empty())
    if (const auto other = find_unordered(actor, record.atomics)) return Race{0, *other, Access::kAtomic};
  return std::nullopt;
}

std::optional<SharedShadow::Race> SharedShadow::touch(const Actor& actor, Record& record, Access access) {
  const auto race = refresh(record) ? std::nullopt : find_race(actor, record, access);
  switch (access) {
    case Access::kRead:
      note(actor, record.reads);
      break;
    case Access::kAtomic:
      note(actor, record.atomics);
      break;
    case Access::kWrite:
      // Who is ordered after the write is so after these.
      clear(record.reads);
      clear(record.atomics);
      record.writer = static_cast<std::uint16_t>(actor.thread);
      record.write_clock = actor.clock;
      break;
  }
  return race;
}

std::optional<SharedShadow::Race> SharedShadow::access(std::uint32_t thread, std::uint64_t offset_bytes,
                                                       std::uint32_t bytes, Access access) {
  assert(thread < num_threads_ && offset_bytes + bytes <= bytes_.size());
  const std::uint32_t lane = thread % kWarpLanes;
  const Warp& warp = warps_[thread / kWarpLanes];
  const Actor actor{thread, thread / kWarpLanes, lane, warp.clock[lane],
                    &warp.knowledge[warp.knowledge_of[lane]]};
  std::optional<Race> first;
  const auto keep = [&](std::optional<Race> race, std::uint64_t at) {
    if (!race || first) return;
    first = race;
    first->offset_bytes = at;
  };

  const std::uint64_t end = offset_bytes + bytes;
  for (std::uint64_t at = offset_bytes; at < end;) {
    const std::uint64_t word = at / kWordBytes;
    const std::uint64_t word_end = std::min(end, (word + 1) * kWordBytes);
    Record& whole = words_[word];
    const bool is_all = word_end - at == kWordBytes;
    const bool is_split = whole.is_split && whole.epoch == epoch_;
    if (is_all && !is_split) {
      keep(touch(actor, whole, access), at);
      at = word_end;
      continue;
    }
    if (!is_split) split(word);
    for (; at < word_end; ++at) keep(touch(actor, bytes_[at], access), at);
    if (!is_all || access != Access::kWrite) continue;
    // All its bytes are alike again.
    const Record written = bytes_[word * kWordBytes];
    whole = written;
  }
  return first;
}

}  // namespace weightpress::ptxvm
