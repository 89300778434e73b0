"""The native kernels for NumPy arrays: rounding, casting and observing at the speed of memory.

Everything here can also be computed with NumPy, several times slower, and is where :func:`kernels` returns
None: where the library was not built (:mod:`mxamp.ops.build`), or the environment variable ``MXAMP_NATIVE``
is ``0``. The results are the same bits. Nothing is built here.

Arrays must be C-contiguous and in native byte order, because callers know better than this module what to do
with those that are not. The functions do not hold Python's lock while they compute.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.errors import LibraryError, OperatorError
from mxamp.messages.warn import warn_user
from mxamp.ops.formats import Overflow, as_format, format_code
from mxamp.ops.libraries import Library, find_built, kernels_library
from mxamp.ops.observation import EXPONENTS, Observation

_VERSION = 1
"""MXAMP_KERNELS_VERSION of kernels.h: the interface that the declarations below describe."""

_FLOAT32 = np.dtype(np.float32)


class _Observation(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_uint64),
        ("nan", ctypes.c_uint64),
        ("inf", ctypes.c_uint64),
        ("zero", ctypes.c_uint64),
        ("minimum", ctypes.c_float),
        ("maximum", ctypes.c_float),
        ("largest", ctypes.c_float),
        ("smallest_nonzero", ctypes.c_float),
        ("exponents", ctypes.c_uint64 * EXPONENTS),
    )


def kernels() -> Kernels | None:
    """Return the native kernels, or None where there are none to be used.

    A library that is there and cannot be loaded is reported, once, as an :class:`MxampWarning`.
    """
    if os.environ.get("MXAMP_NATIVE", "").strip() == "0":
        return None
    return found_kernels()


@lru_cache(maxsize=None)
def found_kernels() -> Kernels | None:
    """Return the kernels that are built for this machine, looked for once; None where there are none."""
    try:
        library = kernels_library()
        path = find_built(library)
        return load_kernels(path, library) if path is not None else None
    except LibraryError as error:
        warn_user(f"mxamp computes with NumPy, which is slower: {error}")
        return None


def load_kernels(path: Path, library: Library) -> Kernels:
    """Load a library that was built.

    Parameters
    ----------
    path
        Where it is.
    library
        What it should have been built from.

    Raises
    ------
    LibraryError
        When it cannot be loaded, or was built from something else.
    """
    advice = "Build it again: python -m mxamp.ops.build kernels"
    try:
        loaded = ctypes.CDLL(str(path))
        version = int(loaded.mxamp_kernels_version())
        loaded.mxamp_kernels_source.restype = ctypes.c_char_p
        source = loaded.mxamp_kernels_source().decode()
    except (OSError, AttributeError) as error:
        raise LibraryError(f"{path} cannot be loaded as the kernels of mxamp: {error}. {advice}") from error
    if version != _VERSION:
        raise LibraryError(
            f"{path} has version {version} of the kernels' interface, and this mxamp uses version "
            f"{_VERSION}. {advice}"
        )
    if source != library.source:
        raise LibraryError(
            f"{path} was built from other sources ({source or 'unknown'}) than those of this mxamp "
            f"({library.source}). {advice}"
        )
    return Kernels(loaded)


class Kernels:
    """The functions of a loaded library.

    Parameters
    ----------
    library
        The library; :func:`kernels` loads it.

    Notes
    -----
    ``threads`` is the most threads to use, 0 for one a processor that the process may run on, or
    ``OMP_NUM_THREADS`` if that is less. Arrays of up to 65,536 values are handled in the calling thread.

    Every method raises OperatorError for an array of another dtype, layout or shape than it takes.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        for name, arguments in (
            ("round", (pointer, pointer, size, number, number, number)),
            ("cast", (pointer, pointer, size, number, number, number)),
            ("scale_cast", (pointer, pointer, size, size, size, pointer, number, number, number)),
            ("widen", (pointer, pointer, size, number, number)),
            ("largest_finite", (pointer, size, number)),
            ("observe", (pointer, pointer, size, ctypes.POINTER(_Observation), number)),
            ("set_instructions", (number,)),
        ):
            function = getattr(library, f"mxamp_{name}")
            function.argtypes = arguments
            function.restype = None
        library.mxamp_largest_finite.restype = ctypes.c_float
        library.mxamp_set_instructions.restype = number

    def round(
        self,
        values: NDArray[np.float32],
        format: DType | str,
        *,
        overflow: Overflow | str = Overflow.INF,
        threads: int = 0,
        out: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """Return the nearest values of a format, ties to even, as float32.

        Parameters
        ----------
        values
            float32.
        format
            ``"float16"``, ``"bfloat16"``, ``"tfloat32"``, ``"float8_e4m3fn"`` or ``"float8_e5m2"``.
        overflow
            What becomes of magnitudes beyond the format's largest.
        threads
            The most threads to use.
        out
            float32 of the same shape, for the result; may be ``values`` itself. None makes a new array.
        """
        _check(values, _FLOAT32, "values")
        result = _result(out, values.shape, (_FLOAT32,))
        self.library.mxamp_round(
            values.ctypes.data,
            result.ctypes.data,
            values.size,
            format_code(as_format(format)),
            Overflow.parse(overflow).code,
            threads,
        )
        return result

    def cast(
        self,
        values: NDArray[np.float32],
        dtype: DType | str,
        *,
        overflow: Overflow | str = Overflow.INF,
        threads: int = 0,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Return float32 values in float16 or bfloat16, rounded to nearest, ties to even.

        Parameters
        ----------
        values
            float32.
        dtype
            ``DType.FLOAT16`` or ``DType.BFLOAT16``, or their names.
        overflow
            What becomes of magnitudes beyond the dtype's largest.
        threads
            The most threads to use.
        out
            An array of the same shape for the result, of that dtype or, for the bit patterns, of uint16. None
            makes a new array of that dtype.
        """
        format_ = _stored_format(dtype)
        _check(values, _FLOAT32, "values")
        result = _result(out, values.shape, _dtypes_of(format_))
        self.library.mxamp_cast(
            values.ctypes.data,
            result.ctypes.data,
            values.size,
            format_code(format_),
            Overflow.parse(overflow).code,
            threads,
        )
        return result

    def scale_cast(
        self,
        values: NDArray[np.float32],
        factors: NDArray[np.float32],
        dtype: DType | str,
        *,
        overflow: Overflow | str = Overflow.INF,
        threads: int = 0,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Return ``(values * factors)``, a product in float32, rounded to float16 or bfloat16.

        Parameters
        ----------
        values
            float32.
        factors
            float32, with a shape that broadcasts to that of ``values`` and at most one axis longer than one.
        dtype, overflow, threads, out
            As for :meth:`cast`.
        """
        format_ = _stored_format(dtype)
        _check(values, _FLOAT32, "values")
        _check(factors, _FLOAT32, "factors")
        outer, channels, inner = _channels(values.shape, factors.shape)
        result = _result(out, values.shape, _dtypes_of(format_))
        self.library.mxamp_scale_cast(
            values.ctypes.data,
            result.ctypes.data,
            outer,
            channels,
            inner,
            factors.ctypes.data,
            format_code(format_),
            Overflow.parse(overflow).code,
            threads,
        )
        return result

    def widen(
        self,
        values: NDArray[Any],
        dtype: DType | str,
        *,
        threads: int = 0,
        out: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """Return float16 or bfloat16 values in float32; every value is exact, and a NaN keeps its payload.

        Parameters
        ----------
        values
            Of ``dtype``, or its bit patterns in uint16.
        dtype
            ``DType.FLOAT16`` or ``DType.BFLOAT16``, or their names.
        threads
            The most threads to use.
        out
            float32 of the same shape, for the result. None makes a new array.
        """
        format_ = _stored_format(dtype)
        accepted = _dtypes_of(format_)
        _check(values, values.dtype if values.dtype in accepted else accepted[0], "values")
        result = _result(out, values.shape, (_FLOAT32,))
        self.library.mxamp_widen(
            values.ctypes.data, result.ctypes.data, values.size, format_code(format_), threads
        )
        return result

    def largest_finite(self, values: NDArray[np.float32], *, threads: int = 0) -> float:
        """Return the largest finite magnitude, 0 where there is none."""
        _check(values, _FLOAT32, "values")
        return float(self.library.mxamp_largest_finite(values.ctypes.data, values.size, threads))

    def observe(
        self, values: NDArray[np.float32], *, threads: int = 0, out: NDArray[np.float32] | None = None
    ) -> Observation:
        """Gather what an array holds, in one pass.

        Where zeros of both signs are the minimum or the maximum, it is the negative or the positive one.

        Parameters
        ----------
        values
            float32.
        threads
            The most threads to use.
        out
            float32 of the same shape, to copy the values to in the same pass; None copies nothing.
        """
        _check(values, _FLOAT32, "values")
        copied = None if out is None else _result(out, values.shape, (_FLOAT32,)).ctypes.data
        seen = _Observation()
        self.library.mxamp_observe(values.ctypes.data, copied, values.size, ctypes.byref(seen), threads)
        return Observation(
            count=seen.count,
            nan=seen.nan,
            inf=seen.inf,
            zero=seen.zero,
            minimum=seen.minimum,
            maximum=seen.maximum,
            largest=seen.largest,
            smallest_nonzero=seen.smallest_nonzero,
            exponents=tuple(seen.exponents),
        )

    def instructions(self) -> int:
        """Return the instruction set in use: 0 what every processor has, 1 AVX2, 2 AVX-512."""
        return int(self.library.mxamp_instructions())

    def set_instructions(self, level: int) -> int:
        """Use the best instruction set up to ``level`` in the whole process, for tests; return which."""
        return int(self.library.mxamp_set_instructions(level))


def _stored_format(dtype: DType | str) -> DType:
    format_ = as_format(dtype)
    if format_.is_emulated_only:
        raise OperatorError(
            f"Arrays cannot be stored in {format_}, which MXNet does not have. Use float16 or bfloat16, or "
            "round without storing."
        )
    return format_


def _dtypes_of(format_: DType) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes that hold a format's bit patterns; the last is how MXNet's bfloat16 reaches NumPy."""
    dtypes = (format_.numpy, np.dtype(np.uint16))
    return (*dtypes, np.dtype([("bfloat16", np.uint16)])) if format_ is DType.BFLOAT16 else dtypes


def _result(
    out: NDArray[Any] | None, shape: tuple[int, ...], dtypes: tuple[np.dtype[Any], ...]
) -> NDArray[Any]:
    if out is None:
        return np.empty(shape, dtypes[0])
    _check(out, out.dtype if out.dtype in dtypes else dtypes[0], "out")
    _check_writable(out)
    if out.shape != shape:
        raise OperatorError(f"out has the shape {out.shape}, and the values have {shape}: they must agree.")
    return out


def _check(array: NDArray[Any], dtype: np.dtype[Any], name: str) -> None:
    if not isinstance(array, np.ndarray):
        raise OperatorError(f"{name} must be a NumPy array, not {type(array).__name__}.")
    if array.dtype != dtype:
        raise OperatorError(f"{name} must be an array of {dtype.name}, not {array.dtype}; cast it first.")
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned and array.dtype.isnative):
        raise OperatorError(
            f"{name} must be C-contiguous, aligned and in native byte order; numpy.ascontiguousarray makes a "
            "copy that is."
        )


def _check_writable(array: NDArray[Any]) -> None:
    if not array.flags.writeable:
        raise OperatorError("The array for the result is read-only; give one that can be written to.")


def _channels(shape: tuple[int, ...], factors: tuple[int, ...]) -> tuple[int, int, int]:
    """Return how many values lie before, along and after the axis of the factors."""
    aligned = (1,) * (len(shape) - len(factors)) + factors
    long = [axis for axis, length in enumerate(aligned) if length != 1]
    if len(factors) > len(shape) or len(long) > 1 or any(aligned[axis] != shape[axis] for axis in long):
        raise OperatorError(
            f"factors of the shape {factors} are not one a channel of values of the shape {shape}: they must "
            "broadcast, with at most one axis longer than one."
        )
    if not long:
        return 1, 1, int(np.prod(shape, dtype=np.int64))
    axis = long[0]
    before, after = (int(np.prod(part, dtype=np.int64)) for part in (shape[:axis], shape[axis + 1 :]))
    return before, shape[axis], after
