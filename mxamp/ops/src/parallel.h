/*!
 * A pool of threads for loops over independent pieces.
 *
 * Threads start when first needed, sleep between calls, and are never joined: the pool is not destroyed, so
 * that it cannot delay the end of the process. The thread that asks works along; a call ends when its pieces
 * are done, whether other threads took part or not. Several threads may ask at once. After a fork the child
 * begins a pool of its own, since it has no thread but the one that forked.
 */
#ifndef MXAMP_PARALLEL_H_
#define MXAMP_PARALLEL_H_

#include <stddef.h>

namespace mxamp {

/*! Work on the values [begin, end). */
using Piece = void (*)(void* context, size_t begin, size_t end);

/*! Values handled at a time: enough to be worth a thread, and few enough to stay in its cache. */
constexpr size_t kPiece = 1 << 16;

/*! Call `piece` for pieces that cover [0, n), on up to `threads` threads (0: as many as may be used). */
void run_pieces(size_t n, int threads, Piece piece, void* context);

/*! The same for a function object `work(begin, end)`. */
template <class Work>
void parallel(size_t n, int threads, const Work& work) {
  run_pieces(
      n, threads,
      [](void* context, size_t begin, size_t end) { (*static_cast<const Work*>(context))(begin, end); },
      const_cast<Work*>(&work));
}

}  // namespace mxamp

#endif  // MXAMP_PARALLEL_H_
