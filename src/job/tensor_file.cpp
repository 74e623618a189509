#include "job/tensor_file.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <mutex>
#include <utility>

#include "job/block_hash.h"
#include "job/checkpoint_source.h"
#include "job/hash_ranges.h"
#include "job/parallel_io.h"
#include "model/df11_model.h"
#include "model/safetensors_header.h"
#include "model/tensor_hashes.h"
#include "model/text.h"

namespace weightpress::job {
namespace {

using model::Dtype;

using model::Df11Buffer;

// The buffers that the codec makes; split_positions is the sixth.
constexpr std::size_t kNumCodecBuffers = model::kNumDf11Buffers - 1;

std::string buffer_name(const model::Unit& unit, Df11Buffer buffer) {
  return unit.name + "." + std::string(model::df11_buffer_name(buffer));
}

}  // namespace

/// Writes a unit's buffers to their places.
struct TensorFile::UnitPlace final : UnitSink, UnitBytes {
  explicit UnitPlace(TensorFile& whole) : file(whole) {}

  void begin(const df11::UnitPlan&) override {}
  void write(UnitBuffer buffer, std::uint64_t offset_bytes, std::span<const std::uint8_t> bytes) override {
    const std::uint64_t place = place_of(buffer);
    BlockHash& hash = hashes[static_cast<std::size_t>(buffer)];
    transfer_on_grid(offset_bytes, offset_bytes + bytes.size(), file.num_threads_,
                     [&](std::uint64_t offset, std::uint64_t count) {
                       const std::uint8_t* const piece = bytes.data() + (offset - offset_bytes);
                       hash.add(offset, piece, count);
                       // Other bits can decode to the same weights (EOF's code, constant units), but are not
                       // what was encoded.
                       if (buffer == UnitBuffer::kEncodedExponent) {
                         file.write_and_check(piece, count, place + offset, "a bitstream");
                       } else {
                         file.file_->write_at(piece, count, place + offset);
                       }
                     });
  }

  void read(UnitBuffer buffer, std::uint64_t offset_bytes, std::span<std::uint8_t> bytes) const override {
    const std::uint64_t place = place_of(buffer) + offset_bytes;
    transfer_in_pieces(bytes.size(), file.num_threads_, [&](std::uint64_t offset, std::uint64_t count) {
      file.file_->read_at(bytes.data() + offset, count, place + offset);
    });
  }

  std::uint64_t place_of(UnitBuffer buffer) const {
    return file.offsets_[first_spec + static_cast<std::size_t>(buffer)];
  }

