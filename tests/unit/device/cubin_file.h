// Reads what a cubin says of itself: an ELF file whose .nv.info sections describe the kernels. NVIDIA does
// not document them; what stands here is what nvcc 12 and 13 write.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel_policy.h"

namespace weightpress::device::testing {

class CubinFile {
 public:
  using Bytes = std::span<const std::uint8_t>;

  explicit CubinFile(Bytes bytes) : bytes_(bytes) {}

  /// A 64-bit little-endian ELF file for CUDA.
  bool is_cubin() const {
    constexpr std::uint8_t kBegin[] = {0x7f, 'E', 'L', 'F', 2, 1};
    return bytes_.size() >= 64 && std::equal(std::begin(kBegin), std::end(kBegin), bytes_.begin()) &&
           number<std::uint16_t>(18) == 190;
  }

  int arch() const {
    const auto flags = number<std::uint32_t>(48);
    const int abi = bytes_[8];  // 8 since CUDA 13
    return static_cast<int>(abi >= 8 ? flags >> 8 & 0xff : flags & 0xff);
  }

  /// Empty if there is no section of that name.
  Bytes section(std::string_view name) const {
    const auto headers = number<std::uint64_t>(40);
    const std::uint64_t header_bytes = number<std::uint16_t>(58);
    const std::uint64_t num_sections = number<std::uint16_t>(60);
    const Bytes names = content(headers + number<std::uint16_t>(62) * header_bytes);
    for (std::uint64_t i = 0; i < num_sections; ++i) {
      const std::uint64_t header = headers + i * header_bytes;
      const auto begin = number<std::uint32_t>(header);
      if (begin >= names.size()) continue;
      const auto* const text = reinterpret_cast<const char*>(names.data() + begin);
      if (std::string_view(text, strnlen(text, names.size() - begin)) == name) return content(header);
    }
    return {};
  }

  struct Parameters {
    std::uint32_t bytes = 0;             ///< all of them
    std::vector<ParameterPlace> places;  /// in their order
  };
  Parameters parameters(const std::string& entry) const {
    constexpr std::uint8_t kParameterInfo = 0x17, kParameterBytes = 0x19;
    Parameters parameters;
    const Bytes info = section(".nv.info." + entry);
    // Attributes: format, number, then 16 bits: the value (formats 1 to 3) or the size of what follows (4).
    for (std::size_t at = 0; at + 4 <= info.size();) {
      const std::uint8_t format = info[at], attribute = info[at + 1];
      std::uint16_t half;
      std::memcpy(&half, &info[at + 2], 2);
      if (format == 3 && attribute == kParameterBytes) parameters.bytes = half;
      if (format == 4 && attribute == kParameterInfo && at + 16 <= info.size()) {
        std::uint16_t ordinal, offset;
        std::uint32_t flags;
        std::memcpy(&ordinal, &info[at + 8], 2);
        std::memcpy(&offset, &info[at + 10], 2);
        std::memcpy(&flags, &info[at + 12], 4);
        if (parameters.places.size() <= ordinal) parameters.places.resize(ordinal + 1u);
        parameters.places[ordinal] = {offset, flags >> 18};
      }
      at += format == 4 ? 4u + half : 4u;
    }
    return parameters;
  }

 private:
  template <class T>
  T number(std::uint64_t at) const {
    T value{};
    if (at + sizeof(T) <= bytes_.size()) std::memcpy(&value, bytes_.data() + at, sizeof(T));
    return value;
  }
  Bytes content(std::uint64_t header) const {
    const auto begin = number<std::uint64_t>(header + 24), size = number<std::uint64_t>(header + 32);
    if (begin > bytes_.size() || size > bytes_.size() - begin) return {};
    return bytes_.subspan(begin, size);
  }

  Bytes bytes_;
};

}  // namespace weightpress::device::testing
