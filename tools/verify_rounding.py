"""Round every one of the 2^32 float32 values with the native kernels, and compare with NumPy and ml_dtypes.

    python -m tools.verify_rounding                      float16 and bfloat16, a few minutes
    python -m tools.verify_rounding --formats tfloat32 float8_e4m3fn float8_e5m2

For each value it compares rounding, with both ways to overflow, and for the formats that MXNet stores casting
and widening, in every instruction set that this processor has. Results are compared bit for bit, NaN
included. What tfloat32 should give is mxamp.ops.reference's: nothing in NumPy is tfloat32.

The normal tests do the same for a sample.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Callable, Iterator, Sequence

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.ops.formats import FORMATS, Overflow, as_format
from mxamp.ops.kernels import Kernels, kernels
from mxamp.ops.reference import round_to

__all__ = ["main", "verify"]

_ALL = 1 << 32
_BLOCK = 1 << 21
_STORED = {DType.FLOAT16: np.dtype(np.float16), DType.BFLOAT16: np.dtype(ml_dtypes.bfloat16)}
_SHOWN = 5


def verify(
    native: Kernels,
    format: DType,
    *,
    threads: int = 1,
    blocks: Sequence[int] | None = None,
    progress: Callable[[int, int], None] = lambda done, differences: None,
) -> tuple[int, list[str]]:
    """Compare a format's kernels with the reference.

    Parameters
    ----------
    native
        The kernels.
    format
        Which format.
    threads
        How many threads the kernels may use.
    blocks
        Which blocks of 2^21 successive patterns; None takes all 2^11.
    progress
        Called after each block with the number of values compared so far and of differences found.

    Returns
    -------
    tuple of int and list of str
        How many results differ, and a description of the first few.
    """
    levels = _levels(native)
    best = native.instructions()
    differences, shown = 0, []
    offsets = np.arange(_BLOCK, dtype=np.uint32)
    try:
        for number, block in enumerate(range(_ALL // _BLOCK) if blocks is None else blocks):
            patterns = offsets + np.uint32(block * _BLOCK)
            values = patterns.view(np.float32)
            expected = _expected(values, format)
            for level in levels:
                native.set_instructions(level)
                for name, found in _results(native, values, format, threads):
                    different = np.flatnonzero(found != expected[name])
                    differences += different.size
                    for index in different[: max(0, _SHOWN - len(shown))]:
                        shown.append(
                            f"{name}, instructions {level}: {patterns[index]:#010x} becomes "
                            f"{found[index]:#x}, not {expected[name][index]:#x}"
                        )
            progress((number + 1) * _BLOCK, differences)
    finally:
        native.set_instructions(best)
    return differences, shown


def _levels(native: Kernels) -> list[int]:
    best = native.instructions()
    found = [level for level in range(best + 1) if native.set_instructions(level) == level]
    native.set_instructions(best)
    return found


def _expected(values: NDArray[np.float32], format: DType) -> dict[str, NDArray[Any]]:
    """Return the patterns that each kernel should give, by its name."""
    expected: dict[str, NDArray[Any]] = {}
    dtype = _STORED.get(format)
    if dtype is None:
        for overflow in Overflow:
            expected[f"round, {overflow}"] = round_to(values, format, overflow).view(np.uint32)
        return expected
    with np.errstate(all="ignore"):
        cast = values.astype(dtype).view(np.uint16)
        # Each of the 65,536 results is widened once.
        wide = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32).view(np.uint32)
    infinity = np.array(np.inf, np.float32).astype(dtype).view(np.uint16)
    saturated = cast - ((cast & 0x7FFF) == infinity).astype(np.uint16)
    for overflow, result in ((Overflow.INF, cast), (Overflow.SATURATE, saturated)):
        expected[f"cast, {overflow}"] = result
        expected[f"round, {overflow}"] = wide[result]
    expected["widen"] = expected[f"round, {Overflow.INF}"]
    return expected


def _results(
    native: Kernels, values: NDArray[np.float32], format: DType, threads: int
) -> Iterator[tuple[str, NDArray[Any]]]:
    for overflow in Overflow:
        rounded = native.round(values, format, overflow=overflow, threads=threads)
        yield f"round, {overflow}", rounded.view(np.uint32)
        if format in _STORED:
            cast = native.cast(values, format.label, overflow=overflow, threads=threads)
            yield f"cast, {overflow}", cast.view(np.uint16)
            if overflow is Overflow.INF:
                yield "widen", native.widen(cast, format.label, threads=threads).view(np.uint32)


def _progress(format: DType) -> Callable[[int, int], None]:
    began = time.monotonic()
    live = sys.stderr.isatty()
    next_percent = 0

    def show(done: int, differences: int) -> None:
        nonlocal next_percent
        percent = 100 * done // _ALL
        if percent < next_percent:
            return
        next_percent = percent + (1 if live else 10)
        print(
            f"{format}: {percent:3d} %, {differences} differences, {time.monotonic() - began:.0f} s",
            end="\r" if live and percent < 100 else "\n",
            file=sys.stderr,
            flush=True,
        )

    return show


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; None means those of the process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.verify_rounding",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    parser.add_argument(
        "--formats",
        nargs="+",
        metavar="FORMAT",
        choices=[format.label for format in FORMATS],
        default=["float16", "bfloat16"],
        help="which formats (default: float16 bfloat16)",
    )
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="threads of the kernels (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    native = kernels()
    if native is None:
        print("The native kernels are not built; python -m mxamp.ops.build kernels does.", file=sys.stderr)
        return 2
    print(f"NumPy {np.__version__}, ml_dtypes {ml_dtypes.__version__}, instruction sets {_levels(native)}")
    failed = False
    for name in options.formats:
        format = as_format(name)
        differences, shown = verify(native, format, threads=options.threads, progress=_progress(format))
        print(f"{format}: all 2^32 values compared, {differences} differences", flush=True)
        for line in shown:
            print(f"    {line}")
        failed = failed or differences > 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
