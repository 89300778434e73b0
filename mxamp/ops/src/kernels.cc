#include "./kernels.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "./dispatch.h"
#include "./parallel.h"
#include "./rounding.h"

#ifndef MXAMP_SOURCE
#define MXAMP_SOURCE ""
#endif

namespace mxamp {
namespace {

/*! What replaces a magnitude beyond the largest, as float32. */
template <class Format>
int32_t replacement(int overflow) {
  return overflow == MXAMP_OVERFLOW_SATURATE ? Format::kLargest : Format::kOverflow;
}

int32_t replacement_of(int format, int overflow) {
  switch (format) {
    case MXAMP_FLOAT16:
      return replacement<Float16>(overflow);
    case MXAMP_BFLOAT16:
      return replacement<BFloat16>(overflow);
    case MXAMP_TFLOAT32:
      return replacement<TFloat32>(overflow);
    case MXAMP_FLOAT8_E4M3FN:
      return replacement<Float8E4M3FN>(overflow);
    default:
      return replacement<Float8E5M2>(overflow);
  }
}

/*! The same in the 16 bits of MXAMP_FLOAT16 and MXAMP_BFLOAT16. */
int32_t replacement_16(int format, int overflow) {
  const bool saturate = overflow == MXAMP_OVERFLOW_SATURATE;
  return (format == MXAMP_FLOAT16 ? 0x7c00 : 0x7f80) - (saturate ? 1 : 0);
}

/*! Values observed at a time: read from memory once, then again from the nearest cache. */
constexpr size_t kObserved = 2048;

/*!
 * How often each exponent occurs. Counted in several places in turn: an increment waits for the one before it
 * where both are of one count.
 */
class Histogram {
 public:
  /*! Count the exponents of fewer than 2^32 values in all, and have the next `kObserved` values fetched. */
  void add(const float* values, size_t n, const float* copy) {
    size_t i = 0;
    for (; i + kPlaces <= n; i += kPlaces) {
      if (i % 16 == 0) {
        prefetch(values + i + kObserved);
        if (copy != nullptr) prefetch(copy + i + kObserved);
      }
      for (size_t place = 0; place < kPlaces; place += 2) {
        uint64_t two;
        memcpy(&two, values + i + place, sizeof two);
        ++counts_[place][(two >> 23) & 0xff];
        ++counts_[place + 1][two >> 55 & 0xff];
      }
    }
    for (; i < n; ++i) ++counts_[0][(bits_of(values[i]) >> 23) & 0xff];
  }

  void add_to(uint64_t* exponents) const {
    for (const auto& counts : counts_) {
      for (size_t exponent = 0; exponent < 256; ++exponent) exponents[exponent] += counts[exponent];
    }
  }

 private:
  static void prefetch(const float* place) {
#if defined(__GNUC__)
    __builtin_prefetch(place);
#else
    (void)place;
#endif
  }

  static constexpr size_t kPlaces = 8;
  uint32_t counts_[kPlaces][256] = {};
};

}  // namespace
}  // namespace mxamp

using mxamp::loops;
using mxamp::parallel;

int mxamp_kernels_version(void) { return MXAMP_KERNELS_VERSION; }

const char* mxamp_kernels_source(void) { return MXAMP_SOURCE; }

int mxamp_instructions(void) { return mxamp::chosen_level().load(std::memory_order_relaxed); }

int mxamp_set_instructions(int level) {
  mxamp::chosen_level().store(mxamp::supported_level(level), std::memory_order_relaxed);
  return mxamp_instructions();
}

void mxamp_round(const float* in, float* out, size_t n, int format, int overflow, int threads) {
  const auto loop = loops().round[format];
  const int32_t replacement = mxamp::replacement_of(format, overflow);
  parallel(n, threads,
           [=](size_t begin, size_t end) { loop(in + begin, out + begin, end - begin, replacement); });
}

