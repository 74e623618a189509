// kernels/arithmetic_kernels.cu: the same in C++ on the host. Nothing rests on what C++ leaves open: shifts
// are below the width, quotients fit, results of floats are stored one operation at a time.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cuda_kernel_cases.h"

namespace weightpress::ptxvm::testing {
namespace {

using Words = std::vector<std::uint32_t>;
using WideWords = std::vector<std::uint64_t>;
__extension__ using Signed128 = __int128;
__extension__ using Unsigned128 = unsigned __int128;

constexpr std::uint32_t kThreads = 128;
const std::vector<std::uint32_t> kSizes = {1, 33, 1'000};

std::uint32_t bits_of(std::int32_t number) {
  return static_cast<std::uint32_t>(number);
}
std::uint64_t bits_of(std::int64_t number) {
  return static_cast<std::uint64_t>(number);
}

/// Pairs that division can take: b is not 0, and a is not the least number (which has no negative).
template <class T>
void make_divisible(std::vector<T>& a, std::vector<T>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (b[i] == 0) b[i] = 3;
    if (a[i] == std::numeric_limits<T>::min() && (b[i] | 1) == -1) a[i] = 8;
    if (a[i] == std::numeric_limits<T>::min() && static_cast<std::int32_t>(b[i] | 1) == -1) a[i] = 9;
  }
}

/// Bits [low, low + 24) as a signed number.
std::int32_t signed_24(std::int32_t number) {
  return static_cast<std::int32_t>(bits_of(number) << 8) >> 8;
}

std::vector<CudaKernelCase> cases_32(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    auto a_in = mixed_words<std::int32_t>(size, random), b_in = mixed_words<std::int32_t>(size, random);
    make_divisible(a_in, b_in);
    Words out;
    for (std::uint32_t i = 0; i < size; ++i) {
      const std::int32_t a = a_in[i], b = b_in[i];
      const std::uint32_t ua = bits_of(a), ub = bits_of(b);
      const std::int64_t wide_a = a, wide_b = b;
      out.push_back(static_cast<std::uint32_t>(wide_a + wide_b));
      out.push_back(static_cast<std::uint32_t>(wide_a - wide_b));
      out.push_back(static_cast<std::uint32_t>(wide_a * wide_b));
      out.push_back(static_cast<std::uint32_t>((wide_a * wide_b) >> 32));
      out.push_back(static_cast<std::uint32_t>((std::uint64_t{ua} * ub) >> 32));
      out.push_back(static_cast<std::uint32_t>(wide_a / wide_b));
      out.push_back(static_cast<std::uint32_t>(wide_a % wide_b));
      out.push_back(ua / ub);
      out.push_back(ua % ub);
      out.push_back(bits_of(std::min(a, b)));
      out.push_back(std::max(ua, ub));
      out.push_back(a == INT32_MIN ? 1 : bits_of(std::abs(a)));
      out.push_back((ua < ub ? ub - ua : ua - ub) + 77);
      out.push_back(static_cast<std::uint32_t>(std::uint64_t{ua} << (ub % 32)));
      out.push_back(static_cast<std::uint32_t>(wide_a >> (ub % 32)));
      out.push_back(ua >> (ub % 32));
      out.push_back((wide_a < wide_b ? 1u : 0) + (wide_a <= wide_b ? 2u : 0) + (ua > ub ? 4u : 0) +
                    (ua >= ub ? 8u : 0) + (ua == ub ? 16u : 32u));
      out.push_back(bits_of(a / 7) + ua % 10);
      out.push_back(bits_of(std::int32_t{static_cast<std::int16_t>(a)} * static_cast<std::int16_t>(b)));
      out.push_back((ua & 0xFFFF) / ((ub & 0xFF) | 1));
      out.push_back(bits_of(static_cast<std::int8_t>(a) % (static_cast<std::int16_t>(b) | 1)));
      out.push_back(((ua + ub) & 0xFF) * 16);
      out.push_back(ua * ub + (ua ^ 0x55));
      const std::int64_t signed_product = std::int64_t{signed_24(a)} * signed_24(b);
      const std::uint64_t product = std::uint64_t{ua & 0xFFFFFF} * (ub & 0xFFFFFF);
      out.push_back(static_cast<std::uint32_t>(bits_of(signed_product) ^ product));
    }
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(a_in), input(b_in), value(size), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> cases_64(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    auto a_in = mixed_words<std::int64_t>(size, random), b_in = mixed_words<std::int64_t>(size, random);
    make_divisible(a_in, b_in);
    WideWords out;
    for (std::uint32_t i = 0; i < size; ++i) {
      const std::int64_t a = a_in[i], b = b_in[i];
      const std::uint64_t ua = bits_of(a), ub = bits_of(b);
      const auto low_a = static_cast<std::int32_t>(a), low_b = static_cast<std::int32_t>(b);
      out.push_back(ua + ub);
      out.push_back(ua - ub);
      out.push_back(ua * ub);
      out.push_back(static_cast<std::uint64_t>((Signed128{a} * b) >> 64));
      out.push_back(static_cast<std::uint64_t>((Unsigned128{ua} * ub) >> 64));
      out.push_back(bits_of(a / b));
      out.push_back(bits_of(a % b));
      out.push_back(ua / ub);
      out.push_back(ua % ub);
      out.push_back(bits_of(std::min(a, b)));
      out.push_back(std::max(ua, ub));
      out.push_back(ua << (ub % 64));
      out.push_back(bits_of(a >> (ub % 64)));
      out.push_back(ua >> (ub % 64));
      out.push_back((a < b ? 1u : 0) + (a <= b ? 2u : 0) + (ua > ub ? 4u : 0) + (ua >= ub ? 8u : 0) +
                    (a == b ? 16u : 0));
      out.push_back(bits_of(a / 1'000'003) + ua % 12'345'678'901);
      out.push_back(bits_of(std::int64_t{low_a} * low_b));
      out.push_back((ua & 0xFFFFFFFF) * (ub & 0xFFFFFFFF) + ub);
      out.push_back(bits_of(a / (low_b | 1)));
      out.push_back(ua / ((ub & 0xFFFFFFFF) | 1));
    }
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(a_in), input(b_in), value(size), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> cases_128(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const auto a_in = mixed_words<std::uint64_t>(size, random);
    const auto b_in = mixed_words<std::uint64_t>(size, random);
    WideWords out;
    for (std::uint32_t i = 0; i < size; ++i) {
      const std::uint64_t a = a_in[i], b = b_in[i];
      const auto fold = [](Unsigned128 number) {
        return static_cast<std::uint64_t>(number >> 64) ^ static_cast<std::uint64_t>(number);
      };
      const Unsigned128 product = Unsigned128{a} * b, sum = product + ((Unsigned128{b} << 64) | a);
      const auto signed_a = static_cast<std::int64_t>(a), signed_b = static_cast<std::int64_t>(b);
      const Signed128 signed_product = Signed128{signed_a} * signed_b;
      out.push_back(fold(product));
      out.push_back(static_cast<std::uint64_t>(signed_product >> 64));
      out.push_back(static_cast<std::uint64_t>(sum >> (b % 128)));
      out.push_back(fold(sum / (b | 1)));
      out.push_back(static_cast<std::uint64_t>(sum % (a | 1)));
      out.push_back(static_cast<std::uint64_t>(signed_product / (signed_a | 1)));
    }
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(a_in), input(b_in), value(size), output(out)}));
  }
  return cases;
}

/// Bit by bit, as the PTX ISA words it.
std::uint64_t reversed(std::uint64_t number, int width) {
  std::uint64_t result = 0;
  for (int bit = 0; bit < width; ++bit) result |= ((number >> bit) & 1) << (width - 1 - bit);
  return result;
}

std::uint64_t first_set(std::uint64_t number) {
  return number == 0 ? 0 : static_cast<std::uint64_t>(std::countr_zero(number)) + 1;
}

std::uint64_t permuted(std::uint64_t eight_bytes, std::uint32_t selector) {
  std::uint64_t result = 0;
  for (int k = 0; k < 4; ++k) {
    const std::uint32_t nibble = selector >> (4 * k);
    std::uint64_t byte = (eight_bytes >> (8 * (nibble & 7))) & 0xFF;
    if ((nibble & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
    result |= byte << (8 * k);
  }
  return result;
}

std::vector<CudaKernelCase> bit_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    auto a_in = mixed_words<std::uint64_t>(size, random);
    const auto b_in = mixed_words<std::uint64_t>(size, random);
    a_in[0] = 0;
    WideWords out;
    for (std::uint32_t i = 0; i < size; ++i) {
      const std::uint64_t a = a_in[i], b = b_in[i];
      const auto low = static_cast<std::uint32_t>(a), high = static_cast<std::uint32_t>(a >> 32);
      const auto by = static_cast<std::uint32_t>(b), by_at_most_32 = std::min(by, 32u);
      const auto number = [&out](int count) { out.push_back(static_cast<std::uint64_t>(count)); };
      number(std::popcount(low));
      number(std::popcount(a));
      number(std::countl_zero(low));
      number(std::countl_zero(a));
      out.push_back(reversed(low, 32));
      out.push_back(reversed(a, 64));
      out.push_back(first_set(low));
      out.push_back(first_set(a));
      // __byte_perm has no sign replication: "only the lower 3 bits of each nibble".
      out.push_back(permuted(a, by & 0x7777));
      out.push_back(permuted(a, 0x5140));
      out.push_back((a << (by % 32)) >> 32);
      out.push_back((a >> (by % 32)) & 0xFFFFFFFF);
      out.push_back(by_at_most_32 == 32 ? low : (a << by_at_most_32) >> 32);
      out.push_back((a >> by_at_most_32) & 0xFFFFFFFF);
      out.push_back((low & high) | (~low & by) | (high ^ by));
      out.push_back((a >> (b % 64)) & 0xFF);
    }
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(a_in), input(b_in), value(size), output(out)}));
  }
  return cases;
}

