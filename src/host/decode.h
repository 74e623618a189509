// The stage of format/decode_stage.h on the CPU: OpenMP over chunks.
#pragma once

#include <memory>
#include <vector>

#include "format/decode_stage.h"
#include "host/chunk_decoder.h"
#include "host/decode_table.h"

namespace weightpress::host {

/// A thread's memory.
struct DecodeWorkspace {
  std::uint8_t exponents[kMaxChunkCodes + kExponentSlack];
  std::uint8_t gaps[df11::kWindowsPerChunk + df11::kWindowsPerGapGroup];
  std::uint8_t bytes[df11::kChunkBytes + ChunkInput::kPaddingBytes];  // of a chunk near the end of the slab
};

class HostDecodeStage final : public df11::Df11DecodeStage {
 public:
  /// num_threads: 1 or more; usable_num_threads() says how many the system allows. The outcome does not
  /// depend on it.
  explicit HostDecodeStage(int num_threads) : num_threads_(num_threads) {}

  df11::DecodeCompletion decode(const df11::DecodeArguments& arguments) override;

 private:
  int num_threads_;
  DecodeTable table_;                                         // of the unit before
  std::vector<std::unique_ptr<DecodeWorkspace>> workspaces_;  // one a thread
};

}  // namespace weightpress::host
