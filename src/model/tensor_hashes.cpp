#include "model/tensor_hashes.h"

#include <algorithm>
#include <cassert>

#include "model/safetensors_header.h"
#include "model/safetensors_layout.h"
#include "model/text.h"

namespace weightpress::model {
namespace {

constexpr std::string_view kHeaderKey = "sha256";
constexpr std::string_view kTensorKeyPrefix = "sha256:";  // and the tensor's name

constexpr std::string_view kZeros = "0000000000000000000000000000000000000000000000000000000000000000";
static_assert(kZeros.size() == kSha256HexDigits);

// A text between its quotes as it stands in compact JSON, and where.
struct Spelling {
  std::string_view text;
  std::uint64_t offset_bytes = 0;
};

struct Member {
  Spelling key, value;

  bool is_hash() const { return key.text == kHeaderKey || key.text.starts_with(kTensorKeyPrefix); }
  std::string_view tensor_name() const { return key.text.substr(kTensorKeyPrefix.size()); }
};

// The members of a compact JSON object of texts, {"a":"b","c":"d"}. A name has one spelling there.
class Members {
 public:
  explicit Members(std::string_view json) : json_(json) { assert(json.empty() || json.starts_with('{')); }

  std::optional<Member> next() {
    // At the brace or comma before a member, or at the last brace.
    if (next_ + 2 >= json_.size()) return std::nullopt;
    Member member;
    member.key = text(next_ + 1);
    member.value = text(next_ + 1);
    return member;
  }

 private:
  // The text whose quote stands at `quote`; afterwards next_ is behind it.
  Spelling text(std::size_t quote) {
    assert(quote < json_.size() && json_[quote] == '"');
    const std::size_t begin = quote + 1;
    std::size_t end = begin;
    while (end < json_.size() && json_[end] != '"') end += json_[end] == '\\' ? 2 : 1;
    assert(end < json_.size());
    next_ = end + 1;
    return {json_.substr(begin, end - begin), begin};
  }

