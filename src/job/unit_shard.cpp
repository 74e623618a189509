#include "job/unit_shard.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "job/parallel_io.h"

namespace weightpress::job {
namespace {

using model::Dtype;
using model::TensorSpec;

// In the order of UnitBuffer.
constexpr std::array<const char*, 5> kBufferNames = {"luts", "encoded_exponent", "sign_mantissa",
                                                     "output_positions", "gaps"};

}  // namespace

CheckpointSource::CheckpointSource(const model::Checkpoint& checkpoint, const model::Unit& unit,
                                   int num_threads)
    : checkpoint_(checkpoint), unit_(unit), num_threads_(num_threads), begins_{0} {
  for (const std::size_t index : unit.tensors) {
    begins_.push_back(begins_.back() + checkpoint.tensors()[index].size_bytes / 2);
  }
}

std::size_t CheckpointSource::tensor_of(std::uint64_t index) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), index);
  return static_cast<std::size_t>(after - begins_.begin()) - 1;
}

void CheckpointSource::read(std::uint64_t first, std::span<std::uint16_t> weights) {
  // BF16 words are read as they lie in the file; the format and the machine are little-endian.
  for (std::size_t tensor = tensor_of(first); !weights.empty(); ++tensor) {
    const std::uint64_t skip = first - begins_[tensor];
    const std::uint64_t count = std::min<std::uint64_t>(begins_[tensor + 1] - first, weights.size());
    if (count != 0) {
      const model::SourceTensor& from = checkpoint_.tensors()[unit_.tensors[tensor]];
      auto* const to = reinterpret_cast<std::uint8_t*>(weights.data());
      transfer_in_pieces(2 * count, num_threads_, [&](std::uint64_t offset, std::uint64_t bytes) {
        checkpoint_.read(from, 2 * skip + offset, bytes, to + offset);
      });
    }
    weights = weights.subspan(count);
    first += count;
  }
}

std::pair<std::string, std::uint64_t> CheckpointSource::locate(std::uint64_t index) const {
  const std::size_t tensor = tensor_of(index);
  return {checkpoint_.tensors()[unit_.tensors[tensor]].name, index - begins_[tensor]};
}

UnitShard::UnitShard(const model::Checkpoint& checkpoint, const model::Unit& unit, std::filesystem::path path,
                     int num_threads)
    : checkpoint_(checkpoint), unit_(unit), path_(std::move(path)), num_threads_(num_threads) {}

void UnitShard::begin(const df11::UnitPlan& plan) {
  const std::array<std::vector<std::uint64_t>, kNumBuffers> shapes = {
      {{plan.tables.rows.size(), df11::kNumSymbols},
       {plan.layout.num_bytes},
       {plan.layout.num_weights},
       {plan.layout.positions_bytes()},
       {plan.layout.gaps_bytes}}};
  std::vector<TensorSpec> specs;
  for (std::size_t buffer = 0; buffer < kNumBuffers; ++buffer) {
    specs.push_back({unit_.name + "." + kBufferNames[buffer], Dtype::kU8, shapes[buffer]});
  }
  specs.push_back({unit_.name + ".split_positions", Dtype::kI64, {unit_.tensors.size() - 1}});
  for (const std::size_t index : unit_.siblings) {
    const model::SourceTensor& sibling = checkpoint_.tensors()[index];
    specs.push_back({sibling.name, sibling.dtype, sibling.shape});
  }
  layout_ = model::plan_safetensors_layout(specs, std::nullopt).value();

  file_.push_back(model::File::create(path_));
  model::File& file = file_.front();
  file.write_at(layout_.header.data(), layout_.header.size(), 0);
  for (const model::TensorPlacement& placement : layout_.tensors) {
    if (placement.spec_index < kNumBuffers) {
      buffer_offsets_[placement.spec_index] = placement.offset_bytes;
    } else if (placement.spec_index == kNumBuffers) {
      std::vector<std::int64_t> splits;
      std::int64_t end = 0;
      for (std::size_t i = 0; i + 1 < unit_.tensors.size(); ++i) {
        end += static_cast<std::int64_t>(checkpoint_.tensors()[unit_.tensors[i]].size_bytes / 2);
        splits.push_back(end);
      }
      file.write_at(splits.data(), splits.size() * sizeof splits[0], placement.offset_bytes);
    } else {
      const std::size_t sibling = placement.spec_index - kNumBuffers - 1;
      copy_tensor(checkpoint_, checkpoint_.tensors()[unit_.siblings[sibling]], file, placement.offset_bytes);
    }
  }
}

void UnitShard::write(UnitBuffer buffer, std::uint64_t offset_bytes, std::span<const std::uint8_t> bytes) {
  const std::uint64_t place = buffer_offsets_[static_cast<std::size_t>(buffer)] + offset_bytes;
  transfer_in_pieces(bytes.size(), num_threads_, [&](std::uint64_t offset, std::uint64_t count) {
    file_.front().write_at(bytes.data() + offset, count, place + offset);
  });
}

void UnitShard::finish() {
  file_.front().sync();
  file_.front().close();
}

void copy_tensor(const model::Checkpoint& checkpoint, const model::SourceTensor& tensor, model::File& file,
                 std::uint64_t offset) {
  constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;
  std::vector<std::uint8_t> piece(std::min(kPiece, tensor.size_bytes));
  for (std::uint64_t done = 0; done < tensor.size_bytes;) {
    const std::uint64_t bytes = std::min<std::uint64_t>(piece.size(), tensor.size_bytes - done);
    checkpoint.read(tensor, done, bytes, piece.data());
    file.write_at(piece.data(), bytes, offset + done);
    done += bytes;
  }
}

}  // namespace weightpress::job
