// Kernels for tests of the PTX interpreter: whole numbers of all widths, bits, floats without approximations.
#include <cstdint>

namespace {

using Word = unsigned long long;

__device__ unsigned place() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

}  // namespace

/// 24 results for each pair. b is not 0, and no quotient overflows.
extern "C" __global__ void arithmetic_32(const int* a_in, const int* b_in, std::uint32_t n,
                                         std::uint32_t* out) {
  if (place() >= n) return;
  const int a = a_in[place()], b = b_in[place()];
  const std::uint32_t ua = a, ub = b;
  std::uint32_t* result = out + place() * 24;
  result[0] = ua + ub;
  result[1] = ua - ub;
  result[2] = ua * ub;
  result[3] = __mulhi(a, b);
  result[4] = __umulhi(ua, ub);
  result[5] = a / b;
  result[6] = a % b;
  result[7] = ua / ub;
  result[8] = ua % ub;
  result[9] = min(a, b);
  result[10] = max(ua, ub);
  result[11] = a == INT32_MIN ? 1 : abs(a);
  result[12] = __usad(ua, ub, 77);
  result[13] = ua << (ub & 31);
  result[14] = a >> (ub & 31);
  result[15] = ua >> (ub & 31);
  result[16] = (a < b) | (a <= b) << 1 | (ua > ub) << 2 | (ua >= ub) << 3 | (a == b) << 4 | (a != b) << 5;
  result[17] = a / 7 + ua % 10;
  result[18] = static_cast<short>(a) * static_cast<short>(b);
  result[19] = static_cast<std::uint16_t>(a) / (static_cast<std::uint8_t>(b) | 1);
  result[20] = static_cast<signed char>(a) % (static_cast<short>(b) | 1);
  result[21] = static_cast<std::uint8_t>(static_cast<std::uint8_t>(a) + static_cast<std::uint8_t>(b)) << 4;
  result[22] = ua * ub + (ua ^ 0x55);
  result[23] = __mul24(a, b) ^ __umul24(ua, ub);
}

/// 20 results for each pair, under the same conditions.
extern "C" __global__ void arithmetic_64(const long long* a_in, const long long* b_in, std::uint32_t n,
                                         Word* out) {
  if (place() >= n) return;
  const long long a = a_in[place()], b = b_in[place()];
  const Word ua = a, ub = b;
  Word* result = out + place() * 20;
  result[0] = ua + ub;
  result[1] = ua - ub;
  result[2] = ua * ub;
  result[3] = __mul64hi(a, b);
  result[4] = __umul64hi(ua, ub);
  result[5] = a / b;
  result[6] = a % b;
  result[7] = ua / ub;
  result[8] = ua % ub;
  result[9] = min(a, b);
  result[10] = max(ua, ub);
  result[11] = ua << (ub & 63);
  result[12] = a >> (ub & 63);
  result[13] = ua >> (ub & 63);
  result[14] = (a < b) | (a <= b) << 1 | (ua > ub) << 2 | (ua >= ub) << 3 | (a == b) << 4;
  result[15] = a / 1000003 + ua % 12345678901;
  result[16] = static_cast<long long>(static_cast<int>(a)) * static_cast<int>(b);
  result[17] = static_cast<Word>(static_cast<std::uint32_t>(a)) * static_cast<std::uint32_t>(b) + ub;
  result[18] = a / static_cast<int>(b | 1);
  result[19] = ua / static_cast<std::uint32_t>(ub | 1);
}

/// 6 results for each pair.
extern "C" __global__ void arithmetic_128(const Word* a_in, const Word* b_in, std::uint32_t n, Word* out) {
  if (place() >= n) return;
  const Word a = a_in[place()], b = b_in[place()];
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  const __int128 signed_product =
      static_cast<__int128>(static_cast<long long>(a)) * static_cast<long long>(b);
  const unsigned __int128 sum = product + (static_cast<unsigned __int128>(b) << 64 | a);
  const unsigned __int128 quotient = sum / (b | 1);
  Word* result = out + place() * 6;
  result[0] = static_cast<Word>(product >> 64) ^ static_cast<Word>(product);
  result[1] = static_cast<Word>(signed_product >> 64);
  result[2] = static_cast<Word>(sum >> (b & 127));
  result[3] = static_cast<Word>(quotient >> 64) ^ static_cast<Word>(quotient);
  result[4] = static_cast<Word>(sum % (a | 1));
  result[5] = static_cast<Word>(signed_product / static_cast<long long>(a | 1));
}

