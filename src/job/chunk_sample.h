// Chooses the chunks that `verify --level sample` looks at.
#pragma once

#include <cstdint>
#include <vector>

namespace weightpress::job {

/// Ascending chunks of each unit. must_have: by unit, in any order, also twice; taken whatever num_samples
/// is. num_chunks: by unit. What is left of num_samples is drawn from all other chunks, each equally likely.
/// The same arguments give the same chunks on every machine.
std::vector<std::vector<std::uint64_t>> choose_chunks(std::vector<std::vector<std::uint64_t>> must_have,
                                                      const std::vector<std::uint64_t>& num_chunks,
                                                      std::uint64_t num_samples, std::uint64_t seed);

}  // namespace weightpress::job
