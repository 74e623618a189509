#include "model/sha256.h"

#include <new>

#include <openssl/evp.h>

#include <weightpress/error.h>

namespace weightpress::model {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

void require(int success) {
  if (success != 1) throw Error(ErrorCode::kIo, "OpenSSL cannot compute SHA-256: repair its installation");
}

// Looked up once: by name it takes longer than the hash of a small tensor.
const EVP_MD* algorithm() {
  struct Free {
    void operator()(EVP_MD* md) const { EVP_MD_free(md); }
  };
  static const std::unique_ptr<EVP_MD, Free> fetched(EVP_MD_fetch(nullptr, "SHA256", nullptr));
  require(fetched != nullptr);
  return fetched.get();
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (!context_) throw std::bad_alloc();
  begin();
}

void Sha256::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

void Sha256::begin() {
  require(EVP_DigestInit_ex(context_.get(), algorithm(), nullptr));
}

void Sha256::update(const void* data, std::size_t bytes) {
  require(EVP_DigestUpdate(context_.get(), data, bytes));
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  require(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr));
  begin();
  return digest;
}

Sha256Digest sha256(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

std::string hex_of(const Sha256Digest& digest) {
  std::string hex;
  hex.reserve(kSha256HexDigits);
  for (const std::uint8_t byte : digest) hex += {kHexDigits[byte >> 4], kHexDigits[byte & 15]};
  return hex;
}

std::optional<Sha256Digest> parse_sha256_hex(std::string_view hex) {
  if (hex.size() != kSha256HexDigits) return std::nullopt;
  Sha256Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const std::size_t high = kHexDigits.find(hex[2 * i]), low = kHexDigits.find(hex[2 * i + 1]);
    if (high == kHexDigits.npos || low == kHexDigits.npos) return std::nullopt;
    digest[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return digest;
}

}  // namespace weightpress::model
