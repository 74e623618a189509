#include "job/selftest_compare.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "format/bf16_fields.h"
#include "format/open_windows.h"
#include "job/coding_options.h"
#include "job/selftest_path_log.h"
#include "job/selftest_random.h"
#include "job/unit_compressor.h"
#include "job/unit_decoder.h"
#include "job/unit_memory.h"
#include "selftest/slow_decoder.h"

namespace weightpress::job {
namespace {

using Words = std::vector<std::uint16_t>;

constexpr std::uint64_t kFaultsOfUnit = 3;  // flipped bits, one at a time

// ---- stages that are looked at

/// Stages whose outputs that no buffer of a unit shows are looked at: histograms, and chunk starts without
/// the rest, which are asked for with every slab. Wrong histograms are put right: nobody can tell what a unit
/// with them would take.
class WatchedStages final : public df11::Df11Stages {
 public:
  explicit WatchedStages(df11::Df11Stages& stages) : stages_(stages) {}

  df11::Completion histogram(const df11::HistogramArguments& arguments) override {
    fill_with_garbage(arguments.histograms);
    const df11::StageStatus status = stages_.histogram(arguments).wait();
    for (std::size_t i = 0; i < arguments.histograms.size(); ++i) {
      const std::uint64_t first = i * arguments.segment_weights;
      df11::SegmentHistogram counts{};
      for (const std::uint16_t weight : arguments.weights.subspan(
               first, std::min(arguments.segment_weights, arguments.weights.size() - first)))
        ++counts[df11::exponent_of(weight)];
      correct(i, arguments.histograms[i], counts);
    }
    return df11::Completion(status);
  }
  df11::Completion chunk_starts(const df11::ChunkStartsArguments& arguments) override {
    fill_with_garbage(arguments.positions);
    return stages_.chunk_starts(arguments);
  }
  df11::Completion encode(const df11::EncodeArguments& arguments) override {
    fill_with_garbage(arguments.sign_mantissa);
    fill_with_garbage(arguments.encoded_exponent);
    fill_with_garbage(arguments.gaps);
    fill_with_garbage(arguments.positions);
    fill_with_garbage(std::span(arguments.border, 1));
    const df11::StageStatus status = stages_.encode(arguments).wait();
    if (status.code == df11::StageCode::kOk) compare_chunk_starts(arguments);
    return df11::Completion(status);
  }

  /// The first thing that was wrong; empty: nothing.
  const std::string& problem() const { return problem_; }

 private:
  void correct(std::size_t segment, df11::SegmentHistogram& histogram, const df11::SegmentHistogram& counts) {
    const auto [is, should_be] = std::ranges::mismatch(histogram, counts);
    if (is == histogram.end()) return;
    if (problem_.empty())
      problem_ = "the histogram of segment " + text(segment) + " of a slab: " + text(*is) +
                 " weights of exponent " + text(static_cast<std::uint64_t>(is - histogram.begin())) +
                 " instead of " + text(*should_be);
    histogram = counts;
  }

  void compare_chunk_starts(const df11::EncodeArguments& slab) {
    std::uint64_t bits = 0;
    for (const df11::SegmentHistogram& histogram : slab.histograms)
      bits += df11::total_bits(histogram, *slab.codebook);
    const std::uint32_t last_length = slab.codebook->lengths[df11::exponent_of(slab.weights.back())];
    const df11::SlabPosition& position = slab.position;
    const std::uint64_t first =
        df11::first_open_chunk(df11::first_open_window(position.first_bit, position.previous_code_length));
    const std::uint64_t end =
        df11::first_open_chunk(df11::first_open_window(position.first_bit + bits, last_length));
    starts_.resize(end - first);
    const df11::StageStatus status = chunk_starts({.weights = slab.weights,
                                                   .segment_weights = slab.segment_weights,
                                                   .position = position,
                                                   .codebook = slab.codebook,
                                                   .histograms = slab.histograms,
                                                   .positions = starts_})
                                         .wait();
    if (!problem_.empty()) return;
    if (status.code != df11::StageCode::kOk) {
      problem_ = "the chunk starts alone: it says that the weights changed";
      return;
    }
    const auto [mine, encoded] = std::ranges::mismatch(starts_, slab.positions);
    if (mine == starts_.end()) return;
    problem_ = "the chunk starts alone: chunk " +
               text(first + static_cast<std::uint64_t>(mine - starts_.begin())) + " starts at weight " +
               text(*mine) + ", encoded at " + text(*encoded);
  }

