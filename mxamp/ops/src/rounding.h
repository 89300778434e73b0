/*!
 * How one value is rounded, for each format: branch-free arithmetic on float32 patterns, to be vectorised.
 *
 * Patterns are signed, since the oldest vector instructions compare signed integers only; a magnitude (the
 * pattern without its sign) is never negative, and magnitudes are ordered as the numbers are.
 */
#ifndef MXAMP_ROUNDING_H_
#define MXAMP_ROUNDING_H_

#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define MXAMP_INLINE inline __attribute__((always_inline))
#else
#define MXAMP_INLINE inline
#endif

namespace mxamp {

enum : int32_t {
  kMagnitude = 0x7fffffff,
  kExponent = 0x7f800000,
  kInfinity = 0x7f800000,
  kQuietNan = 0x7fc00000,
};

MXAMP_INLINE int32_t bits_of(float value) {
  int32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

MXAMP_INLINE float value_of(int32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

MXAMP_INLINE int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
MXAMP_INLINE int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

/*! The pattern of a power of two that is a normal float32. */
constexpr int32_t power_of_two(int exponent) { return (exponent + 127) << 23; }

/*!
 * The power of two that makes a sum round where the format does.
 *
 * Added to a magnitude it leaves the processor only the bits that the format has too: the ulp of the sum is
 * the distance of the format's values around the magnitude. Below the smallest normal value that distance is
 * constant, so that subnormal results need nothing of their own. No sum or operand is small enough for the
 * processor's flush-to-zero modes to matter.
 */
template <int Significand, int SmallestExponent>
MXAMP_INLINE int32_t anchor_of(int32_t magnitude) {
  return larger(magnitude & kExponent, power_of_two(SmallestExponent)) + ((23 - Significand) << 23);
}

/*! A format with a smaller exponent than float32's: bits after the point, exponents, largest finite value. */
template <int Significand, int SmallestExponent, int LargestExponent, int32_t Largest, int32_t Overflow>
struct NarrowFormat {
  static constexpr int32_t kLargest = Largest;
  static constexpr int32_t kOverflow = Overflow;

  /*! Round a magnitude; beyond kLargest the result is only known to be greater, and of a NaN nothing is. */
  static MXAMP_INLINE int32_t round(int32_t magnitude) {
    const int32_t clamped = smaller(magnitude, power_of_two(LargestExponent + 1));
    const float anchor = value_of(anchor_of<Significand, SmallestExponent>(clamped));
    return bits_of((value_of(clamped) + anchor) - anchor);
  }

  static MXAMP_INLINE int32_t nan(int32_t) { return kQuietNan; }
};

/*! A format with float32's exponent and fewer bits after the point: the rest is rounded off in integers. */
template <int Significand>
struct ShortFormat {
  static constexpr int kDropped = 23 - Significand;
  static constexpr int32_t kLargest = kInfinity - (1 << kDropped);
  static constexpr int32_t kOverflow = kInfinity;

  static MXAMP_INLINE int32_t round(int32_t magnitude) {
    // Half an ulp, less one where the last bit that stays is even. Up to infinity this cannot reach the sign.
    const int32_t half = (1 << (kDropped - 1)) - 1 + ((magnitude >> kDropped) & 1);
    const uint32_t sum = static_cast<uint32_t>(magnitude) + static_cast<uint32_t>(half);
    return static_cast<int32_t>(sum) & -(1 << kDropped);
  }

  static MXAMP_INLINE int32_t nan(int32_t) { return kQuietNan; }
};

struct Float16 : NarrowFormat<10, -14, 15, 0x477fe000, kInfinity> {
  /*! The payload's upper bits stay; one that would vanish, and leave infinity, becomes 1. */
  static MXAMP_INLINE int32_t nan(int32_t magnitude) {
    const int32_t kept = magnitude & -(1 << 13);
    return kept == kInfinity ? kInfinity + (1 << 13) : kept;
  }
};
struct BFloat16 : ShortFormat<7> {};
struct TFloat32 : ShortFormat<10> {};
struct Float8E4M3FN : NarrowFormat<3, -6, 8, 0x43e00000, kQuietNan> {};
struct Float8E5M2 : NarrowFormat<2, -14, 15, 0x47600000, kInfinity> {};

/*! Round one pattern to a format; `overflow` replaces a magnitude beyond the format's largest. */
template <class Format>
MXAMP_INLINE int32_t round_value(int32_t bits, int32_t overflow) {
  const int32_t magnitude = bits & kMagnitude;
  int32_t result = Format::round(magnitude);
  result = result > Format::kLargest ? overflow : result;
  result = magnitude > kInfinity ? Format::nan(magnitude) : result;
  return result | (bits & ~kMagnitude);
}

/*! Round one pattern to a format of 16 bits, and return those; `overflow` is in 16 bits too. */
template <class Format>
MXAMP_INLINE int32_t cast_value(int32_t bits, int32_t overflow);

template <>
MXAMP_INLINE int32_t cast_value<BFloat16>(int32_t bits, int32_t overflow) {
  const int32_t magnitude = bits & kMagnitude;
  int32_t result = BFloat16::round(magnitude) >> 16;
  result = result > (BFloat16::kLargest >> 16) ? overflow : result;
  result = magnitude > kInfinity ? kQuietNan >> 16 : result;
  return result | ((bits >> 16) & 0x8000);
}

/*!
 * The sum holds the exponent in its upper bits, and below them the rounded significand, implicit bit
 * included. The exponent field of the result is the anchor's, less the difference of the biases (112), the
 * shift (13), and one because the implicit bit is added to it: 126. A subnormal result has the anchor that
 * makes this 0.
 */
template <>
MXAMP_INLINE int32_t cast_value<Float16>(int32_t bits, int32_t overflow) {
  const int32_t magnitude = bits & kMagnitude;
  const int32_t clamped = smaller(magnitude, power_of_two(16));
  const int32_t anchor = anchor_of<10, -14>(clamped);
  const int32_t sum = bits_of(value_of(clamped) + value_of(anchor));
  int32_t result = (sum & 0xffff) + (anchor >> 13) - (126 << 10);
  result = result > 0x7bff ? overflow : result;
  result = magnitude > kInfinity ? (Float16::nan(magnitude) >> 13) - (224 << 10) : result;
  return result | ((bits >> 16) & 0x8000);
}

template <class Format>
MXAMP_INLINE int32_t widen_value(int32_t bits);

template <>
MXAMP_INLINE int32_t widen_value<BFloat16>(int32_t bits) {
  return static_cast<int32_t>(static_cast<uint32_t>(bits) << 16);
}

template <>
MXAMP_INLINE int32_t widen_value<Float16>(int32_t bits) {
  const int32_t magnitude = bits & 0x7fff;
  const int32_t normal = (magnitude << 13) + (112 << 23);
  // A subnormal value is an integer times 2^-24, the ulp of one half. Masks choose, since GCC would otherwise
  // branch around the subtraction and leave the loop as it is. Infinity and NaN have the largest exponent of
  // both formats.
  const int32_t subnormal = bits_of(value_of(power_of_two(-1) | magnitude) - 0.5f);
  const int32_t is_subnormal = (magnitude - 0x0400) >> 31;
  const int32_t is_not_finite = (0x7bff - magnitude) >> 31;
  const int32_t result =
      (subnormal & is_subnormal) | ((normal + (is_not_finite & (112 << 23))) & ~is_subnormal);
  return result | static_cast<int32_t>(static_cast<uint32_t>(bits & 0x8000) << 16);
}

}  // namespace mxamp

#endif  // MXAMP_ROUNDING_H_