  std::string_view json_;
  std::size_t next_ = 0;
};

// `name` as Spelling has it.
std::string spelling_of(std::string_view name) {
  std::string json;
  append_json_utf8(json, name);
  return json.substr(1, json.size() - 2);
}

Unexpected corrupt(const std::string& file_name, const std::string& what) {
  return Unexpected(ErrorCode::kCorruptFile, printable(file_name) + ": " + what);
}

}  // namespace

std::uint64_t hash_member_bytes(std::string_view tensor_name) {
  return std::string_view(R"("":"",)").size() + kTensorKeyPrefix.size() + tensor_name.size() +
         kSha256HexDigits;
}

ReservedHashes reserve_hashes(std::string_view metadata_json, std::span<const std::string_view> names) {
  ReservedHashes reserved;
  std::string& json = reserved.metadata_json;
  json = metadata_json.empty() ? "{" : metadata_json.substr(0, metadata_json.size() - 1);
  const auto add = [&](std::string_view key) {
    if (json.size() > 1) json += ',';
    append_json_utf8(json, key);
    json += ":\"";
    const std::uint64_t offset_bytes = json.size();
    json.append(kZeros).append("\"");
    return offset_bytes;
  };
  reserved.tensor_offsets.reserve(names.size());
  for (const std::string_view name : names)
    reserved.tensor_offsets.push_back(add(std::string(kTensorKeyPrefix).append(name)));
  reserved.header_offset = add(kHeaderKey);
  json += '}';
  return reserved;
}

bool has_stored_hashes(std::string_view metadata_json) {
  Members members(metadata_json);
  while (const auto member = members.next())
    if (member->is_hash()) return true;
  return false;
}

Result<std::optional<StoredHashes>> parse_stored_hashes(std::string_view metadata_json,
                                                        std::span<const std::string_view> names,
                                                        const std::string& file_name) {
  struct TensorHash {
    std::string_view name;  // its spelling
    Sha256Digest digest;
    bool used = false;
  };
  std::vector<TensorHash> found;
  std::optional<Sha256Digest> header;
  StoredHashes hashes;
  Members members(metadata_json);
  while (const auto member = members.next()) {
    if (!member->is_hash()) continue;
    const auto digest = parse_sha256_hex(member->value.text);
    if (!digest) {
      return corrupt(file_name, "the value of " + in_quotes(member->key.text) +
                                    " in its __metadata__ is no SHA-256, which has 64 digits of 0-9 and a-f");
    }
    hashes.offsets.push_back(member->value.offset_bytes);
    if (member->key.text == kHeaderKey) {
      header = digest;
    } else {
      found.push_back({member->tensor_name(), *digest});
    }
  }
  if (hashes.offsets.empty()) return std::optional<StoredHashes>();

  std::ranges::sort(found, {}, &TensorHash::name);
  hashes.tensors.reserve(names.size());
  for (const std::string_view name : names) {
    const std::string spelling = spelling_of(name);
    const auto place = std::ranges::lower_bound(found, std::string_view(spelling), {}, &TensorHash::name);
    if (place == found.end() || place->name != spelling) {
      Unexpected failure = corrupt(file_name, "tensor " + in_quotes(name) + " has no hash, as others have: " +
                                                  in_quotes(std::string(kTensorKeyPrefix).append(name)) +
                                                  " is missing from __metadata__");
      failure.error().tensor = name;
      return failure;
    }
    place->used = true;
    hashes.tensors.push_back(place->digest);
  }
  if (const auto other = std::ranges::find(found, false, &TensorHash::used); other != found.end()) {
    return corrupt(file_name, "its __metadata__ has " +
                                  in_quotes(std::string(kTensorKeyPrefix).append(other->name)) +
                                  ", but it holds no such tensor");
  }
  if (!header) {
    return corrupt(file_name, "its header has no hash, as its tensors have: " + in_quotes(kHeaderKey) +
                                  " is missing from __metadata__");
  }
  hashes.header = *header;
  return std::optional(std::move(hashes));
}

Result<void> check_header_hash(const File& file, std::string_view metadata_json, const StoredHashes& hashes) {
  const Unexpected wrong =
      corrupt(file.path().string(), "its header is not what it was when its hash was stored (" +
                                        in_quotes(kHeaderKey) + " in __metadata__)");
  // A text that is spelled in another way is not the one that was hashed, and hashes stand elsewhere in it.
  std::string start(kMetadataOffset, '\0');
  file.read_at(start.data(), start.size(), 0);
  if (start.substr(8) != std::string("{\"").append(kMetadataKey).append("\":")) return wrong;
  std::uint64_t header_bytes = 0;
  for (unsigned i = 0; i < 8; ++i)
    header_bytes |= std::uint64_t{static_cast<std::uint8_t>(start[i])} << (8 * i);
  const std::uint64_t metadata_end = kMetadataOffset + metadata_json.size();
  if (header_bytes > kMaxHeaderBytes || 8 + header_bytes < metadata_end) return wrong;

  std::string piece;
  const auto read = [&](std::uint64_t begin, std::uint64_t end) {
    piece.resize(std::min<std::uint64_t>(end - begin, kHeaderPieceBytes));
    file.read_at(piece.data(), piece.size(), begin);
  };
  for (std::uint64_t at = kMetadataOffset; at < metadata_end; at += piece.size()) {
    read(at, metadata_end);
    if (piece != metadata_json.substr(at - kMetadataOffset, piece.size())) return wrong;
  }
  Sha256 hash;
  hash.update(std::string_view(start).substr(8));
  std::uint64_t next = 0;  // in metadata_json
  for (const std::uint64_t offset : hashes.offsets) {
    hash.update(metadata_json.substr(next, offset - next));
    hash.update(kZeros);
    next = offset + kSha256HexDigits;
  }
  hash.update(metadata_json.substr(next));
  for (std::uint64_t at = metadata_end; at < 8 + header_bytes; at += piece.size()) {
    read(at, 8 + header_bytes);
    hash.update(piece);
  }
  if (hash.finish() != hashes.header) return wrong;
  return {};
}

}  // namespace weightpress::model