  df11::Df11Stages& stages_;
  std::vector<std::uint32_t> starts_;
  std::string problem_;
};

class WatchedDecodeStage final : public df11::Df11DecodeStage {
 public:
  explicit WatchedDecodeStage(df11::Df11DecodeStage& stage) : stage_(stage) {}

  /// Throws if the chunk at fault is none of those that were given: nobody could look for a fault there.
  df11::DecodeCompletion decode(const df11::DecodeArguments& arguments) override {
    fill_with_garbage(arguments.weights);
    const df11::DecodeStatus status = stage_.decode(arguments).wait();
    const std::uint64_t first = arguments.first_chunk, end = first + arguments.positions.size() - 1;
    if (!status.ok && (status.chunk < first || status.chunk >= end))
      throw Error(ErrorCode::kDeviceFailed, "of the chunks " + text(first) + " to " + text(end - 1) +
                                                ", chunk " + text(status.chunk) + " is said to be at fault");
    return df11::DecodeCompletion(status);
  }

 private:
  df11::Df11DecodeStage& stage_;
};

// ---- how a path cuts a unit

struct Pieces {
  std::uint64_t segment_weights = 0;
  std::uint64_t slab_weights = UnitCompressorOptions{}.slab_weights;
  std::uint64_t slab_chunks = UnitDecoder::kDefaultSlabChunks;
  std::string text;  ///< of small ones
};

/// At most 64 segments and 8 slabs: a GPU has to be waited for after each of them.
Pieces pieces_for(const CodecPath& path, const SelftestUnit& unit) {
  Pieces pieces;
  pieces.segment_weights = path.segment_weights;
  if (!path.in_pieces) return pieces;
  const std::uint64_t count = unit.weights.size();
  pieces.segment_weights = (count / 64 + 1 + chosen(unit.seed, 0, count / 4 + 1)) | 1;
  pieces.slab_weights = std::max(count / 8, pieces.segment_weights * (1 + chosen(unit.seed, 1, 3)));
  pieces.slab_chunks = 1 + chosen(unit.seed, 2, 3);
  pieces.text = " [segments of " + text(pieces.segment_weights) + ", slabs of " + text(pieces.slab_weights) +
                " weights and of " + text(pieces.slab_chunks) + " chunks]";
  return pieces;
}

// ---- encoding

struct Encoded {
  Df11Unit unit;
  UnitSizes sizes;
};

constexpr std::pair<const char*, std::vector<std::uint8_t> Df11Unit::*> kBuffers[] = {
    {"luts", &Df11Unit::luts},
    {"encoded_exponent", &Df11Unit::encoded_exponent},
    {"sign_mantissa", &Df11Unit::sign_mantissa},
    {"output_positions", &Df11Unit::output_positions},
    {"gaps", &Df11Unit::gaps}};

/// Clauses about all buffers that differ; empty: none does.
std::string difference(const Df11Unit& unit, const Df11Unit& expected) {
  std::string found;
  for (const auto& [name, buffer] : kBuffers) add_difference(found, name, unit.*buffer, expected.*buffer);
  return found;
}

// ---- decoding

enum class Reading : std::uint8_t { kWeights, kComparison, kLengths };
constexpr const char* kReadingNames[] = {"decoding", "comparing with the weights", "checking lengths"};

/// A bit that is not as it should be, and how it is looked for.
struct Fault {
  Reading reading = Reading::kWeights;
  /// Of kBuffers; beyond them: of the weights that the unit is compared with.
  std::size_t buffer = 0;
  std::uint64_t byte = 0;  ///< of the weights: the weight
  std::uint32_t bit = 0;

