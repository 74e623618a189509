// A model's tensors as the output will have them: key rules, ties and casts applied to a checkpoint.
//
// Rules change names, never values: prefixes are taken off, tensors are left out, names are rewritten. What
// was left out is kept on a list, with the reason, since it must be told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.h"
#include "model/checkpoint.h"
#include "model/definition.h"

namespace weightpress::model {

/// The two tensors that transformers ties.
inline constexpr std::string_view kLmHeadName = "lm_head.weight";
inline constexpr std::string_view kEmbeddingName = "model.embed_tokens.weight";

struct ModelTensor {
  std::string name;              ///< in the output
  std::size_t source_index = 0;  ///< into Checkpoint::tensors()
  Dtype dtype = Dtype::kBool;    ///< in the output; the source's own unless it is cast
  std::uint64_t num_elements = 0;
  bool is_tied_copy = false;  ///< a second use of another tensor's data

  std::uint64_t size_bytes() const { return num_elements * dtype_bits(dtype) / 8; }
};

struct DroppedTensor {
  std::size_t source_index = 0;
  std::string reason;   ///< a clause: "the rule drop '^accum_' matches it"
  std::string tied_to;  ///< the source tensor that holds the same bytes, if that is the reason
};

struct ModelView {
  std::vector<ModelTensor> tensors;  ///< sorted by name, byte by byte
  std::vector<DroppedTensor> dropped;

  /// Index into tensors; nothing if there is none.
  std::optional<std::size_t> find(std::string_view name) const;
};

/// Applies the key rules in their order: keep_only_prefix, strip_prefixes, drop, rename. Errors:
/// kNameConflict (two tensors get one name), kBadDefinition (a pattern that is no pattern or runs for ever).
Result<ModelView> apply_key_rules(const Checkpoint& checkpoint, const ModelDefinition& definition);

/// Adds lm_head.weight as a second use of the embedding, if it is absent and the definition has tied_lm_head.
/// For models whose embeddings are tied. Returns whether it was added.
bool add_tied_lm_head(const ModelDefinition& definition, ModelView& view);

/// Marks all F32 and F16 tensors that keep_dtype does not match as BF16. Returns how many.
std::uint64_t cast_floats_to_bf16(const Checkpoint& checkpoint, const ModelDefinition& definition,
                                  ModelView& view);

}  // namespace weightpress::model