/// Finite, not zero, of all magnitudes down to the subnormal ones; many near each other.
template <class T, class Bits>
std::vector<T> reals(std::uint32_t count, Random& random) {
  std::vector<T> numbers(count);
  for (T& number : numbers) {
    do {
      switch (random.below(4)) {
        case 0:
          number = static_cast<T>(static_cast<double>(random.below(4'000)) * 0.25 - 500);
          break;
        case 1:
          number = static_cast<T>(random.uniform() * 8 - 4);
          break;
        case 2:
          number = std::bit_cast<T>(static_cast<Bits>(random.next() & 0xFF));
          break;
        default:
          number = std::bit_cast<T>(static_cast<Bits>(random.next()));
          break;
      }
    } while (!std::isfinite(number) || number == 0);
  }
  return numbers;
}

template <class T>
std::uint32_t comparisons(T a, T b) {
  return (a < b ? 1u : 0) + (a <= b ? 2u : 0) + (a > b ? 4u : 0) + (a >= b ? 8u : 0) + (a == b ? 16u : 0);
}

std::vector<CudaKernelCase> float_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const auto a_in = reals<float, std::uint32_t>(size, random);
    auto b_in = reals<float, std::uint32_t>(size, random);
    b_in[size / 2] = a_in[size / 2];
    std::vector<float> out;
    for (std::uint32_t i = 0; i < size; ++i) {
      const float a = a_in[i], b = b_in[i];
      out.push_back(a + b);
      out.push_back(a - b);
      out.push_back(a * b);
      out.push_back(a / b);
      out.push_back(std::fma(a, b, a));
      out.push_back(std::sqrt(std::fabs(a)));
      out.push_back(std::min(a, b));
      out.push_back(std::max(a, b));
      out.push_back(-a);
      out.push_back(std::floor(a));
      out.push_back(std::ceil(a));
      out.push_back(std::trunc(a));
      out.push_back(std::nearbyint(a));
      // Of the last four, with a NaN and an infinity of b's sign: unequal, not greater or equal, and less.
      out.push_back(static_cast<float>(comparisons(a, b) + (a != b ? 32u : 0) + 128u + 256u +
                                       (std::signbit(b) ? 0 : 512u)));
      out.push_back(static_cast<float>(a * 1.25));
      out.push_back(a < b ? a : -b);
    }
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(a_in), input(b_in), value(size), output(out)}));
  }
  return cases;
}

