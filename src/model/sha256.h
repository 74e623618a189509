// SHA-256 (FIPS 180-4), by OpenSSL: with the processor's SHA instructions about 1.5 GB/s a core (`openssl
// speed`).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

// OpenSSL's own name, so that its headers stay in one file.
struct evp_md_ctx_st;

namespace weightpress::model {

using Sha256Digest = std::array<std::uint8_t, 32>;

/// Digits of a digest as text.
inline constexpr std::size_t kSha256HexDigits = 2 * std::tuple_size_v<Sha256Digest>;

/// The hash of bytes that come in pieces of any size. Throws Error kIo if OpenSSL fails, as no sound one
/// does.
class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::uint8_t> bytes) { update(bytes.data(), bytes.size()); }
  void update(std::string_view text) { update(text.data(), text.size()); }
  /// Of all bytes so far. The next piece begins another message.
  Sha256Digest finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };

  void begin();
  void update(const void* data, std::size_t bytes);

  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

Sha256Digest sha256(std::string_view text);

/// 64 lower-case hexadecimal digits.
std::string hex_of(const Sha256Digest& digest);

/// The digest that hex_of() writes as `hex`; nothing if there is none.
std::optional<Sha256Digest> parse_sha256_hex(std::string_view hex);

}  // namespace weightpress::model
