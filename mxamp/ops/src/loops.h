/*!
 * The loops over contiguous values. This file is included once for each instruction set, with MXAMP_TARGET
 * naming its instructions and MXAMP_LEVEL the namespace: the same source, vectorised by the compiler each
 * time. No include guard.
 */

namespace mxamp {
namespace MXAMP_LEVEL {

template <class Format>
MXAMP_TARGET void round_loop(const float* in, float* out, size_t n, int32_t overflow) {
  MXAMP_INDEPENDENT
  for (size_t i = 0; i < n; ++i) out[i] = value_of(round_value<Format>(bits_of(in[i]), overflow));
}

template <class Format>
MXAMP_TARGET void cast_loop(const float* in, uint16_t* out, size_t n, int32_t overflow) {
  MXAMP_INDEPENDENT
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<uint16_t>(cast_value<Format>(bits_of(in[i]), overflow));
}

template <class Format>
MXAMP_TARGET void scale_cast_loop(const float* in, uint16_t* out, size_t n, float factor, int32_t overflow) {
  MXAMP_INDEPENDENT
  for (size_t i = 0; i < n; ++i) {
    out[i] = static_cast<uint16_t>(cast_value<Format>(bits_of(in[i] * factor), overflow));
  }
}

template <class Format>
MXAMP_TARGET void scales_cast_loop(const float* in, uint16_t* out, size_t n, const float* factors,
                                   int32_t overflow) {
  MXAMP_INDEPENDENT
  for (size_t i = 0; i < n; ++i) {
    out[i] = static_cast<uint16_t>(cast_value<Format>(bits_of(in[i] * factors[i]), overflow));
  }
}

template <class Format>
MXAMP_TARGET void widen_loop(const uint16_t* in, float* out, size_t n) {
  MXAMP_INDEPENDENT
  for (size_t i = 0; i < n; ++i) out[i] = value_of(widen_value<Format>(in[i]));
}

MXAMP_TARGET inline int32_t largest_loop(const float* in, size_t n) {
  int32_t largest = 0;
  for (size_t i = 0; i < n; ++i) {
    const int32_t magnitude = bits_of(in[i]) & kMagnitude;
    largest = larger(largest, magnitude < kInfinity ? magnitude : 0);
  }
  return largest;
}

/*!
 * The extremes of at most 2^31 - 1 patterns, in as few instructions as vectors need; `out` gets a copy where
 * asked. As signed numbers all patterns of positive numbers come first, in order; as unsigned ones those of
 * negative numbers do, the most negative first. A zero is the last magnitude once one is subtracted.
 */
template <bool Copy>
MXAMP_TARGET void survey_loop(const float* in, float* out, size_t n, Survey* survey) {
  int32_t highest = -kMagnitude - 1, zero = 0;
  uint32_t lowest = 0, smallest = 0xffffffffu;
  MXAMP_INDEPENDENT
  for (size_t i = 0; i < n; ++i) {
    const int32_t bits = bits_of(in[i]);
    const int32_t less_one = (bits & kMagnitude) - 1;
    highest = larger(highest, bits);
    lowest = static_cast<uint32_t>(bits) > lowest ? static_cast<uint32_t>(bits) : lowest;
    smallest = static_cast<uint32_t>(less_one) < smallest ? static_cast<uint32_t>(less_one) : smallest;
    zero -= less_one >> 31;
    if (Copy) out[i] = in[i];
  }
  *survey = {highest, lowest, smallest, zero};
}

/*!
 * The same of values that may be infinite or NaN, which do not count for the extremes.
 *
 * Conditions are masks, all ones or all zeros, made from the sign of a difference: GCC 12 takes a choice
 * inside a minimum for a branch, and leaves the loop as it is.
 */
MXAMP_TARGET inline void extremes_loop(const float* in, size_t n, Extremes* extremes) {
  Extremes found = nothing_seen();
  int32_t nan = 0, not_finite = 0, zero = 0;
  for (size_t i = 0; i < n; ++i) {
    const int32_t bits = bits_of(in[i]);
    const int32_t magnitude = bits & kMagnitude;
    const int32_t is_finite = (magnitude - kInfinity) >> 31;
    const int32_t is_nan = (kInfinity - magnitude) >> 31;
    const int32_t is_zero = (magnitude - 1) >> 31;
    const int32_t order = ordered(bits) & is_finite;
    found.minimum = smaller(found.minimum, order | (kInfinity & ~is_finite));
    found.maximum = larger(found.maximum, order | (kLeast & ~is_finite));
    found.largest = larger(found.largest, magnitude & is_finite);
    found.smallest_nonzero = smaller(found.smallest_nonzero, magnitude | (kInfinity & is_zero));
    nan -= is_nan;
    not_finite += 1 + is_finite;
    zero -= is_zero;
  }
  found.nan = static_cast<uint64_t>(nan);
  found.inf = static_cast<uint64_t>(not_finite - nan);
  found.zero = static_cast<uint64_t>(zero);
  extremes->merge(found);
}

inline const Loops* loops() {
  static constexpr Loops table = {
      {round_loop<Float16>, round_loop<BFloat16>, round_loop<TFloat32>, round_loop<Float8E4M3FN>,
       round_loop<Float8E5M2>},
      {cast_loop<Float16>, cast_loop<BFloat16>},
      {scale_cast_loop<Float16>, scale_cast_loop<BFloat16>},
      {scales_cast_loop<Float16>, scales_cast_loop<BFloat16>},
      {widen_loop<Float16>, widen_loop<BFloat16>},
      largest_loop,
      survey_loop<false>,
      survey_loop<true>,
      extremes_loop,
  };
  return &table;
}

}  // namespace MXAMP_LEVEL
}  // namespace mxamp
