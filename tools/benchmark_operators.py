"""Time the native kernels and MXNet's operators made of them against the bandwidth of memory, in turn.

    python -m tools.benchmark_operators            (or: make bench-operators)

Every variant reads the same array of float32 in one process, and they take turns, so that whatever else the
machine does falls on all of them alike. The bound is a copy by NumPy, one read and one write of each value,
as rounding and observing do at least. What MXNet itself has for rounding to a format of 16 bits is Cast there
and back.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Sequence

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from mxamp.errors import MxampError
from mxamp.ops.formats import FORMATS
from mxamp.ops.kernels import Kernels, kernels
from mxamp.ops.observation import OBSERVATION_LENGTH
from tools.benchmark_options import add_benchmark_options, write_measurements
from tools.machine import describe_machine, machine_lines, prepare_environment

__all__ = ["Timing", "main", "measure"]

COPY = "copy (NumPy)"
ROUND_TRIP = "Cast to {} and back (MXNet)"
_STORED = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
_MAKE_DATA: dict[str, Callable[[np.random.Generator, int], NDArray[np.float32]]] = {
    "normal": lambda random, size: random.standard_normal(size, np.float32),
    "relu": lambda random, size: np.maximum(random.standard_normal(size, np.float32), np.float32(0)),
    "subnormal": lambda random, size: random.standard_normal(size, np.float32) * np.float32(2.0**-18),
}
"""Ordinary values; half of them zero; values that are subnormal in float16."""


@dataclass(frozen=True)
class Timing:
    """How long one variant takes.

    Attributes
    ----------
    variant : str
        What is done, and by what.
    bytes : int
        What it reads and writes, counting each array once.
    milliseconds : list of float
        One a round; the rounds of all variants belong together.
    """

    variant: str
    bytes: int
    milliseconds: list[float] = field(default_factory=list)

    def spread(self) -> tuple[float, float, float]:
        """Return the 10th percentile, the median and the 90th percentile of the milliseconds."""
        low, middle, high = np.percentile(self.milliseconds, (10, 50, 90))
        return float(low), float(middle), float(high)

    def ratio(self, other: Timing) -> tuple[float, float, float]:
        """Return the same of this one's time over another's."""
        ratios = np.asarray(self.milliseconds) / np.asarray(other.milliseconds)
        low, middle, high = np.percentile(ratios, (10, 50, 90))
        return float(low), float(middle), float(high)


def measure(
    values: NDArray[np.float32], *, rounds: int, threads: int, with_mxnet: bool = True
) -> list[Timing]:
    """Measure all variants; the copy comes first.

    Parameters
    ----------
    values : numpy.ndarray
        float32, C-contiguous.
    rounds : int
        How often to time each.
    threads : int
        How many threads the kernels use. MXNet's follow OMP_NUM_THREADS.
    with_mxnet : bool, default True
        Whether to measure MXNet's operators too.

    Raises
    ------
    MxampError
        When the kernels are not built, or MXNet or mxamp's operators cannot be loaded.
    """
    native = kernels()
    if native is None:
        raise MxampError(
            "The native kernels are not built, and there is nothing to measure: python -m mxamp.ops.build"
        )
    variants = _of_arrays(native, values, threads)
    if with_mxnet:
        variants += _of_mxnet(values)
    timings = []
    for name, moved, run in variants:
        run()
        run()
        timings.append(Timing(name, moved))
    for number in range(rounds):
        # Whoever begins changes every round.
        first = number % len(variants)
        for index in (*range(first, len(variants)), *range(first)):
            run = variants[index][2]
            started = time.perf_counter()
            run()
            timings[index].milliseconds.append(1e3 * (time.perf_counter() - started))
    return timings


def _of_arrays(native: Kernels, values: NDArray[np.float32], threads: int) -> list[Any]:
    size, out = values.nbytes, np.zeros_like(values)
    variants: list[Any] = [(COPY, 2 * size, lambda: np.copyto(out, values))]
    for format in FORMATS:
        variants.append(
            (
                f"round to {format}",
                2 * size,
                lambda format=format: native.round(values, format, threads=threads, out=out),
            )
        )
    variants.append(("observe", 2 * size, lambda: native.observe(values, threads=threads, out=out)))
    variants.append(("observe, no copy", size, lambda: native.observe(values, threads=threads)))
    variants.append(("largest finite", size, lambda: native.largest_finite(values, threads=threads)))
    factors = np.full((1,), 1.5, np.float32)
    for name, dtype in _STORED.items():
        low = np.zeros(values.shape, dtype)
        other = "NumPy" if dtype == np.float16 else "ml_dtypes"

        def cast(name: str = name, low: NDArray[Any] = low) -> None:
            native.cast(values, name, threads=threads, out=low)

        def scale(name: str = name, low: NDArray[Any] = low) -> None:
            native.scale_cast(values, factors, name, threads=threads, out=low)

        def widen(name: str = name, low: NDArray[Any] = low) -> None:
            native.widen(low, name, threads=threads, out=out)

        def cast_by_numpy(low: NDArray[Any] = low) -> None:
            with np.errstate(all="ignore"):
                np.copyto(low, values, casting="unsafe")

        moved = size + size // 2
        variants += [
            (f"cast to {name}", moved, cast),
            (f"cast to {name} ({other})", moved, cast_by_numpy),
            (f"scale and cast to {name}", moved, scale),
            (f"widen {name}", moved, widen),
        ]
    return variants


def _of_mxnet(values: NDArray[np.float32]) -> list[Any]:
    from mxamp.runtime.library import OBSERVE, ROUND, load_operators
    from mxamp.runtime.mxnet import import_mxnet

    mx = import_mxnet()
    load_operators()
    size, data = values.nbytes, mx.nd.array(values)
    # As in a bound graph, results have their place already: new memory costs more than any of these.
    out, counts = mx.nd.zeros_like(data), mx.nd.zeros((OBSERVATION_LENGTH,), dtype="float64")
    variants: list[Any] = [("copy (MXNet)", 2 * size, lambda: data.copyto(out).wait_to_read())]
    for name in _STORED:
        low = mx.nd.zeros(values.shape, dtype=np.float16 if name == "float16" else "bfloat16")

        def round_trip(low: Any = low, name: str = name) -> None:
            mx.nd.Cast(data, dtype=name, out=low)
            mx.nd.Cast(low, dtype="float32", out=out).wait_to_read()

        def rounding(name: str = name) -> None:
            getattr(mx.nd._internal, ROUND)(data, format=name, out=out).wait_to_read()

        variants += [
            (ROUND_TRIP.format(name), 3 * size, round_trip),
            (f"{ROUND} to {name}", 2 * size, rounding),
        ]

    def observe() -> None:
        for output in getattr(mx.nd._internal, OBSERVE)(data, out=[out, counts]):
            output.wait_to_read()

    return [*variants, (OBSERVE, 2 * size, observe)]


def _print(timings: Sequence[Timing]) -> None:
    copy = timings[0]
    print(f"{'':<33}{'least':>8}{'ms':>8}{'10-90 %':>16}{'GB/s':>7}{'time / copy':>26}")
    for found in timings:
        low, middle, high = found.spread()
        ratios = found.ratio(copy)
        print(
            f"{found.variant:<33}{min(found.milliseconds):>8.2f}{middle:>8.2f}{f'{low:.2f}-{high:.2f}':>16}"
            f"{found.bytes / middle / 1e6:>7.1f}"
            f"{f'{ratios[1]:.2f}  ({ratios[0]:.2f} to {ratios[2]:.2f})':>26}"
        )


def _print_goals(timings: Sequence[Timing]) -> None:
    by_name = {found.variant: found for found in timings}
    copy = by_name[COPY]
    print()
    for name, most in (
        ("round to float16", 2),
        ("_mxamp_round to float16", 2),
        ("observe", 3),
        ("_mxamp_observe", 3),
    ):
        if name in by_name:
            ratio = by_name[name].ratio(copy)[1]
            print(f"{name}: {ratio:.2f} times the time of a copy (wanted: at most {most})")
    round_trip = by_name.get(ROUND_TRIP.format("float16"))
    for name in ("round to float16", "_mxamp_round to float16"):
        if round_trip is not None and name in by_name:
            ratio = round_trip.ratio(by_name[name])[1]
            print(f"{name}: {ratio:.1f} times as fast as Cast there and back (wanted: at least 5)")
    for name in _STORED:
        cast = by_name[f"cast to {name}"]
        bandwidth = cast.bytes / copy.bytes / cast.ratio(copy)[1]
        print(f"cast to {name}: {bandwidth:.2f} of the bandwidth of a copy (wanted: at least 0.5)")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmark_operators",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    parser.add_argument(
        "--megabytes", type=int, default=64, metavar="N", help="size of the array (default: %(default)s)"
    )
    parser.add_argument(
        "--data", choices=sorted(_MAKE_DATA), default="normal", help="its values (default: %(default)s)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        metavar="N",
        help="threads of the kernels and of MXNet (default: %(default)s, as NumPy's copy has)",
    )
    parser.add_argument(
        "--instructions",
        type=int,
        choices=(0, 1, 2),
        help="instruction set of the kernels: 0 portable, 1 AVX2, 2 AVX-512 (default: the best there is)",
    )
    parser.add_argument("--no-mxnet", action="store_true", help="leave out MXNet's operators")
    add_benchmark_options(parser, rounds=30, round_means="how often each is timed", seed_of="the values")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; None means those of the process.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    for name in ("megabytes", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    # MXNet and the operator library read it when they are first used.
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    prepare_environment()
    machine = describe_machine(seed=options.seed)
    native = kernels()
    if native is not None and options.instructions is not None:
        native.set_instructions(options.instructions)
    level = native.instructions() if native is not None else None
    values = _MAKE_DATA[options.data](
        np.random.default_rng(options.seed), options.megabytes * (1_000_000 // 4)
    )
    print(
        f"{options.megabytes} MB of float32 ({options.data}), {options.rounds} rounds, {options.threads} "
        f"threads, instruction set {level}; medians with the 10th and 90th percentile"
    )
    print("\n".join(machine_lines(machine)), flush=True)
    try:
        timings = measure(
            values, rounds=options.rounds, threads=options.threads, with_mxnet=not options.no_mxnet
        )
    except MxampError as error:
        print(f"mxamp: {error}", file=sys.stderr)
        return 1
    print()
    _print(timings)
    _print_goals(timings)
    write_measurements(
        options.json,
        {
            "machine": machine,
            "megabytes": options.megabytes,
            "data": options.data,
            "rounds": options.rounds,
            "threads": options.threads,
            "instructions": level,
            "timings": [asdict(found) for found in timings],
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