void mxamp_cast(const float* in, uint16_t* out, size_t n, int format, int overflow, int threads) {
  const auto loop = loops().cast[format];
  const int32_t replacement = mxamp::replacement_16(format, overflow);
  parallel(n, threads,
           [=](size_t begin, size_t end) { loop(in + begin, out + begin, end - begin, replacement); });
}

void mxamp_scale_cast(const float* in, uint16_t* out, size_t outer, size_t channels, size_t inner,
                      const float* factors, int format, int overflow, int threads) {
  const auto row_loop = loops().scale_cast[format];
  const auto block_loop = loops().scales_cast[format];
  const int32_t replacement = mxamp::replacement_16(format, overflow);
  // Short rows are handled many at a time, with the factors written out for each value.
  constexpr size_t kShort = 64, kBlock = 1024;
  parallel(outer * channels * inner, threads, [=](size_t begin, size_t end) {
    size_t channel = begin / inner % channels, within = begin % inner;
    float written[kBlock];
    while (begin < end) {
      size_t count;
      if (inner >= kShort) {
        count = std::min(end - begin, inner - within);
        row_loop(in + begin, out + begin, count, factors[channel], replacement);
        within = 0;
        channel = channel + 1 == channels ? 0 : channel + 1;
      } else if (inner == 1) {
        count = std::min(end - begin, channels - channel);
        block_loop(in + begin, out + begin, count, factors + channel, replacement);
        channel = 0;
      } else {
        count = std::min(end - begin, kBlock);
        for (size_t i = 0; i < count; ++i) {
          written[i] = factors[channel];
          if (++within == inner) {
            within = 0;
            channel = channel + 1 == channels ? 0 : channel + 1;
          }
        }
        block_loop(in + begin, out + begin, count, written, replacement);
      }
      begin += count;
    }
  });
}

void mxamp_widen(const uint16_t* in, float* out, size_t n, int format, int threads) {
  const auto loop = loops().widen[format];
  parallel(n, threads, [=](size_t begin, size_t end) { loop(in + begin, out + begin, end - begin); });
}

float mxamp_largest_finite(const float* in, size_t n, int threads) {
  const auto loop = loops().largest;
  std::atomic<int32_t> largest(0);
  parallel(n, threads, [&, in, loop](size_t begin, size_t end) {
    const int32_t found = loop(in + begin, end - begin);
    int32_t known = largest.load(std::memory_order_relaxed);
    while (found > known && !largest.compare_exchange_weak(known, found, std::memory_order_relaxed)) {
    }
  });
  return mxamp::value_of(largest.load());
}

void mxamp_observe(const float* in, float* out, size_t n, struct mxamp_observation* observation,
                   int threads) {
  const mxamp::Loops& loop = loops();
  const bool copy = out != nullptr && out != in;
  const auto survey_loop = copy ? loop.survey_copy : loop.survey;
  mxamp::Extremes all = mxamp::nothing_seen();
  memset(observation, 0, sizeof *observation);
  std::mutex mutex;
  parallel(n, threads, [&](size_t begin, size_t end) {
    mxamp::Extremes extremes = mxamp::nothing_seen();
    mxamp::Histogram histogram;
    for (size_t start = begin; start < end; start += mxamp::kObserved) {
      const size_t count = std::min(mxamp::kObserved, end - start);
      float* const copied = copy ? out + start : nullptr;
      mxamp::Survey survey;
      survey_loop(in + start, copied, count, &survey);
      if (!extremes.add(survey)) loop.extremes(in + start, count, &extremes);
      histogram.add(in + start, count, copied);
    }
    const std::lock_guard<std::mutex> lock(mutex);
    all.merge(extremes);
    histogram.add_to(observation->exponents);
  });
  observation->count = n;
  observation->nan = all.nan;
  observation->inf = all.inf;
  observation->zero = all.zero;
  observation->minimum = mxamp::value_of(mxamp::ordered(all.minimum));
  observation->maximum = mxamp::value_of(mxamp::ordered(all.maximum));
  observation->largest = mxamp::value_of(all.largest);
  observation->smallest_nonzero = mxamp::value_of(all.smallest_nonzero);
}