  bool is_in_unit() const { return buffer < std::size(kBuffers); }
  void flip(Df11Unit& unit, Words& source) const {
    if (is_in_unit()) {
      std::uint8_t& flipped = (unit.*kBuffers[buffer].second)[byte];
      flipped = static_cast<std::uint8_t>(flipped ^ 1u << bit);
    } else {
      source[byte] = static_cast<std::uint16_t>(source[byte] ^ 1u << bit);
    }
  }
  std::string text() const {
    const std::string place = is_in_unit() ? "byte " + std::to_string(byte) + " of " + kBuffers[buffer].first
                                           : "weight " + std::to_string(byte) + " of the source";
    return "with bit " + std::to_string(bit) + " of " + place + " flipped, ";
  }
};

Fault chosen_fault(const SelftestUnit& unit, const Df11Unit& encoded, std::uint64_t number) {
  const auto below = [&](std::uint64_t purpose, std::uint64_t bound) {
    return chosen(unit.seed, 16 * (number + 1) + purpose, bound);
  };
  Fault fault;
  // The bitstream twice: most kinds of faults are in it.
  fault.buffer = std::min<std::size_t>(below(0, std::size(kBuffers) + 2), std::size(kBuffers) + 1);
  if (fault.buffer > std::size(kBuffers)) fault.buffer = 1;
  if (fault.is_in_unit()) {
    fault.reading = static_cast<Reading>(below(1, std::size(kReadingNames)));
    fault.byte = below(2, (encoded.*kBuffers[fault.buffer].second).size());
    fault.bit = static_cast<std::uint32_t>(below(3, 8));
  } else {
    fault.reading = Reading::kComparison;
    fault.byte = below(2, unit.weights.size());
    fault.bit = static_cast<std::uint32_t>(below(3, 16));
  }
  return fault;
}

struct Reader {
  df11::Df11DecodeStage& stage;
  DecodeBuffers& buffers;
  std::uint64_t slab_chunks;
};

struct Found {
  std::optional<UnitFault> fault;
  bool kernel_ends = true;
  Words weights;  ///< if they were asked for and there is no fault
};

Found read(const Reader& reader, const Df11Unit& unit, const UnitSizes& sizes, Reading reading,
           const Words& source) {
  WatchedDecodeStage stage(reader.stage);
  const MemoryUnit bytes(view_of(unit));
  UnitDecoder decoder(sizes, bytes, stage, reader.buffers, reader.slab_chunks);
  Found found;
  switch (reading) {
    case Reading::kWeights:
      found.fault = decoder.decode([&](std::uint64_t, std::span<const std::uint16_t> slab) {
        found.weights.insert(found.weights.end(), slab.begin(), slab.end());
      });
      if (found.fault) found.weights.clear();
      break;
    case Reading::kComparison: {
      MemorySource weights(source);
      found.fault = decoder.compare(weights);
      break;
    }
    case Reading::kLengths:
      found.fault = decoder.check_lengths();
      break;
  }
  found.kernel_ends = decoder.kernel_ends();
  return found;
}

std::string fault_text(const std::optional<UnitFault>& fault) {
  if (!fault) return "no fault";
  return (fault->chunk == UnitFault::kNowhere ? "" : "in chunk " + text(fault->chunk) + " ") + "'" +
         fault->message + "'";
}

/// A clause; empty: it is what was expected.
std::string difference(const Found& found, const Found& expected) {
  const auto identity = [](const UnitFault& f) {
    return std::tie(f.kind, f.message, f.chunk, f.window, f.weight);
  };
  const bool same = found.fault && expected.fault ? identity(*found.fault) == identity(*expected.fault)
                                                  : !found.fault && !expected.fault;
  if (!same) return "finds " + fault_text(found.fault) + " instead of " + fault_text(expected.fault);
  if (found.fault) return {};
  if (found.kernel_ends != expected.kernel_ends)
    return std::string("says that the official kernel would ") + (found.kernel_ends ? "" : "not ") + "end";
  if (found.weights.size() != expected.weights.size())
    return "gives " + text(found.weights.size()) + " weights instead of " + text(expected.weights.size());
  const auto [is, should_be] = std::ranges::mismatch(found.weights, expected.weights);
  if (is == found.weights.end()) return {};
  return "gives other weights, the first is " + text(static_cast<std::uint64_t>(is - found.weights.begin())) +
         ": " + text(*is) + " instead of " + text(*should_be);
}

}  // namespace

// ---- paths

struct PathComparison::Path : PathLog {
  explicit Path(CodecPath given) : PathLog(given.name), path(std::move(given)) {}

  Result<Encoded> encode(const SelftestUnit& unit, const Pieces& pieces);

