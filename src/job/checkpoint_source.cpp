#include "job/checkpoint_source.h"

#include <algorithm>
#include <cassert>
#include <mutex>

#include "job/parallel_io.h"

namespace weightpress::job {

model::CastCounts read_elements(const model::Checkpoint& checkpoint, const model::ModelTensor& tensor,
                                std::uint64_t first, std::uint64_t count, std::uint8_t* data) {
  const model::SourceTensor& source = checkpoint.tensors()[tensor.source_index];
  assert(tensor.dtype == model::Dtype::kBf16);
  if (source.dtype == model::Dtype::kBf16) {
    checkpoint.read(source, 2 * first, 2 * count, data);
    return {};
  }
  constexpr std::uint64_t kPieceElements = std::uint64_t{64} << 10;  // stays in the second-level cache
  const std::uint64_t element_bytes = model::dtype_bits(source.dtype) / 8;
  std::vector<std::uint8_t> piece(std::min(count, kPieceElements) * element_bytes);
  model::CastCounts counts;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t now = std::min(kPieceElements, count - done);
    checkpoint.read(source, (first + done) * element_bytes, now * element_bytes, piece.data());
    counts +=
        model::cast_to_bf16(source.dtype, piece.data(), {reinterpret_cast<std::uint16_t*>(data) + done, now});
    done += now;
  }
  return counts;
}

bool same_content(const model::Checkpoint& checkpoint, const model::ModelTensor& a,
                  const model::ModelTensor& b) {
  const model::SourceTensor& source_a = checkpoint.tensors()[a.source_index];
  const model::SourceTensor& source_b = checkpoint.tensors()[b.source_index];
  if (a.dtype != b.dtype || source_a.shape != source_b.shape) return false;
  constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
  const bool is_bf16 = a.dtype == model::Dtype::kBf16;
  const auto read = [&](const model::ModelTensor& tensor, const model::SourceTensor& source,
                        std::uint64_t first, std::vector<std::uint8_t>& piece) {
    if (is_bf16) {
      read_elements(checkpoint, tensor, first / 2, piece.size() / 2, piece.data());
    } else {
      checkpoint.read(source, first, piece.size(), piece.data());
    }
  };
  std::vector<std::uint8_t> piece_a, piece_b;
  for (std::uint64_t done = 0; done < a.size_bytes(); done += piece_a.size()) {
    piece_a.resize(std::min(kPieceBytes, a.size_bytes() - done));
    piece_b.resize(piece_a.size());
    read(a, source_a, done, piece_a);
    read(b, source_b, done, piece_b);
    if (piece_a != piece_b) return false;
  }
  return true;
}

CheckpointSource::CheckpointSource(const model::Checkpoint& checkpoint, const model::ModelView& view,
                                   const model::Unit& unit, int num_threads, bool hashes)
    : checkpoint_(checkpoint), view_(view), unit_(unit), num_threads_(num_threads), begins_{0} {
  for (const std::size_t index : unit.tensors) {
    begins_.push_back(begins_.back() + view.tensors[index].num_elements);
    if (hashes) hashes_.emplace_back(2 * view.tensors[index].num_elements);
  }
}

std::uint64_t CheckpointSource::source_hash() const {
  std::vector<std::uint64_t> digests;
  for (const BlockHash& hash : hashes_) digests.push_back(hash.digest());
  return xxh3_of(digests);
}

std::size_t CheckpointSource::tensor_of(std::uint64_t index) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), index);
  return static_cast<std::size_t>(after - begins_.begin()) - 1;
}

void CheckpointSource::read(std::uint64_t first, std::span<std::uint16_t> weights) {
  // Read again in other pieces than before, a piece may begin with what is counted already.
  if (first < counted_weights_ && weights.size() > counted_weights_ - first) {
    const std::uint64_t counted = counted_weights_ - first;
    read(first, weights.first(counted));
    read(first + counted, weights.subspan(counted));
    return;
  }
  // BF16 words are read as they lie in the file; the format and the machine are little-endian.
  const bool is_first_time = first == counted_weights_;
  if (is_first_time) counted_weights_ += weights.size();
  for (std::size_t tensor = tensor_of(first); !weights.empty(); ++tensor) {
    const std::uint64_t skip = first - begins_[tensor];
    const std::uint64_t count = std::min<std::uint64_t>(begins_[tensor + 1] - first, weights.size());
    if (count != 0) {
      const model::ModelTensor& from = view_.tensors[unit_.tensors[tensor]];
      std::mutex mutex;
      auto* const out = reinterpret_cast<std::uint8_t*>(weights.data());
      transfer_on_grid(
          2 * skip, 2 * (skip + count), num_threads_, [&](std::uint64_t offset, std::uint64_t bytes) {
            std::uint8_t* const piece = out + (offset - 2 * skip);
            const model::CastCounts counts = read_elements(checkpoint_, from, offset / 2, bytes / 2, piece);
            if (!is_first_time) return;
            if (!hashes_.empty()) hashes_[tensor].add(offset, piece, bytes);
            const std::lock_guard lock(mutex);
            if (!from.is_tied_copy) cast_counts_ += counts;
          });
    }
    weights = weights.subspan(count);
    first += count;
  }
}

std::pair<std::size_t, std::uint64_t> CheckpointSource::locate(std::uint64_t index) const {
  const std::size_t tensor = tensor_of(index);
  return {view_.tensors[unit_.tensors[tensor]].source_index, index - begins_[tensor]};
}

}  // namespace weightpress::job
