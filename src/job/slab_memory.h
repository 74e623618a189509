// Memory for slabs' pieces of buffers, of a kind that the caller picks: a GPU wants it pinned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace weightpress::job {

/// Gives memory aligned for any number: the one of a GPU's SlabDecoder, or none, which means ordinary memory.
using SlabMemory = std::function<std::shared_ptr<void>(std::uint64_t bytes)>;

/// Grows without copying or clearing, as PieceBuffer.
template <class T>
class SlabBuffer {
 public:
  /// Content is unspecified; what get() gave before is gone.
  std::span<T> get(const SlabMemory& memory, std::uint64_t count) {
    if (count > capacity_) {
      data_.reset();
      capacity_ = 0;
      const std::uint64_t capacity = count + count / 16;  // pieces of later slabs differ a little
      if (memory) {
        data_ = std::static_pointer_cast<T[]>(memory(capacity * sizeof(T)));
      } else {
        data_ = std::shared_ptr<T[]>(new T[capacity]);  // not cleared
      }
      capacity_ = capacity;
    }
    return {data_.get(), count};
  }

 private:
  std::shared_ptr<T[]> data_;
  std::uint64_t capacity_ = 0;
};

}  // namespace weightpress::job