/// 16 results for each pair.
extern "C" __global__ void bits(const Word* a_in, const Word* b_in, std::uint32_t n, Word* out) {
  if (place() >= n) return;
  const Word a = a_in[place()], b = b_in[place()];
  const std::uint32_t low = static_cast<std::uint32_t>(a), high = static_cast<std::uint32_t>(a >> 32);
  const std::uint32_t by = static_cast<std::uint32_t>(b);
  Word* result = out + place() * 16;
  result[0] = __popc(low);
  result[1] = __popcll(a);
  result[2] = __clz(low);
  result[3] = __clzll(a);
  result[4] = __brev(low);
  result[5] = __brevll(a);
  result[6] = __ffs(low);
  result[7] = __ffsll(a);
  result[8] = __byte_perm(low, high, by);
  result[9] = __byte_perm(low, high, 0x5140);
  result[10] = __funnelshift_l(low, high, by);
  result[11] = __funnelshift_r(low, high, by);
  result[12] = __funnelshift_lc(low, high, by);
  result[13] = __funnelshift_rc(low, high, by);
  result[14] = (low & high) | (~low & by) | (high ^ by);
  result[15] = (a >> (b & 63)) & 0xFF;
}

/// 16 results for each pair of finite numbers. Sums and products by intrinsics, so that none is fused.
extern "C" __global__ void float_32(const float* a_in, const float* b_in, std::uint32_t n, float* out) {
  if (place() >= n) return;
  const float a = a_in[place()], b = b_in[place()];
  const float infinity = __fdiv_rn(1, __fmul_rn(b, 0)), nan = __fsub_rn(infinity, infinity);
  float* result = out + place() * 16;
  result[0] = __fadd_rn(a, b);
  result[1] = __fsub_rn(a, b);
  result[2] = __fmul_rn(a, b);
  result[3] = __fdiv_rn(a, b);
  result[4] = __fmaf_rn(a, b, a);
  result[5] = __fsqrt_rn(fabsf(a));
  result[6] = fminf(a, b);
  result[7] = fmaxf(a, b);
  result[8] = -a;
  result[9] = floorf(a);
  result[10] = ceilf(a);
  result[11] = truncf(a);
  result[12] = rintf(a);
  result[13] = static_cast<float>((a < b) | (a <= b) << 1 | (a > b) << 2 | (a >= b) << 3 | (a == b) << 4 |
                                  (a != b) << 5 | (a < nan) << 6 | (nan != nan) << 7 | !(a >= nan) << 8 |
                                  (a < infinity) << 9);
  result[14] = static_cast<float>(static_cast<double>(a) * 1.25);
  result[15] = a < b ? a : -b;
}

/// 13 results for each pair of finite numbers.
extern "C" __global__ void float_64(const double* a_in, const double* b_in, std::uint32_t n, double* out) {
  if (place() >= n) return;
  const double a = a_in[place()], b = b_in[place()];
  double* result = out + place() * 13;
  result[0] = __dadd_rn(a, b);
  result[1] = __dsub_rn(a, b);
  result[2] = __dmul_rn(a, b);
  result[3] = __ddiv_rn(a, b);
  result[4] = __fma_rn(a, b, a);
  result[5] = __dsqrt_rn(fabs(a));
  result[6] = fmin(a, b);
  result[7] = fmax(a, b);
  result[8] = -a;
  result[9] = floor(a);
  result[10] = trunc(a);
  result[11] = rint(a);
  result[12] = (a < b) | (a <= b) << 1 | (a > b) << 2 | (a >= b) << 3 | (a == b) << 4;
}

/// From and to whole numbers; out of range goes to the nearest end. 8 results of each kind.
extern "C" __global__ void conversions(const long long* in, const double* reals, std::uint32_t n,
                                       double* to_real, long long* to_whole) {
  if (place() >= n) return;
  const long long whole = in[place()];
  const double real = reals[place()];
  double* result = to_real + place() * 8;
  result[0] = static_cast<double>(whole);
  result[1] = static_cast<double>(static_cast<Word>(whole));
  result[2] = static_cast<float>(whole);
  result[3] = static_cast<float>(static_cast<Word>(whole));
  result[4] = static_cast<float>(static_cast<int>(whole));
  result[5] = static_cast<float>(static_cast<std::uint32_t>(whole));
  result[6] = static_cast<float>(real);
  result[7] =
      static_cast<float>(static_cast<short>(whole)) + static_cast<float>(static_cast<std::uint8_t>(whole));
  long long* number = to_whole + place() * 8;
  number[0] = __double2int_rz(real);
  number[1] = __double2uint_rz(real);
  number[2] = __double2ll_rz(real);
  number[3] = static_cast<long long>(__double2ull_rz(real));
  number[4] = __float2int_rz(static_cast<float>(real));
  number[5] = __float2int_rn(static_cast<float>(real));
  number[6] = __float2ll_rz(static_cast<float>(real));
  number[7] = __float_as_int(static_cast<float>(real)) ^ (__double_as_longlong(real) >> 1);
}