std::vector<CudaKernelCase> double_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const auto a_in = reals<double, std::uint64_t>(size, random);
    auto b_in = reals<double, std::uint64_t>(size, random);
    b_in[size / 2] = a_in[size / 2];
    std::vector<double> out;
    for (std::uint32_t i = 0; i < size; ++i) {
      const double a = a_in[i], b = b_in[i];
      for (const double result : {a + b, a - b, a * b, a / b}) out.push_back(result);
      out.push_back(std::fma(a, b, a));
      out.push_back(std::sqrt(std::fabs(a)));
      out.push_back(std::min(a, b));
      out.push_back(std::max(a, b));
      out.push_back(-a);
      out.push_back(std::floor(a));
      out.push_back(std::trunc(a));
      out.push_back(std::nearbyint(a));
      out.push_back(comparisons(a, b));
    }
    cases.push_back(launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                              {input(a_in), input(b_in), value(size), output(out)}));
  }
  return cases;
}

/// The nearest whole number that T can hold; `number` is whole already.
template <class T>
std::uint64_t clamped(double number) {
  if (number <= static_cast<double>(std::numeric_limits<T>::min()))
    return static_cast<std::uint64_t>(std::int64_t{std::numeric_limits<T>::min()});
  // A power of two, exactly.
  const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (number >= end) return static_cast<std::uint64_t>(std::numeric_limits<T>::max());
  return static_cast<std::uint64_t>(static_cast<T>(number));
}

