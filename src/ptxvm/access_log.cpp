#include "ptxvm/access_log.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace weightpress::ptxvm {
namespace {

constexpr std::uint32_t kSectorBytes = 32;
constexpr std::uint32_t kBankBytes = 4;
constexpr std::uint32_t kUnitsPerPlace = 32;  // bits of a mask; and of shared words, one in each bank
constexpr std::size_t kFirstTableSize = 64;
constexpr std::size_t kKeptPlaces = std::size_t{1} << 14;  // by a phase that is counted, for the next one
constexpr std::size_t kKeptExecutions = std::size_t{1} << 10;

std::size_t hash_of(std::uint32_t instruction) {
  return (std::uint64_t{instruction} * 0x9e3779b97f4a7c15) >> 32;
}

bool is_global(AccessLog::Kind kind) {
  return kind <= AccessLog::Kind::kGlobalAtomic;
}

}  // namespace

AccessLog::AccessLog(std::uint32_t num_threads, std::size_t max_places)
    : warps_((num_threads + kWarpLanes - 1) / kWarpLanes), max_places_(max_places) {
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    const std::size_t num_lanes = std::min<std::size_t>(kWarpLanes, num_threads - w * kWarpLanes);
    warps_[w].all_lanes = ~std::uint32_t{0} >> (kWarpLanes - num_lanes);
    const std::uint32_t phase = new_phase();
    phases_[phase].lanes = warps_[w].all_lanes;
    warps_[w].phase_of.fill(phase);
  }
}

std::uint32_t AccessLog::new_phase() {
  if (free_phases_.empty()) {
    free_phases_.push_back(static_cast<std::uint32_t>(phases_.size()));
    phases_.emplace_back();
  }
  const std::uint32_t phase = free_phases_.back();
  free_phases_.pop_back();
  return phase;
}

void AccessLog::grow(Phase& phase) {
  phase.table.assign(std::max(kFirstTableSize, phase.table.size() * 2), 0);
  const std::size_t mask = phase.table.size() - 1;
  for (std::size_t s = 0; s < phase.num_streams; ++s) {
    std::size_t at = hash_of(phase.streams[s].instruction) & mask;
    while (phase.table[at] != 0) at = (at + 1) & mask;
    phase.table[at] = static_cast<std::uint32_t>(s + 1);
  }
}

AccessLog::Stream& AccessLog::find_stream(Phase& phase, std::uint32_t instruction) {
  if (phase.num_streams * 2 >= phase.table.size()) grow(phase);
  const std::size_t mask = phase.table.size() - 1;
  std::size_t at = hash_of(instruction) & mask;
  for (; phase.table[at] != 0; at = (at + 1) & mask) {
    Stream& stream = phase.streams[phase.table[at] - 1];
    if (stream.instruction == instruction) return stream;
  }
  if (phase.num_streams == phase.streams.size()) phase.streams.emplace_back();
  Stream& stream = phase.streams[phase.num_streams++];
  stream.instruction = instruction;
  phase.table[at] = static_cast<std::uint32_t>(phase.num_streams);
  return stream;
}

void AccessLog::touch(Phase& phase, std::uint32_t& first, PlaceKind kind, std::uint64_t where,
                      std::uint32_t what) {
  // Only the last two are compared: what is there twice is found when it is counted.
  std::uint32_t at = first;
  for (int i = 0; i < 2 && at != kNoPlace; ++i, at = phase.places[at].next) {
    Place& place = phase.places[at];
    if (place.where != where || place.kind != kind) continue;
    if (kind < PlaceKind::kAtomicGlobal) {
      place.what |= what;
    } else {
      place.what += what;
    }
    return;
  }
  phase.places.push_back({where, what, first, kind});
  first = static_cast<std::uint32_t>(phase.places.size() - 1);
  ++num_places_;
}

void AccessLog::touch_units(Phase& phase, std::uint32_t& first, PlaceKind kind, std::uint64_t address,
                            std::uint32_t bytes, std::uint32_t unit_bytes) {
  const std::uint64_t last = (address + bytes - 1) / unit_bytes;
  for (std::uint64_t unit = address / unit_bytes; unit <= last; ++unit)
    touch(phase, first, kind, unit / kUnitsPerPlace, std::uint32_t{1} << unit % kUnitsPerPlace);
}

