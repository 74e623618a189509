// SHA-256 of a safetensors file's tensors and of its header, stored in its __metadata__ (docs/format.md,
// "Stored hashes"). Only this file knows the keys.
//
// The header is settled before the file's first byte, the hashes are known after the last: so their places
// are reserved with zeros, and the header's own hash is that of the text with all of these zeros.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/result.h"
#include "model/file.h"
#include "model/sha256.h"

namespace weightpress::model {

/// What one more tensor of that name adds to __metadata__, at least, in bytes.
std::uint64_t hash_member_bytes(std::string_view tensor_name);

// ---- writing

struct ReservedHashes {
  /// The object of __metadata__, compact, with zeros where hashes go.
  std::string metadata_json;
  /// Where each tensor's hash begins in metadata_json, by the names given.
  std::vector<std::uint64_t> tensor_offsets;
  std::uint64_t header_offset = 0;
};

/// Adds members for hashes behind those of `metadata_json` (compact; empty: none). names: of all tensors of
/// the file, in data order.
ReservedHashes reserve_hashes(std::string_view metadata_json, std::span<const std::string_view> names);

// ---- reading

struct StoredHashes {
  std::vector<Sha256Digest> tensors;  ///< by the names given
  Sha256Digest header{};
  std::vector<std::uint64_t> offsets;  ///< of all of them in the metadata_json given, ascending
};

/// Whether a file with this metadata holds any hash.
bool has_stored_hashes(std::string_view metadata_json);

/// The hashes of a file; nothing if it has none. metadata_json: as SafetensorsHeader has it. names: of all
/// tensors of the file, in any order. kCorruptFile, beginning with `file_name` and naming the key, if a value
/// is no hash, or there is not exactly one for each tensor and one for the header.
Result<std::optional<StoredHashes>> parse_stored_hashes(std::string_view metadata_json,
                                                        std::span<const std::string_view> names,
                                                        const std::string& file_name);

/// Reads the header again and compares it with its hash; kCorruptFile if they differ. metadata_json, hashes:
/// of this file. Throws what File throws.
Result<void> check_header_hash(const File& file, std::string_view metadata_json, const StoredHashes& hashes);

}  // namespace weightpress::model
