#include "./parallel.h"

#include <pthread.h>
#include <unistd.h>

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cstdlib>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace mxamp {
namespace {

/*! The bandwidth of memory is exhausted by fewer threads than this. */
constexpr int kMostThreads = 64;

/*! The processors that this process may use: OMP_NUM_THREADS limits these threads as it does MXNet's. */
int available_processors() {
  int found = static_cast<int>(std::thread::hardware_concurrency());
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) found = CPU_COUNT(&set);
#endif
  const char* const text = std::getenv("OMP_NUM_THREADS");
  const long limit = text != nullptr ? std::strtol(text, nullptr, 10) : 0;
  if (limit > 0 && limit < found) found = static_cast<int>(limit);
  return std::max(1, found);
}

/*! Rounding to nearest and no flush to zero, while it lives: a caller's modes must not change a result. */
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&saved_); }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
  std::fenv_t saved_;
};

/*!
 * A condition to wait for. That of the standard library would do, but its wait() was given a new version in GCC 12's,
 * which systems before 2022 do not have: a wheel with it would not load there.
 */
class Condition {
 public:
  Condition() = default;
  ~Condition() { pthread_cond_destroy(&condition_); }
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  void notify_one() { pthread_cond_signal(&condition_); }
  void notify_all() { pthread_cond_broadcast(&condition_); }

  template <typename Predicate>
  void wait(std::unique_lock<std::mutex>* lock, Predicate holds) {
    while (!holds()) pthread_cond_wait(&condition_, lock->mutex()->native_handle());
  }

 private:
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

/*! One call of run_pieces; it lives on the stack of the thread that asked. */
struct Job {
  size_t n;
  Piece piece;
  void* context;
  std::atomic<size_t> next;  // Where the first piece begins that nobody has taken.
  int wanted;                // Threads that may still join; guarded by the pool's mutex.
  int active;                // Threads that joined and have not left; guarded by the pool's mutex.
  Job* following;            // In the pool's list.

  void work() {
    const DefaultFloatingPoint guard;
    for (;;) {
      const size_t begin = next.fetch_add(kPiece, std::memory_order_relaxed);
      if (begin >= n) return;
      piece(context, begin, std::min(n, begin + kPiece));
    }
  }
};

class Pool {
 public:
  explicit Pool(pid_t process) : process_(process) {}

  pid_t process() const { return process_; }

  void run(Job* job) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      job->following = jobs_;
      jobs_ = job;
      start_threads(job->wanted);
    }
    if (job->wanted == 1) {
      waiting_.notify_one();
    } else {
      waiting_.notify_all();
    }
    job->work();
    std::unique_lock<std::mutex> lock(mutex_);
    Job** place = &jobs_;
    while (*place != job) place = &(*place)->following;
    *place = job->following;
    finished_.wait(&lock, [job] { return job->active == 0; });
  }

 private:
  /*! Have at least this many threads, or as many as the system allows. */
  void start_threads(int wanted) {
    while (threads_ < std::min(wanted, kMostThreads)) {
      try {
        std::thread(&Pool::serve, this).detach();
      } catch (const std::system_error&) {
        return;  // The caller does the work.
      }
      ++threads_;
    }
  }

  void serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      Job* job = nullptr;
      waiting_.wait(&lock, [this, &job] { return (job = open_job()) != nullptr; });
      --job->wanted;
      ++job->active;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->active == 0) finished_.notify_all();
    }
  }

  Job* open_job() const {
    for (Job* job = jobs_; job != nullptr; job = job->following) {
      if (job->wanted > 0 && job->next.load(std::memory_order_relaxed) < job->n) return job;
    }
    return nullptr;
  }

  const pid_t process_;
  std::mutex mutex_;
  Condition waiting_;   // For a job.
  Condition finished_;  // For the threads to leave a job.
  Job* jobs_ = nullptr;
  int threads_ = 0;
};

/*! The pool of this process; null where there is no memory for one. */
Pool* pool() {
  static std::atomic<Pool*> current(nullptr);
  const pid_t process = getpid();
  Pool* found = current.load(std::memory_order_acquire);
  while (found == nullptr || found->process() != process) {
    // A parent's pool is left alone: a thread that does not exist here may have held its mutex.
    Pool* made = new (std::nothrow) Pool(process);
    if (made == nullptr) return nullptr;
    if (current.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return made;
    delete made;  // Another thread was first; `found` is its pool.
  }
  return found;
}

}  // namespace

void run_pieces(size_t n, int threads, Piece piece, void* context) {
  const size_t pieces = (n + kPiece - 1) / kPiece;
  Job job = {n, piece, context, {0}, 0, 0, nullptr};
  if (pieces > 1 && threads != 1) {
    static const int available = available_processors();
    const int most = std::min(threads > 0 ? threads : available, kMostThreads);
    job.wanted = static_cast<int>(std::min<size_t>(pieces, static_cast<size_t>(most))) - 1;
  }
  Pool* const found = job.wanted > 0 ? pool() : nullptr;
  if (found == nullptr) {
    job.work();
  } else {
    found->run(&job);
  }
}

}  // namespace mxamp