  const CodecPath path;
  SlabBuffers buffers;
  DecodeBuffers decode_buffers;
};

Result<Encoded> PathComparison::Path::encode(const SelftestUnit& unit, const Pieces& pieces) {
  UnitCompressorOptions options;
  options.coding = coding_options(unit.luts, false);
  options.segment_weights = pieces.segment_weights;
  options.slab_weights = pieces.slab_weights;
  MemorySource source(unit.weights);
  MemorySink sink;
  WatchedStages stages(*path.stages);
  const Result<df11::UnitPlan> plan = compress_unit(unit.name, source, sink, stages, buffers, options);
  if (!stages.problem().empty()) add_problem(stages.problem());
  if (!plan) return Unexpected(plan.error());
  return Encoded{std::move(sink.unit), unit_sizes(*plan)};
}

/// What the first path makes of a unit: the others must make the same.
struct PathComparison::Expected {
  Encoded encoded;
  std::vector<Fault> faults;
  std::vector<Found> found;  ///< of each
};

PathComparison::PathComparison(std::vector<CodecPath> paths) {
  assert(!paths.empty());
  for (CodecPath& path : paths) paths_.push_back(std::make_unique<Path>(std::move(path)));
}

PathComparison::~PathComparison() = default;

void PathComparison::measure(Path& path, const SelftestUnit& unit, Expected& expected) const {
  const Pieces pieces = pieces_for(path.path, unit);
  expected.encoded = path.encode(unit, pieces).value();
  const Df11Unit& made = expected.encoded.unit;
  const selftest::SlowDecoding slow = selftest::window_decode(
      {made.luts, made.encoded_exponent, made.sign_mantissa, made.output_positions, made.gaps});
  if (!slow.ok) {
    path.add_problem("the slow decoder finds '" + slow.problem + "'");
  } else if (slow.weights != unit.weights) {
    path.add_problem("the slow decoder reads other weights");
  }
  for (std::uint64_t i = 0; i < kFaultsOfUnit; ++i) {
    expected.faults.push_back(chosen_fault(unit, made, i));
    const Fault& fault = expected.faults.back();
    Df11Unit damaged = made;
    Words source = unit.weights;
    fault.flip(damaged, source);
    expected.found.push_back(read({*path.path.decode_stage, path.decode_buffers, pieces.slab_chunks}, damaged,
                                  expected.encoded.sizes, fault.reading, source));
    const std::optional<UnitFault>& found = expected.found.back().fault;
    if (!fault.is_in_unit() && (!found || found->weight != fault.byte))
      path.add_problem(fault.text() + kReadingNames[1] + " finds " + fault_text(found));
  }
}

void PathComparison::check(Path& path, const SelftestUnit& unit, const Expected& expected) const {
  const Pieces pieces = pieces_for(path.path, unit);
  const UnitSizes& sizes = expected.encoded.sizes;
  const Df11Unit& sound = expected.encoded.unit;
  if (&path != paths_.front().get()) {
    const Result<Encoded> encoded = path.encode(unit, pieces);
    const std::string problem = encoded ? difference((*encoded).unit, sound) : encoded.error().message;
    if (!problem.empty()) path.add_problem(problem);
  }
  const Reader reader{*path.path.decode_stage, path.decode_buffers, pieces.slab_chunks};
  for (const Reading reading : {Reading::kWeights, Reading::kComparison, Reading::kLengths}) {
    Found wanted;
    if (reading == Reading::kWeights) wanted.weights = unit.weights;
    const std::string problem = difference(read(reader, sound, sizes, reading, unit.weights), wanted);
    if (!problem.empty())
      path.add_problem(std::string(kReadingNames[static_cast<std::size_t>(reading)]) + " " + problem);
  }
  if (&path == paths_.front().get()) return;
  for (std::size_t i = 0; i < expected.faults.size(); ++i) {
    const Fault& fault = expected.faults[i];
    Df11Unit damaged = sound;
    Words source = unit.weights;
    fault.flip(damaged, source);
    const std::string problem =
        difference(read(reader, damaged, sizes, fault.reading, source), expected.found[i]);
    if (!problem.empty())
      path.add_problem(fault.text() + kReadingNames[static_cast<std::size_t>(fault.reading)] + " " + problem);
  }
}

void PathComparison::add(const SelftestUnit& unit) {
  Expected expected;
  for (const std::unique_ptr<Path>& path : paths_) {
    const bool is_first = path == paths_.front();
    path->try_unit(unit.name + pieces_for(path->path, unit).text, is_first, [&] {
      if (path->path.use) path->path.use();
      if (is_first) measure(*path, unit, expected);
      check(*path, unit, expected);
    });
  }
}

std::vector<SelftestPath> PathComparison::outcome() const {
  std::vector<SelftestPath> outcome;
  for (const std::unique_ptr<Path>& path : paths_) outcome.push_back(path->outcome());
  return outcome;
}

}  // namespace weightpress::job
