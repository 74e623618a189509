// Does the official kernel end on a unit's padding? (docs/format.md, "Padding")
//
// After the last weight its threads go on decoding until their windows are used up. A look-up that leads to
// an exponent without a code, or to no table, then loops for ever: the GPU hangs. Encoder and verifier both
// ask here.
#pragma once

#include <span>

#include "format/lookup_tables.h"
#include "format/stream_layout.h"

namespace weightpress::df11 {

/// rows: the tables and the row of code lengths, at least two; any bytes are allowed.
bool official_kernel_ends(std::span<const LookupRow> rows, const StreamEnd& end);

/// True if decoding ends whatever the bits are: no entry leads to an exponent without a code or to no table,
/// and every pointer leads to a table that was not on the way to it, at most four levels deep. Safe tables
/// are total.
bool tables_are_total(std::span<const LookupRow> rows);

}  // namespace weightpress::df11
