// Several GPUs as one, and slabs that do not fit into a GPU's memory: tiles are shared out in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "device/tile_ans_back_end.h"

namespace weightpress::device {

class TileAnsBackEnds final : public TileAnsBackEnd {
 public:
  /// One or more.
  explicit TileAnsBackEnds(std::vector<std::unique_ptr<TileAnsBackEnd>> back_ends)
      : back_ends_(std::move(back_ends)) {}

  // The work is done when a call returns. Errors are those of the GPUs: kOutOfMemory if one tile does not
  // fit.
  tile_ans::Completion histogram(const tile_ans::HistogramArguments& arguments) override;
  tile_ans::Completion sizes(const tile_ans::EncodeArguments& arguments) override;
  tile_ans::Completion encode(const tile_ans::EncodeArguments& arguments) override;
  tile_ans::Completion decode(const tile_ans::DecodeArguments& arguments) override;
  std::uint64_t decoded_sum() const override { return decoded_sum_; }
  /// GPUs share pinned memory.
  std::shared_ptr<void> pinned(std::uint64_t bytes) override { return back_ends_.front()->pinned(bytes); }

 private:
  /// Items from `first` on, tiles or elements.
  struct Part {
    std::uint64_t first = 0, count = 0;
  };
  /// gpu: its number. Arguments of each must live as long as those of all are in use.
  using Begin = std::function<tile_ans::Completion(std::size_t gpu, const Part& part)>;
  using End = std::function<void(std::size_t gpu, const Part& part)>;

  /// Calls begin() for parts that make up all items, a part a GPU at once, and end() for each that is done,
  /// in order. Returns the status of the first part with a fault; of those behind it nothing is told.
  tile_ans::StageStatus run(std::uint64_t num_items, const Begin& begin, const End& end);

  const std::vector<std::unique_ptr<TileAnsBackEnd>> back_ends_;
  std::uint64_t decoded_sum_ = 0;
};

}  // namespace weightpress::device
