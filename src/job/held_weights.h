// Memory in which the weights of units stay between planning and encoding, so that they are read once.
//
// One region for the whole run: fresh memory costs a page fault every 4 KiB, so it is asked for in huge pages
// and used again by the next unit.
#pragma once

#include <cstdint>
#include <span>

namespace weightpress::job {

class HeldWeights {
 public:
  /// Room for so many bytes; 0: none. Nothing is resident before it is used. Throws std::bad_alloc.
  explicit HeldWeights(std::uint64_t capacity_bytes);
  ~HeldWeights();
  HeldWeights(const HeldWeights&) = delete;
  HeldWeights& operator=(const HeldWeights&) = delete;

  /// Room for so many weights, until clear(); empty if there is not that much left.
  std::span<std::uint16_t> take(std::uint64_t num_weights);
  /// All that was taken is given back.
  void clear() { used_bytes_ = 0; }

 private:
  std::uint8_t* data_ = nullptr;
  std::uint64_t capacity_bytes_;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace weightpress::job
