// Tile-ANS as docs/format.md describes it, as plainly as can be: real divisions, one symbol after the other,
// whole buffers. Shares no code with src/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace weightpress::testing {

/// The six buffers.
struct TileAnsBuffers {
  std::vector<std::uint16_t> payload;
  std::vector<std::uint32_t> offsets, states, decode_tables;
  std::vector<std::uint8_t> lane_modes;
  std::vector<std::int64_t> layout;

  bool operator==(const TileAnsBuffers&) const = default;
};

struct SlowSettings {
  std::uint64_t tile = 0;
  int bits = 0;
  double threshold = 7.9;
};

class SlowTileAns {
 public:
  using Counts = std::vector<double>;  // exact: tests are small
  using Frequencies = std::vector<std::int64_t>;

  /// The number itself: no compiler may round it together with what is done to it next.
  static double rounded(double number) {
    volatile double stored = number;
    return stored;
  }

  static double numpy_sum(const double* terms, std::size_t count) {
    if (count < 8) {
      double sum = 0;
      for (std::size_t i = 0; i < count; ++i) sum += terms[i];
      return sum;
    }
    if (count <= 128) {
      double r[8];
      std::size_t i = 0;
      for (; i < 8; ++i) r[i] = terms[i];
      for (; i < count - count % 8; ++i) r[i % 8] += terms[i];
      double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
      for (; i < count; ++i) sum += terms[i];
      return sum;
    }
    const std::size_t half = count / 2 - count / 2 % 8;
    return numpy_sum(terms, half) + numpy_sum(terms + half, count - half);
  }

  /// By looking for the best symbol again and again.
  static Frequencies normalise(const Counts& counts, int bits) {
    double total = 0;
    for (const double count : counts) total += count;
    const double size = std::ldexp(1.0, bits);
    const double scale = size / total;
    Frequencies frequencies(256, 0);
    std::vector<double> key(256, 0);
    double missing = size;
    for (int s = 0; s < 256; ++s) {
      if (counts[s] == 0) continue;
      const double target = rounded(counts[s] * scale);
      frequencies[s] = std::max<std::int64_t>(1, static_cast<std::int64_t>(target));
      key[s] = target - static_cast<double>(frequencies[s]);
      missing -= static_cast<double>(frequencies[s]);
    }
    const int step = missing > 0 ? 1 : -1;
    if (step > 0)
      for (double& k : key) k = -k;
    for (; missing != 0; missing -= step) {
      int best = -1;
      for (int s = 0; s < 256; ++s) {
        if (counts[s] == 0 || (step < 0 && frequencies[s] == 1)) continue;
        if (best < 0 || key[s] < key[best]) best = s;
      }
      frequencies[best] += step;
      key[best] += 1.0;
    }
    return frequencies;
  }

  static double shannon(const Counts& counts) {
    double total = 0;
    for (const double count : counts) total += count;
    std::vector<double> terms;
    for (const double count : counts) {
      if (count == 0) continue;
      const double p = count / total;
      terms.push_back(rounded(p * std::log2(p)));
    }
    return -numpy_sum(terms.data(), terms.size());
  }

  static double cross_entropy(const Counts& counts, const Frequencies& frequencies, int bits) {
    std::vector<double> terms;
    for (int s = 0; s < 256; ++s) {
      if (counts[s] == 0) continue;
      terms.push_back(rounded(counts[s] * (bits - std::log2(static_cast<double>(frequencies[s])))));
    }
    return numpy_sum(terms.data(), terms.size());
  }

