"""Many casts at once, on threads of their own: ``mxamp/ops/src/cast_batch.h`` for Python."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.ops.kernels import kernels

_FORMATS = {DType.FLOAT16.numpy: 0, DType.BFLOAT16.numpy: 1}
_OVERFLOW_TO_INFINITY = 0
_ALL_PROCESSORS = 0


class CastCount(NamedTuple):
    """What came out of a cast that tells of values out of range.

    Attributes
    ----------
    infinite
        How many results are infinite or NaN.
    zero
        How many results are zero.
    """

    infinite: int
    zero: int


_JOB = np.dtype(
    [
        ("values", np.uint64),
        ("out", np.uint64),
        ("factors", np.uint64),
        ("rows", np.uint64),
        ("columns", np.uint64),
        ("format", np.int32),
        ("overflow", np.int32),
        ("infinite", np.uint64),
        ("zero", np.uint64),
    ]
)
"""``mxamp_cast_job``: pointers and sizes of 64 bits, so that nothing needs padding."""


def can_batch_casts() -> bool:
    """Tell whether the native kernels are there."""
    return _library() is not None


def _library() -> Any:
    native = kernels()
    return None if native is None else _declared(native.library)


@lru_cache(maxsize=None)
def _declared(library: Any) -> Any:
    library.mxamp_cast_batch_start.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    library.mxamp_cast_batch_start.restype = ctypes.c_void_p
    library.mxamp_cast_batch_finish.argtypes = (ctypes.c_void_p,)
    library.mxamp_cast_batch_finish.restype = None
    return library


class CastBatch:
    """Casts of float32 arrays that run while the caller does something else.

    Parameters
    ----------
    casts
        For each cast: the values (float32), the array to fill (float16 or bfloat16, of the same shape), and
        None or the factors to multiply the rows with first (float32; the values are so many rows). All
        arrays are C-contiguous and not empty.

    Notes
    -----
    The threads do not need Python's lock. :meth:`finish` must be called, once, after :meth:`start`.
    """

    def __init__(self, casts: Sequence[tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]]) -> None:
        self._library = _library()
        self._arrays = casts  # must stay where they are
        self._jobs = np.array(
            [
                (
                    _address(values),
                    _address(out),
                    0 if factors is None else _address(factors),
                    1 if factors is None else factors.size,
                    values.size if factors is None else values.size // factors.size,
                    _FORMATS[out.dtype],
                    _OVERFLOW_TO_INFINITY,
                    0,
                    0,
                )
                for values, out, factors in casts
            ],
            _JOB,
        )
        self._running: int | None = None

    def start(self) -> None:
        """Begin to cast.

        Raises
        ------
        MemoryError
            When there is no memory for a list of the casts.
        """
        self._running = self._library.mxamp_cast_batch_start(
            _address(self._jobs), len(self._jobs), _ALL_PROCESSORS
        )
        if self._running is None:
            raise MemoryError("There is no memory left to cast parameters.")

    def finish(self) -> Sequence[CastCount]:
        """Take part in what is left, wait for the rest, and return what came out of each cast."""
        if self._running is not None:
            self._library.mxamp_cast_batch_finish(self._running)
            self._running = None
        counts = zip(self._jobs["infinite"].tolist(), self._jobs["zero"].tolist())
        return [CastCount(*count) for count in counts]


def _address(array: NDArray[Any]) -> int:
    if array.dtype.char == "f" and array.flags.writeable:  # float32, whose buffer says so in half the time
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    address: int = array.__array_interface__["data"][0]
    return address
