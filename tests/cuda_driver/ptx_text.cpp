#include "ptx_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>

namespace weightpress::cuda_driver {
namespace {

std::string_view after_blanks(std::string_view text) {
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    std::size_t end = std::string_view::npos;
    if (text.starts_with("//")) {
      end = text.find('\n');
    } else if (text.starts_with("/*")) {
      end = text.find("*/");
      if (end != std::string_view::npos) end += 2;
    } else {
      return text;
    }
    text.remove_prefix(std::min(end, text.size()));
  }
}

}  // namespace

std::optional<std::uint32_t> ptx_version(std::string_view text) {
  constexpr std::string_view kName = ".version";
  text = after_blanks(text);
  if (!text.starts_with(kName)) return std::nullopt;
  text = after_blanks(text.substr(kName.size()));
  std::uint32_t major = 0, minor = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.' || major > 1000) return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  if (second.ec != std::errc() || minor > 9) return std::nullopt;
  return major * 10 + minor;
}

std::uint32_t newest_ptx_version(std::uint32_t driver_version) {
  struct Release {
    std::uint32_t driver, ptx;
  };
  constexpr std::array kReleases{
      Release{0, 50},     Release{9000, 60},  Release{9010, 61},  Release{9020, 62},  Release{10000, 63},
      Release{10010, 64}, Release{10020, 65}, Release{11000, 70}, Release{11010, 71}, Release{11020, 72},
      Release{11030, 73}, Release{11040, 74}, Release{11050, 75}, Release{11060, 76}, Release{11070, 77},
      Release{11080, 78}, Release{12000, 80}, Release{12010, 81}, Release{12020, 82}, Release{12030, 83},
      Release{12040, 84}, Release{12050, 85}, Release{12070, 86}, Release{12080, 87}, Release{12090, 88},
      Release{13000, 90}, Release{13010, 91}};
  std::uint32_t newest = 0;
  for (const Release& release : kReleases)
    if (release.driver <= driver_version) newest = release.ptx;
  return newest;
}

int target_number(std::string_view target) {
  int number = 0;
  if (!target.starts_with("sm_")) return 0;
  std::from_chars(target.data() + 3, target.data() + target.size(), number);
  return number;
}

bool target_fits(std::string_view target, std::uint32_t major, std::uint32_t minor) {
  const int number = target_number(target);
  const int device = static_cast<int>(major * 10 + minor);
  if (target.ends_with('a')) return number == device;
  if (target.ends_with('f')) return number / 10 == static_cast<int>(major) && number <= device;
  return number != 0 && number <= device;
}

bool is_binary_image(const unsigned char* image) {
  constexpr std::array<std::array<unsigned char, 4>, 3> kMagic{
      {{0x7F, 'E', 'L', 'F'}, {0x50, 0xED, 0x55, 0xBA}, {0xB1, 0x43, 0x62, 0x46}}};
  return std::ranges::any_of(kMagic, [image](const std::array<unsigned char, 4>& magic) {
    for (std::size_t i = 0; i < magic.size(); ++i)
      if (image[i] != magic[i]) return false;  // before anything behind a text's end is read
    return true;
  });
}

}  // namespace weightpress::cuda_driver
