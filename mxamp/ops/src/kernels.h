/*!
 * Numerical kernels of mxamp: rounding, casting and observing float32 values.
 *
 * A plain C interface that knows neither MXNet nor Python. Every function is reentrant: several threads may
 * call them at once. Pointers are to contiguous values, aligned as their type needs. `threads` is the most
 * threads to use, 0 for one a processor that the process may run on, up to OMP_NUM_THREADS where that was set
 * when first asked; small arrays are handled in the calling thread whatever it says. Formats are not checked.
 *
 * Rounding is to nearest, ties to even, with subnormals, whatever floating-point modes the caller has set.
 *
 * Overflow. A magnitude that rounds beyond the largest finite value (for float8_e4m3fn: is nearer to the
 * value that would follow 448 than to 448) becomes infinite with MXAMP_OVERFLOW_INF, or NaN in float8_e4m3fn,
 * which has no infinity; with MXAMP_OVERFLOW_SATURATE it becomes the largest finite value, and so does an
 * infinite input.
 *
 * NaN stays NaN and keeps its sign. In float16 it also keeps the upper 10 bits of its payload, as in NumPy's
 * cast (a payload that would be lost becomes 1); in the other formats it becomes the quiet NaN without
 * payload, as in ml_dtypes.
 */
#ifndef MXAMP_KERNELS_H_
#define MXAMP_KERNELS_H_

#include <stddef.h>
#include <stdint.h>

#define MXAMP_KERNELS_VERSION 1

#if defined(__GNUC__)
#define MXAMP_EXPORT __attribute__((visibility("default")))
#else
#define MXAMP_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
  MXAMP_FLOAT16 = 0,
  MXAMP_BFLOAT16 = 1,
  MXAMP_TFLOAT32 = 2,
  MXAMP_FLOAT8_E4M3FN = 3,
  MXAMP_FLOAT8_E5M2 = 4
};

enum { MXAMP_OVERFLOW_INF = 0, MXAMP_OVERFLOW_SATURATE = 1 };

/*!
 * What a tensor holds. The four magnitudes are over finite values only; they start from what changes no
 * minimum or maximum, so that observations can be merged, and keep it where there is no such value.
 */
struct mxamp_observation {
  uint64_t count;          /* all values */
  uint64_t nan;            /* values that are NaN */
  uint64_t inf;            /* values that are infinite */
  uint64_t zero;           /* values that are zero, of either sign */
  float minimum;           /* least finite value; +infinity without one */
  float maximum;           /* greatest finite value; -infinity without one */
  float largest;           /* greatest finite magnitude; 0 without one */
  float smallest_nonzero;  /* least finite magnitude but 0; +infinity without one */
  uint64_t exponents[256]; /* values by biased exponent; 0 is zero and subnormal, 255 inf and NaN */
};

/*! The version of this interface. */
MXAMP_EXPORT int mxamp_kernels_version(void);

/*! What the library was built from: a hash of the sources, or "" where the build named none. */
MXAMP_EXPORT const char* mxamp_kernels_source(void);

/*!
 * Instruction sets: 0 what every processor of the architecture has, 1 AVX2, 2 AVX-512.
 * Both return the level in use. mxamp_set_instructions takes the best one up to `level` that this processor
 * has; all levels give the same bits. It is for tests and measurements, and holds for the whole process.
 */
MXAMP_EXPORT int mxamp_instructions(void);
MXAMP_EXPORT int mxamp_set_instructions(int level);

/*! Round float32 values to a format's, in float32. `in == out` is allowed, other overlap is not. */
MXAMP_EXPORT void mxamp_round(const float* in, float* out, size_t n, int format, int overflow, int threads);

/*! Cast float32 values to the bit patterns of MXAMP_FLOAT16 or MXAMP_BFLOAT16. */
MXAMP_EXPORT void mxamp_cast(const float* in, uint16_t* out, size_t n, int format, int overflow, int threads);

/*!
 * out[o, c, i] = cast(in[o, c, i] * factors[c]): one float32 product, then one rounding.
 * `in` and `out` hold outer * channels * inner values, `factors` holds `channels`.
 */
MXAMP_EXPORT void mxamp_scale_cast(const float* in, uint16_t* out, size_t outer, size_t channels,
                                   size_t inner, const float* factors, int format, int overflow, int threads);

/*! Widen the bit patterns of MXAMP_FLOAT16 or MXAMP_BFLOAT16 to float32; exact, NaN payloads included. */
MXAMP_EXPORT void mxamp_widen(const uint16_t* in, float* out, size_t n, int format, int threads);

/*! The largest finite magnitude; 0 without one. */
MXAMP_EXPORT float mxamp_largest_finite(const float* in, size_t n, int threads);

/*! Observe all values in one pass; where `out` is not NULL they are copied to it. `in == out` is allowed. */
MXAMP_EXPORT void mxamp_observe(const float* in, float* out, size_t n, struct mxamp_observation* observation,
                                int threads);

#ifdef __cplusplus
}
#endif

#endif /* MXAMP_KERNELS_H_ */