std::vector<CudaKernelCase> conversion_cases(std::uint64_t seed) {
  Random random(seed);
  std::vector<CudaKernelCase> cases;
  for (const std::uint32_t size : kSizes) {
    const auto wholes = mixed_words<std::int64_t>(size, random);
    auto numbers = reals<double, std::uint64_t>(size, random);
    for (std::uint32_t i = 0; i < size; i += 2)
      numbers[i] = std::ldexp(random.uniform() - 0.5, static_cast<int>(random.below(70)));
    std::vector<double> to_real;
    WideWords to_whole;
    for (std::uint32_t i = 0; i < size; ++i) {
      const std::int64_t whole = wholes[i];
      const std::uint64_t bits = bits_of(whole);
      to_real.push_back(static_cast<double>(whole));
      to_real.push_back(static_cast<double>(bits));
      to_real.push_back(static_cast<float>(whole));
      to_real.push_back(static_cast<float>(bits));
      to_real.push_back(static_cast<float>(static_cast<std::int32_t>(whole)));
      to_real.push_back(static_cast<float>(static_cast<std::uint32_t>(whole)));
      const auto narrow = static_cast<float>(numbers[i]);
      to_real.push_back(narrow);
      to_real.push_back(static_cast<std::int16_t>(whole) + static_cast<std::uint8_t>(whole));
      const double real = numbers[i], cut = std::trunc(real), narrow_cut = std::trunc(narrow);
      to_whole.push_back(clamped<std::int32_t>(cut));
      to_whole.push_back(clamped<std::uint32_t>(cut));
      to_whole.push_back(clamped<std::int64_t>(cut));
      to_whole.push_back(clamped<std::uint64_t>(cut));
      to_whole.push_back(clamped<std::int32_t>(narrow_cut));
      to_whole.push_back(clamped<std::int32_t>(std::nearbyint(narrow)));
      to_whole.push_back(clamped<std::int64_t>(narrow_cut));
      to_whole.push_back(bits_of(std::int64_t{std::bit_cast<std::int32_t>(narrow)} ^
                                 (std::bit_cast<std::int64_t>(real) >> 1)));
    }
    cases.push_back(
        launch_of(size_name(size), blocks_for(size, kThreads), kThreads,
                  {input(wholes), input(numbers), value(size), output(to_real), output(to_whole)}));
  }
  return cases;
}

}  // namespace

std::vector<CudaKernel> arithmetic_kernels() {
  const char* const file = "arithmetic_kernels.compute_75.ptx";
  return {{file, "arithmetic_32", cases_32},      {file, "arithmetic_64", cases_64},
          {file, "arithmetic_128", cases_128},    {file, "bits", bit_cases},
          {file, "float_32", float_cases},        {file, "float_64", double_cases},
          {file, "conversions", conversion_cases}};
}

}  // namespace weightpress::ptxvm::testing