void AccessLog::add(std::uint32_t thread, std::uint32_t instruction, Kind kind, std::uint64_t address,
                    std::uint32_t bytes) {
  assert(bytes >= 1 && bytes <= 16);
  const std::uint32_t lane = thread % kWarpLanes;
  Phase& phase = phases_[warps_[thread / kWarpLanes].phase_of[lane]];
  Stream& stream = find_stream(phase, instruction);
  const std::uint32_t n = stream.num_executions[lane]++;
  if (n == stream.first_place.size()) stream.first_place.push_back(kNoPlace);
  std::uint32_t& first = stream.first_place[n];

  const bool is_atomic = kind == Kind::kGlobalAtomic || kind == Kind::kSharedAtomic;
  if (is_global(kind)) {
    if (kind != Kind::kGlobalStore) counters_.global_load_bytes += bytes;
    if (kind != Kind::kGlobalLoad) counters_.global_store_bytes += bytes;
    const PlaceKind sectors = kind == Kind::kGlobalLoad    ? PlaceKind::kGlobalLoad
                              : kind == Kind::kGlobalStore ? PlaceKind::kGlobalStore
                                                           : PlaceKind::kGlobalAtomic;
    touch_units(phase, first, sectors, address, bytes, kSectorBytes);
  } else {
    touch_units(phase, first, PlaceKind::kShared, address, bytes, kBankBytes);
  }
  if (is_atomic)
    touch(phase, first, is_global(kind) ? PlaceKind::kAtomicGlobal : PlaceKind::kAtomicShared, address, 1);
  if (num_places_ >= max_places_) count_early();
}

void AccessLog::rendezvous(std::uint32_t warp_number, std::uint32_t lanes) {
  Warp& warp = warps_[warp_number];
  lanes &= warp.all_lanes;
  if (lanes == 0) return;
  const std::uint32_t first = warp.phase_of[static_cast<std::uint32_t>(std::countr_zero(lanes))];
  if (phases_[first].lanes == lanes) {  // the same lanes as last time
    count(phases_[first]);
    return;
  }
  const std::uint32_t to = new_phase();
  phases_[to].lanes = lanes;
  for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<std::uint32_t>(std::countr_zero(rest));
    const std::uint32_t from = warp.phase_of[lane];
    warp.phase_of[lane] = to;
    phases_[from].lanes &= ~(std::uint32_t{1} << lane);
    if (phases_[from].lanes != 0) continue;
    count(phases_[from]);
    free_phases_.push_back(from);
  }
}

void AccessLog::end_block() {
  for (std::uint32_t w = 0; w < warps_.size(); ++w) rendezvous(w, warps_[w].all_lanes);
}

void AccessLog::count_early() {
  is_exact_ = false;
  for (Phase& phase : phases_) count(phase);
}

void AccessLog::count(Phase& phase) {
  if (phase.num_streams == 0) return;
  for (std::size_t s = 0; s < phase.num_streams; ++s) {
    Stream& stream = phase.streams[s];
    for (const std::uint32_t first : stream.first_place) count_warp_instruction(phase.places, first);
    stream.num_executions.fill(0);
    stream.first_place.clear();
    if (stream.first_place.capacity() > kKeptExecutions) stream.first_place.shrink_to_fit();
  }
  phase.num_streams = 0;
  std::ranges::fill(phase.table, 0);
  num_places_ -= phase.places.size();
  phase.places.clear();
  if (phase.places.capacity() > kKeptPlaces) phase.places.shrink_to_fit();
}

void AccessLog::count_warp_instruction(const std::vector<Place>& places, std::uint32_t first) {
  merged_.clear();
  for (std::uint32_t at = first; at != kNoPlace; at = places[at].next) {
    const Place& place = places[at];
    const auto same = std::ranges::find_if(
        merged_, [&](const Place& other) { return other.where == place.where && other.kind == place.kind; });
    if (same == merged_.end()) {
      merged_.push_back(place);
    } else if (place.kind < PlaceKind::kAtomicGlobal) {
      same->what |= place.what;
    } else {
      same->what += place.what;
    }
  }

  bool is_shared = false;
  std::uint32_t most_lanes = 0;
  std::uint32_t most_words = 0;
  std::array<std::uint8_t, kUnitsPerPlace> words{};  // by bank
  for (const Place& place : merged_) {
    const auto num_units = static_cast<std::uint32_t>(std::popcount(place.what));
    switch (place.kind) {
      case PlaceKind::kGlobalLoad:
        counters_.global_load_sectors += num_units;
        break;
      case PlaceKind::kGlobalStore:
        counters_.global_store_sectors += num_units;
        break;
      case PlaceKind::kGlobalAtomic:
        counters_.global_load_sectors += num_units;
        counters_.global_store_sectors += num_units;
        break;
      case PlaceKind::kShared:
        is_shared = true;
        for (std::uint32_t rest = place.what; rest != 0; rest &= rest - 1)
          most_words = std::max<std::uint32_t>(most_words, ++words[std::countr_zero(rest)]);
        break;
      case PlaceKind::kAtomicGlobal:
      case PlaceKind::kAtomicShared:
        most_lanes = std::max(most_lanes, place.what);
        break;
    }
  }
  if (is_shared) ++counters_.shared_instructions;
  counters_.shared_bank_words += most_words;
  if (most_lanes != 0) ++counters_.atomic_instructions;
  counters_.atomic_lanes += most_lanes;
}

}  // namespace weightpress::ptxvm
