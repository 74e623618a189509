// Puts the pieces of neighbouring slabs together: bytes and gap groups that they share.
#pragma once

#include <cstdint>
#include <span>

#include "format/stages.h"

namespace weightpress::df11 {

/// Carries the unfinished byte and gap group of one slab into the next. Call add() once a slab, in order,
/// before the slab's pieces are written out.
class SlabJoiner {
 public:
  /// encoded_exponent, gaps: the slab's pieces, completed in place. border: what the slab left.
  void add(std::span<std::uint8_t> encoded_exponent, std::span<std::uint8_t> gaps, const SlabBorder& border);

  /// What the slabs so far left unfinished.
  const SlabBorder& carried() const { return carried_; }

 private:
  SlabBorder carried_;
};

}  // namespace weightpress::df11
