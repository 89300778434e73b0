/*!
 * The loops in every instruction set the compiler can write, and the choice between them at run time.
 */
#ifndef MXAMP_DISPATCH_H_
#define MXAMP_DISPATCH_H_

#include <stddef.h>

#include <atomic>

#include "./rounding.h"

namespace mxamp {

/*! Float patterns in an order that integers have: negative numbers count down. Its own inverse. */
MXAMP_INLINE int32_t ordered(int32_t bits) { return bits ^ ((bits >> 31) & kMagnitude); }

/*! -infinity, ordered. */
constexpr int32_t kLeast = -kInfinity - 1;

/*! What survey_loop gathers: patterns, the smallest of them a magnitude less one, and how many are zero. */
struct Survey {
  int32_t highest;
  uint32_t lowest, smallest;
  int32_t zero;
};

/*! What extremes_loop gathers. Magnitudes are patterns; minimum and maximum are in the order of `ordered`. */
struct Extremes {
  int32_t minimum, maximum, largest, smallest_nonzero;
  uint64_t nan, inf, zero;

  /*! Add what a survey of one or more values found; false, and nothing added, where some were not finite. */
  bool add(const Survey& survey) {
    const int32_t positive = survey.highest, negative = static_cast<int32_t>(survey.lowest);
    if (positive >= kInfinity || (negative & (negative < 0 ? kMagnitude : 0)) >= kInfinity) return false;
    const int32_t least =
        survey.smallest < kMagnitude ? static_cast<int32_t>(survey.smallest) + 1 : kInfinity;
    const int32_t nearest = survey.zero > 0 ? 0 : least;  // to zero, of all that have the only sign there is
    minimum = smaller(minimum, negative < 0 ? ordered(negative) : nearest);
    maximum = larger(maximum, positive >= 0 ? positive : ordered(nearest - kMagnitude - 1));
    largest = larger(largest, larger(positive, negative < 0 ? negative & kMagnitude : 0));
    smallest_nonzero = smaller(smallest_nonzero, least);
    zero += static_cast<uint64_t>(survey.zero);
    return true;
  }

  void merge(const Extremes& other) {
    minimum = smaller(minimum, other.minimum);
    maximum = larger(maximum, other.maximum);
    largest = larger(largest, other.largest);
    smallest_nonzero = smaller(smallest_nonzero, other.smallest_nonzero);
    nan += other.nan;
    inf += other.inf;
    zero += other.zero;
  }
};

MXAMP_INLINE Extremes nothing_seen() { return {kInfinity, kLeast, 0, kInfinity, 0, 0, 0}; }

/*! One set of loops, indexed by MXAMP_FLOAT16 and so on. */
struct Loops {
  void (*round[5])(const float* in, float* out, size_t n, int32_t overflow);
  void (*cast[2])(const float* in, uint16_t* out, size_t n, int32_t overflow);
  void (*scale_cast[2])(const float* in, uint16_t* out, size_t n, float factor, int32_t overflow);
  void (*scales_cast[2])(const float* in, uint16_t* out, size_t n, const float* factors, int32_t overflow);
  void (*widen[2])(const uint16_t* in, float* out, size_t n);
  int32_t (*largest)(const float* in, size_t n);
  void (*survey)(const float* in, float* out, size_t n, Survey* survey);
  void (*survey_copy)(const float* in, float* out, size_t n, Survey* survey);
  void (*extremes)(const float* in, size_t n, Extremes* extremes);
};

}  // namespace mxamp

// In the loops each value is read before its own result is written, and no result is read again: input and
// output may be one array, and the compiler need not check whether they are.
#if defined(__clang__)
#define MXAMP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define MXAMP_INDEPENDENT _Pragma("GCC ivdep")
#else
#define MXAMP_INDEPENDENT
#endif

#define MXAMP_TARGET
#define MXAMP_LEVEL portable
#include "./loops.h"
#undef MXAMP_LEVEL
#undef MXAMP_TARGET

#if defined(__x86_64__) && defined(__GNUC__)
#define MXAMP_DISPATCH_X86 1
#define MXAMP_TARGET __attribute__((target("avx2")))
#define MXAMP_LEVEL avx2
#include "./loops.h"
#undef MXAMP_LEVEL
#undef MXAMP_TARGET
#if defined(__clang__)
#define MXAMP_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define MXAMP_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#define MXAMP_LEVEL avx512
#include "./loops.h"
#undef MXAMP_LEVEL
#undef MXAMP_TARGET
#endif

namespace mxamp {

/*! The best level of this processor, none above `limit`. */
inline int supported_level(int limit) {
#if defined(MXAMP_DISPATCH_X86)
  __builtin_cpu_init();
  // These also ask whether the operating system keeps the registers.
  if (limit >= 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return 2;
  }
  if (limit >= 1 && __builtin_cpu_supports("avx2")) return 1;
#endif
  (void)limit;
  return 0;
}

inline std::atomic<int>& chosen_level() {
  static std::atomic<int> level(supported_level(2));
  return level;
}

inline const Loops& loops() {
#if defined(MXAMP_DISPATCH_X86)
  switch (chosen_level().load(std::memory_order_relaxed)) {
    case 2:
      return *avx512::loops();
    case 1:
      return *avx2::loops();
    default:
      break;
  }
#endif
  return *portable::loops();
}

}  // namespace mxamp

#endif  // MXAMP_DISPATCH_H_
