#include "cast_batch.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace {

/* What is taken at a time, in values: values and patterns stay in the processor's cache until they are counted. */
constexpr uint64_t kChunk = uint64_t{1} << 15;

struct Chunk {
  size_t job;
  uint64_t first_row;
  uint64_t rows;
};

/*
 * Count among at most 2^15 patterns. Counters as narrow as the patterns let the compiler compare and add as many at a
 * time as a register holds; the same source is compiled for several instruction sets.
 */
inline __attribute__((always_inline)) void count_block(const uint16_t* out, size_t n, uint16_t infinity,
                                                       mxamp_cast_count* count) {
  uint16_t infinite = 0, zero = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint16_t magnitude = out[i] & 0x7fffu;
    infinite = static_cast<uint16_t>(infinite + (magnitude >= infinity));
    zero = static_cast<uint16_t>(zero + (magnitude == 0));
  }
  count->infinite += infinite;
  count->zero += zero;
}

void count_portably(const uint16_t* out, size_t n, uint16_t infinity, mxamp_cast_count* count) {
  count_block(out, n, infinity, count);
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) void count_avx2(const uint16_t* out, size_t n, uint16_t infinity,
                                                mxamp_cast_count* count) {
  count_block(out, n, infinity, count);
}
#endif

void count_patterns(const uint16_t* out, size_t n, uint16_t infinity, mxamp_cast_count* count) {
#if defined(__x86_64__) && defined(__GNUC__)
  if (mxamp_instructions() >= 1) return count_avx2(out, n, infinity, count);
#endif
  count_portably(out, n, infinity, count);
}

class Batch {
 public:
  Batch(mxamp_cast_job* jobs, size_t count) : jobs_(jobs) {
    for (size_t job = 0; job < count; ++job) {
      jobs_[job].count = mxamp_cast_count();
      const uint64_t columns = std::max<uint64_t>(jobs_[job].columns, 1);
      const uint64_t rows = std::max<uint64_t>(kChunk / columns, 1);
      for (uint64_t row = 0; row < jobs_[job].rows; row += rows) {
        chunks_.push_back(Chunk{job, row, std::min(rows, jobs_[job].rows - row)});
      }
    }
  }

  void start(size_t threads) {
    threads_.reserve(threads);
    threads = std::min(threads, chunks_.size());
    for (size_t number = 0; number < threads; ++number) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        break; /* the ones that are there, and the caller, do it all */
      }
    }
  }

  void finish() {
    work();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void work() {
    for (;;) {
      const size_t next = next_.fetch_add(1, std::memory_order_relaxed);
      if (next >= chunks_.size()) return;
      const Chunk& chunk = chunks_[next];
      mxamp_cast_job& job = jobs_[chunk.job];
      const uint64_t offset = chunk.first_row * job.columns;
      const uint64_t count = chunk.rows * job.columns;
      if (job.factors == nullptr) {
        mxamp_cast(job.in + offset, job.out + offset, count, job.format, job.overflow, 1);
      } else {
        mxamp_scale_cast(job.in + offset, job.out + offset, 1, chunk.rows, job.columns,
                         job.factors + chunk.first_row, job.format, job.overflow, 1);
      }
      mxamp_cast_count found = mxamp_cast_count();
      const uint16_t infinity = job.format == MXAMP_FLOAT16 ? 0x7c00 : 0x7f80;
      for (uint64_t done = 0; done < count; done += kChunk) { /* one row may be longer than a chunk */
        count_patterns(job.out + offset + done, std::min(kChunk, count - done), infinity, &found);
      }
      const std::lock_guard<std::mutex> lock(counts_);
      job.count.infinite += found.infinite;
      job.count.zero += found.zero;
    }
  }

  mxamp_cast_job* jobs_;
  std::vector<Chunk> chunks_;
  std::atomic<size_t> next_{0};
  std::mutex counts_;
  std::vector<std::thread> threads_;
};

}  // namespace

extern "C" void* mxamp_cast_batch_start(mxamp_cast_job* jobs, size_t count, int threads) try {
  size_t wanted = threads > 0 ? static_cast<size_t>(threads) : std::thread::hardware_concurrency();
  if (threads <= 0 && wanted > 1) --wanted;
  std::unique_ptr<Batch> batch(new Batch(jobs, count));
  batch->start(std::max<size_t>(wanted, 1));
  return batch.release();
} catch (const std::bad_alloc&) {
  return nullptr;
}

extern "C" void mxamp_cast_batch_finish(void* batch) {
  Batch* const running = static_cast<Batch*>(batch);
  running->finish();
  delete running;
}
