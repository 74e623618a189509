#include "job/tensor_file.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <mutex>
#include <utility>

#include "job/checkpoint_source.h"
#include "job/parallel_io.h"
#include "model/df11_model.h"

namespace weightpress::job {
namespace {

using model::Dtype;

using model::Df11Buffer;

// The buffers that the codec makes; split_positions is the sixth.
constexpr std::size_t kNumCodecBuffers = model::kNumDf11Buffers - 1;
static_assert(static_cast<int>(UnitBuffer::kLuts) == static_cast<int>(Df11Buffer::kLuts) &&
              static_cast<int>(UnitBuffer::kEncodedExponent) ==
                  static_cast<int>(Df11Buffer::kEncodedExponent) &&
              static_cast<int>(UnitBuffer::kSignMantissa) == static_cast<int>(Df11Buffer::kSignMantissa) &&
              static_cast<int>(UnitBuffer::kOutputPositions) ==
                  static_cast<int>(Df11Buffer::kOutputPositions) &&
              static_cast<int>(UnitBuffer::kGaps) == static_cast<int>(Df11Buffer::kGaps));

std::string buffer_name(const model::Unit& unit, Df11Buffer buffer) {
  return unit.name + "." + std::string(model::df11_buffer_name(buffer));
}

}  // namespace

/// Writes a unit's buffers to their places.
struct TensorFile::UnitPlace final : UnitSink {
  explicit UnitPlace(TensorFile& whole) : file(whole) {}

  void begin(const df11::UnitPlan&) override {}
  void write(UnitBuffer buffer, std::uint64_t offset_bytes, std::span<const std::uint8_t> bytes) override {
    const std::uint64_t place = file.offsets_[first_spec + static_cast<std::size_t>(buffer)] + offset_bytes;
    transfer_in_pieces(bytes.size(), file.num_threads_, [&](std::uint64_t offset, std::uint64_t count) {
      file.file_->write_at(bytes.data() + offset, count, place + offset);
    });
  }

  TensorFile& file;
  std::size_t first_spec = 0;  // of the five buffers in order; split_positions follow
  std::vector<std::int64_t> split_positions;
};

TensorFile::TensorFile(const model::Checkpoint& checkpoint, const model::ModelView& view,
                       std::filesystem::path path, int num_threads)
    : checkpoint_(checkpoint), view_(view), path_(std::move(path)), num_threads_(num_threads) {}

TensorFile::~TensorFile() = default;

std::size_t TensorFile::add_unit(const model::Unit& unit, const df11::UnitPlan& plan) {
  const std::array<std::vector<std::uint64_t>, kNumCodecBuffers> shapes = {
      {{plan.tables.rows.size(), df11::kNumSymbols},
       {plan.layout.num_bytes},
       {plan.layout.num_weights},
       {plan.layout.positions_bytes()},
       {plan.layout.gaps_bytes}}};
  auto place = std::make_unique<UnitPlace>(*this);
  place->first_spec = specs_.size();
  for (std::size_t buffer = 0; buffer < kNumCodecBuffers; ++buffer)
    specs_.push_back({buffer_name(unit, static_cast<Df11Buffer>(buffer)), Dtype::kU8, shapes[buffer]});
  std::int64_t end = 0;
  for (std::size_t i = 0; i + 1 < unit.tensors.size(); ++i) {
    end += static_cast<std::int64_t>(view_.tensors[unit.tensors[i]].num_elements);
    place->split_positions.push_back(end);
  }
  specs_.push_back(
      {buffer_name(unit, Df11Buffer::kSplitPositions), Dtype::kI64, {place->split_positions.size()}});
  add_tensors(unit.siblings);
  units_.push_back(std::move(place));
  return units_.size() - 1;
}

void TensorFile::add_tensors(const std::vector<std::size_t>& tensors) {
  for (const std::size_t index : tensors) {
    const model::ModelTensor& tensor = view_.tensors[index];
    copies_.push_back({index, specs_.size()});
    specs_.push_back({tensor.name, tensor.dtype, checkpoint_.tensors()[tensor.source_index].shape});
  }
}

void TensorFile::lay_out(const std::optional<std::string>& format_metadata) {
  layout_ = model::plan_safetensors_layout(specs_, format_metadata).value();
  offsets_.resize(specs_.size());
  for (const model::TensorPlacement& placement : layout_.tensors)
    offsets_[placement.spec_index] = placement.offset_bytes;
}

void TensorFile::create() {
  file_ = model::File::create(path_);
  file_->write_at(layout_.header.data(), layout_.header.size(), 0);
  for (const auto& unit : units_) {
    const std::vector<std::int64_t>& splits = unit->split_positions;
    file_->write_at(splits.data(), splits.size() * sizeof splits[0],
                    offsets_[unit->first_spec + kNumCodecBuffers]);
  }
}

UnitSink& TensorFile::sink(std::size_t unit) {
  return *units_[unit];
}

void TensorFile::copy_tensors(const std::function<void(std::uint64_t)>& on_copied) {
  for (const Copy& copied : copies_) {
    const model::ModelTensor& tensor = view_.tensors[copied.tensor];
    copy(tensor, offsets_[copied.spec]);
    if (on_copied) on_copied(tensor.size_bytes());
  }
}

void TensorFile::copy(const model::ModelTensor& tensor, std::uint64_t offset) {
  const model::SourceTensor& source = checkpoint_.tensors()[tensor.source_index];
  const bool is_cast = tensor.dtype != source.dtype;
  std::mutex mutex;
  transfer_in_pieces(tensor.size_bytes(), num_threads_, [&](std::uint64_t first, std::uint64_t bytes) {
    thread_local std::vector<std::uint8_t> piece;  // kept: fresh memory costs a page fault every 4 KiB
    piece.resize(std::max<std::size_t>(piece.size(), bytes));
    model::CastCounts counts;
    if (is_cast) {
      counts = read_elements(checkpoint_, tensor, first / 2, bytes / 2, piece.data());
    } else {
      checkpoint_.read(source, first, bytes, piece.data());
    }
    file_->write_at(piece.data(), bytes, offset + first);
    const std::lock_guard lock(mutex);
    if (!tensor.is_tied_copy) cast_counts_ += counts;
  });
}

void TensorFile::finish() {
  file_->sync();
  file_->close();
}

}  // namespace weightpress::job