  TensorFile& file;
  std::size_t first_spec = 0;  // of the five buffers in order; split_positions follow
  std::vector<std::int64_t> split_positions;
  std::vector<BlockHash> hashes;  // of what is written of the five, from sink() to end_unit()
  std::uint64_t output_hash = 0;  // once the unit has ended
};

TensorFile::TensorFile(const model::Checkpoint& checkpoint, const model::ModelView& view,
                       std::filesystem::path path, int num_threads, bool read_back)
    : checkpoint_(checkpoint),
      view_(view),
      path_(std::move(path)),
      num_threads_(num_threads),
      read_back_(read_back) {}

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
    specs_.push_back(
        {buffer_name(unit, df11_buffer(static_cast<UnitBuffer>(buffer))), Dtype::kU8, shapes[buffer]});
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

void TensorFile::lay_out(std::string_view metadata_json, bool with_hashes) {
  with_hashes_ = with_hashes;
  if (with_hashes) {
    lay_out_with_hashes(metadata_json);
  } else {
    layout_ = model::plan_safetensors_layout(specs_, metadata_json).value();
  }
  offsets_.resize(specs_.size());
  for (const model::TensorPlacement& placement : layout_.tensors)
    offsets_[placement.spec_index] = placement.offset_bytes;
}

void TensorFile::lay_out_with_hashes(std::string_view metadata_json) {
  const std::vector<std::size_t> order = model::data_order(specs_);
  std::vector<std::string_view> names;
  for (const std::size_t spec : order) names.emplace_back(specs_[spec].name);
  const model::ReservedHashes reserved = model::reserve_hashes(metadata_json, names);
  layout_ = model::plan_safetensors_layout(specs_, reserved.metadata_json).value();
  hash_offsets_.resize(specs_.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    hash_offsets_[order[i]] = model::kMetadataOffset + reserved.tensor_offsets[i];
  set_hash(model::kMetadataOffset + reserved.header_offset,
           model::sha256(std::string_view(layout_.header).substr(8)));
}

void TensorFile::set_hash(std::uint64_t header_offset, const model::Sha256Digest& digest) {
  layout_.header.replace(header_offset, model::kSha256HexDigits, model::hex_of(digest));
}

void TensorFile::create() {
  const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(path_));
  file_ = std::make_shared<model::File>(is_there ? model::File::open_readwrite(path_)
                                                 : model::File::create(path_));
  if (file_->size_bytes() > file_bytes()) file_->truncate(file_bytes());
  const auto put = [&](const void* data, std::uint64_t bytes, std::uint64_t offset, std::string_view what) {
    // What an earlier run has written stays untouched.
    if (!is_there || !holds(data, bytes, offset)) write_and_check(data, bytes, offset, what);
  };
  put(layout_.header.data(), layout_.header.size(), 0, "the header");
  for (const auto& unit : units_) {
    const std::vector<std::int64_t>& splits = unit->split_positions;
    put(splits.data(), splits.size() * sizeof splits[0], offsets_[unit->first_spec + kNumCodecBuffers],
        "a buffer split_positions");
  }
  // A file whose last tensors are empty, or that is all header, has its size by now; others get it here.
  if (file_->size_bytes() < file_bytes()) file_->truncate(file_bytes());
}

bool TensorFile::holds(const void* data, std::uint64_t bytes, std::uint64_t offset) const {
  if (bytes == 0) return true;  // even where the file does not reach yet
  if (offset + bytes > file_->size_bytes()) return false;
  thread_local std::vector<std::uint8_t> stored;  // kept: fresh memory costs a page fault every 4 KiB
  stored.resize(std::max<std::size_t>(stored.size(), bytes));
  file_->read_at(stored.data(), bytes, offset);
  return std::memcmp(stored.data(), data, bytes) == 0;
}

UnitSink& TensorFile::sink(std::size_t unit) {
  UnitPlace& place = *units_[unit];
  place.hashes.clear();
  for (std::size_t buffer = 0; buffer < kNumCodecBuffers; ++buffer)
    place.hashes.emplace_back(size_bytes(place.first_spec + buffer));
  return place;
}

const UnitBytes& TensorFile::stored(std::size_t unit) const {
  return *units_[unit];
}

void TensorFile::end_unit(std::size_t unit) {
  UnitPlace& place = *units_[unit];
  if (!place.hashes.empty()) {
    std::array<std::uint64_t, kNumCodecBuffers> digests;
    std::ranges::transform(place.hashes, digests.begin(), &BlockHash::digest);
    place.output_hash = xxh3_of(digests);
    place.hashes.clear();
  }
  for (std::size_t buffer = 0; buffer < model::kNumDf11Buffers; ++buffer) end_spec(place.first_spec + buffer);
}

WrittenRecord TensorFile::record_of(std::size_t unit) const {
  const UnitPlace& place = *units_[unit];
  WrittenRecord record;
  record.file = path_.filename().native();
  record.offset_bytes = offsets_[place.first_spec];
  for (std::size_t buffer = 0; buffer < model::kNumDf11Buffers; ++buffer)
    record.size_bytes += size_bytes(place.first_spec + buffer);
  record.num_tables = specs_[place.first_spec].shape[0] - 1;
  record.output_hash = place.output_hash;
  record.verified = read_back_;
  return record;
}

bool TensorFile::takes_over_unit(std::size_t unit, const WrittenRecord& record) {
  UnitPlace& place = *units_[unit];
  const WrittenRecord planned = record_of(unit);
  if (record.file != planned.file || record.offset_bytes != planned.offset_bytes ||
      record.size_bytes != planned.size_bytes || record.num_tables != planned.num_tables) {
    return false;
  }
  std::array<std::uint64_t, kNumCodecBuffers> digests;
  for (std::size_t buffer = 0; buffer < kNumCodecBuffers; ++buffer) {
    const std::size_t spec = place.first_spec + buffer;
    const auto digest = hash_stored(offsets_[spec], size_bytes(spec));
    if (!digest) return false;
    digests[buffer] = *digest;
  }
  if (xxh3_of(digests) != record.output_hash) return false;
  place.output_hash = record.output_hash;
  end_unit(unit);
  return true;
}

std::optional<std::uint64_t> TensorFile::hash_stored(std::uint64_t offset, std::uint64_t bytes) const {
  if (bytes != 0 && offset + bytes > file_->size_bytes()) return std::nullopt;
  BlockHash hash(bytes);
  transfer_in_pieces(bytes, num_threads_, [&](std::uint64_t first, std::uint64_t count) {
    thread_local std::vector<std::uint8_t> piece;
    piece.resize(std::max<std::size_t>(piece.size(), count));
    file_->read_at(piece.data(), count, offset + first);
    hash.add(first, piece.data(), count);
  });
  return hash.digest();
}

void TensorFile::copy_tensors(const std::function<const CopiedRecord*(const std::string&)>& past,
                              const std::function<void(const Copied&)>& on_copied) {
  for (const Copy& copied : copies_) {
    const model::ModelTensor& tensor = view_.tensors[copied.tensor];
    const std::uint64_t offset = offsets_[copied.spec], bytes = tensor.size_bytes();
    const CopiedRecord* const before = past(tensor.name);
    const bool taken_over = before != nullptr && hash_stored(offset, bytes) == before->output_hash;
    CopiedRecord record = taken_over ? *before : copy(tensor, offset);
    if (!tensor.is_tied_copy) cast_counts_ += record.cast;
    end_spec(copied.spec);
    on_copied({tensor.name, bytes, std::move(record), taken_over});
  }
}

CopiedRecord TensorFile::copy(const model::ModelTensor& tensor, std::uint64_t offset) {
  const model::SourceTensor& source = checkpoint_.tensors()[tensor.source_index];
  const bool is_cast = tensor.dtype != source.dtype;
  CopiedRecord record{.file = path_.filename().native(), .output_hash = 0, .cast = {}};
  std::mutex mutex;
  BlockHash hash(tensor.size_bytes());
  transfer_in_pieces(tensor.size_bytes(), num_threads_, [&](std::uint64_t first, std::uint64_t bytes) {
    thread_local std::vector<std::uint8_t> piece;  // kept: fresh memory costs a page fault every 4 KiB
    piece.resize(std::max<std::size_t>(piece.size(), bytes));
    model::CastCounts counts;
    if (is_cast) {
      counts = read_elements(checkpoint_, tensor, first / 2, bytes / 2, piece.data());
    } else {
      checkpoint_.read(source, first, bytes, piece.data());
    }
    hash.add(first, piece.data(), bytes);
    write_and_check(piece.data(), bytes, offset + first, tensor.name);
    const std::lock_guard lock(mutex);
    record.cast += counts;
  });
  record.output_hash = hash.digest();
  return record;
}

void TensorFile::write_and_check(const void* data, std::uint64_t bytes, std::uint64_t offset,
                                 std::string_view what) {
  file_->write_at(data, bytes, offset);
  if (!read_back_ || holds(data, bytes, offset)) return;
  throw Error(ErrorCode::kVerificationFailed,
              model::printable(path_.native()) + ": " + model::printable(what) +
                  " does not read back as it was written; the disk or the memory of this machine is faulty");
}

std::uint64_t TensorFile::size_bytes(std::size_t spec) const {
  return model::checked_size_bytes(specs_[spec].dtype, specs_[spec].shape).value();
}

void TensorFile::end_spec(std::size_t spec) {
  if (!with_hashes_) return;
  unhashed_.push_back(spec);
  unhashed_bytes_ += size_bytes(spec);
}

void TensorFile::hash_written(std::span<TensorFile* const> files, int num_threads) {
  std::vector<FileRange> ranges;
  for (const TensorFile* file : files)
    for (const std::size_t spec : file->unhashed_)
      ranges.push_back({&*file->file_, file->offsets_[spec], file->size_bytes(spec)});
  const std::vector<model::Sha256Digest> digests = hash_ranges(ranges, num_threads);
  auto digest = digests.begin();
  for (TensorFile* file : files) {
    for (const std::size_t spec : file->unhashed_) file->set_hash(file->hash_offsets_[spec], *digest++);
    file->unhashed_.clear();
    file->unhashed_bytes_ = 0;
  }
}

void TensorFile::finish() {
  if (with_hashes_) {
    if (!unhashed_.empty()) hash_written(std::array{this}, num_threads_);
    write_and_check(layout_.header.data(), layout_.header.size(), 0, "the header");
  }
}

}  // namespace weightpress::job
