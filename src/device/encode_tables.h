// A codebook as the encoder's kernels want it.
#pragma once

#include "format/codebook.h"
#include "kernels/df11_policy.h"

namespace weightpress::device {

EncodeTables make_encode_tables(const df11::Codebook& codebook);

}  // namespace weightpress::device
