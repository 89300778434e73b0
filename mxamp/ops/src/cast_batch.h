/*
 * Casting many arrays while the caller does something else: a plain C interface.
 *
 * A model has hundreds of parameters, and converting it has other things to do than to wait for them. One call
 * starts the casts on threads of their own, without Python's lock in between, and another waits for them.
 */
#ifndef MXAMP_OPS_SRC_CAST_BATCH_H_
#define MXAMP_OPS_SRC_CAST_BATCH_H_

#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What came out of a cast that tells of values out of range. */
struct mxamp_cast_count {
  uint64_t infinite; /* results that are infinite or NaN */
  uint64_t zero;     /* results that are zero */
};

struct mxamp_cast_job {
  const float* in;        /* rows * columns values */
  uint16_t* out;          /* as many bit patterns */
  const float* factors;   /* one a row, or NULL: the values as they are */
  uint64_t rows;
  uint64_t columns;
  int32_t format;         /* MXAMP_FLOAT16 or MXAMP_BFLOAT16 */
  int32_t overflow;       /* MXAMP_OVERFLOW_INF or MXAMP_OVERFLOW_SATURATE */
  struct mxamp_cast_count count; /* filled in */
};

/*
 * Start the jobs on `threads` threads (0: one a processor, less one for the caller; at least one) and return
 * without waiting; NULL when there is no memory for a list of them. Without threads the caller does it all, at
 * the end. The jobs and the arrays must stay where they are until mxamp_cast_batch_finish, which must be called
 * exactly once.
 */
MXAMP_EXPORT void* mxamp_cast_batch_start(struct mxamp_cast_job* jobs, size_t count, int threads);

/* Take part in what is left, wait for the rest, and free the batch. */
MXAMP_EXPORT void mxamp_cast_batch_finish(void* batch);

#ifdef __cplusplus
}
#endif
#endif  /* MXAMP_OPS_SRC_CAST_BATCH_H_ */