  static TileAnsBuffers encode(const std::vector<std::uint8_t>& bytes, std::uint64_t num_lanes,
                               const SlowSettings& settings) {
    const std::uint64_t n = bytes.size() / num_lanes;
    const std::uint64_t tile = settings.tile != 0 ? settings.tile : bytes.size() <= 33554432 ? 4096 : 8192;
    const std::uint64_t tiles = (n + tile - 1) / tile;
    std::vector<Counts> counts(num_lanes, Counts(256, 0));
    for (std::size_t i = 0; i < bytes.size(); ++i) ++counts[i % num_lanes][bytes[i]];

    const double threshold = std::min(settings.threshold, 8.0 - 1024.0 / static_cast<double>(tile));
    int bits = settings.bits;
    std::vector<std::uint8_t> modes(num_lanes);
    if (bits != 0) {
      for (std::size_t l = 0; l < num_lanes; ++l) modes[l] = shannon(counts[l]) >= threshold;
    } else {
      bool only_nine = true;
      for (const Counts& lane : counts) only_nine = only_nine && shannon(lane) >= threshold;
      std::vector<double> estimates;
      std::vector<std::vector<std::uint8_t>> all_modes;
      const std::uint64_t raw_words = n / tile * ((tile + 1) / 2) + (n % tile + 1) / 2;
      for (int b = 9; b <= (only_nine ? 9 : 12); ++b) {
        double bytes_estimate =
            static_cast<double>((tiles * num_lanes + 1) * 4 + num_lanes * (4ull << b) + num_lanes + 40);
        std::vector<std::uint8_t> of_bits;
        for (const Counts& lane : counts) {
          const double ce = cross_entropy(lane, normalise(lane, b), b);
          const bool raw = ce / static_cast<double>(n) >= threshold;
          of_bits.push_back(raw);
          if (raw) {
            bytes_estimate += static_cast<double>(2 * raw_words);
          } else {
            bytes_estimate += ce / 8;
            bytes_estimate += static_cast<double>(tiles * 128);
          }
        }
        estimates.push_back(bytes_estimate);
        all_modes.push_back(of_bits);
      }
      const double limit = *std::min_element(estimates.begin(), estimates.end()) +
                           rounded(static_cast<double>(bytes.size()) * 0.0015);
      std::size_t chosen = 0;
      while (estimates[chosen] > limit) ++chosen;
      bits = 9 + static_cast<int>(chosen);
      modes = all_modes[chosen];
    }
    std::vector<Frequencies> frequencies;
    for (const Counts& lane : counts) frequencies.push_back(normalise(lane, bits));
    return encode(bytes, num_lanes, tile, bits, modes, frequencies);
  }

  /// With given modes and frequencies.
  static TileAnsBuffers encode(const std::vector<std::uint8_t>& bytes, std::uint64_t num_lanes,
                               std::uint64_t tile, int bits, const std::vector<std::uint8_t>& modes,
                               const std::vector<Frequencies>& frequencies) {
    const std::uint64_t n = bytes.size() / num_lanes;
    const std::uint64_t table_size = 1ull << bits;
    TileAnsBuffers out;
    out.lane_modes = modes;
    out.layout = {static_cast<std::int64_t>(tile), bits, static_cast<std::int64_t>(num_lanes),
                  static_cast<std::int64_t>(n)};
    out.offsets.push_back(0);
    for (std::uint64_t l = 0; l < num_lanes; ++l) {
      std::vector<std::uint64_t> cdf(257, 0);
      for (int s = 0; s < 256; ++s) {
        cdf[s + 1] = cdf[s] + static_cast<std::uint64_t>(frequencies[l][s]);
        for (std::int64_t i = 0; i < frequencies[l][s]; ++i) {
          out.decode_tables.push_back(static_cast<std::uint32_t>(
              cdf[s] << 20 | (static_cast<std::uint64_t>(frequencies[l][s]) % 4096) << 8 |
              static_cast<std::uint64_t>(s)));
        }
      }
      for (std::uint64_t first = 0; first < n; first += tile) {
        const std::uint64_t count = std::min(tile, n - first);
        const auto symbol = [&](std::uint64_t i) { return bytes[(first + i) * num_lanes + l]; };
        if (modes[l] == 1) {
          for (std::uint64_t i = 0; i < count; i += 2)
            out.payload.push_back(
                static_cast<std::uint16_t>(symbol(i) | (i + 1 < count ? symbol(i + 1) << 8 : 0)));
        } else {
          std::vector<std::uint64_t> x(32, 32768);
          for (std::uint64_t i = 0; i < count; ++i) {
            const std::uint64_t f = static_cast<std::uint64_t>(frequencies[l][symbol(i)]);
            std::uint64_t& state = x[i % 32];
            if (state >= f << (31 - bits)) {
              out.payload.push_back(static_cast<std::uint16_t>(state & 0xFFFF));
              state >>= 16;
            }
            state = state / f * table_size + state % f + cdf[symbol(i)];
          }
          out.states.insert(out.states.end(), x.begin(), x.end());
        }
        out.offsets.push_back(static_cast<std::uint32_t>(out.payload.size()));
      }
    }
    return out;
  }
};

}  // namespace weightpress::testing
