// Several GPUs as one slab decoder: neighbouring lanes are on different GPUs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "device/slab_decoder.h"

namespace weightpress::device {

class SlabDecoders final : public SlabDecoder {
 public:
  /// One or more.
  explicit SlabDecoders(std::vector<std::unique_ptr<SlabDecoder>> decoders) : decoders_(std::move(decoders)) {
    int most = 0;
    for (const auto& decoder : decoders_) most = std::max(most, decoder->num_lanes());
    for (int lane = 0; lane < most; ++lane)
      for (const auto& decoder : decoders_)
        if (lane < decoder->num_lanes()) lanes_.emplace_back(decoder.get(), lane);
  }

  int num_lanes() const override { return static_cast<int>(lanes_.size()); }
  void begin(int lane, const df11::DecodeArguments& arguments) override {
    of(lane).first->begin(of(lane).second, arguments);
  }
  std::vector<DecodedPart> finish(int lane) override { return of(lane).first->finish(of(lane).second); }
  void abandon(int lane) noexcept override { of(lane).first->abandon(of(lane).second); }
  /// GPUs share pinned memory.
  std::shared_ptr<void> pinned(std::uint64_t bytes) override { return decoders_.front()->pinned(bytes); }

 private:
  const std::pair<SlabDecoder*, int>& of(int lane) const { return lanes_[static_cast<std::size_t>(lane)]; }

  std::vector<std::unique_ptr<SlabDecoder>> decoders_;
  std::vector<std::pair<SlabDecoder*, int>> lanes_;
};

}  // namespace weightpress::device
