"""The target whose costs are at stake, and the file that its timed kernels are kept in, a line each."""

from __future__ import annotations

import argparse
import json
import zlib
from pathlib import Path
from typing import Any, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.files import atomic_write
from mxamp.probe.document import document_text
from mxamp.probe.kernel_samples import KernelSample
from mxamp.targets import Target
from mxamp.targets.kernel_cost import KernelCost, kernel_microseconds
from mxamp.targets.kernel_terms import amounts_and_traits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what every program here is told: the target and its timings."""
    parser.add_argument("target", type=Path, help="the target's document, which has costs of kernels")
    parser.add_argument("--timings", type=Path, default=Path("kernels.jsonl"), help="where timings are kept")


def read_target(parser: argparse.ArgumentParser, path: Path) -> tuple[dict[str, Any], Target]:
    """Return a target's document, and what it says; end the program where it says nothing of kernels."""
    document = json.loads(path.read_text("utf-8"))
    target = Target.from_document(document, source=str(path))
    if target.cost is None or not target.cost.kernels:
        parser.error(f"{path} says nothing of kernels: mxamp probe measures what they cost")
    return document, target


def write_target(path: Path, document: Mapping[str, Any]) -> None:
    """Write a target's document, whole or not at all."""
    with atomic_write(path) as (file,):
        file.write(document_text(document).encode())


def read_timings(path: Path) -> Sequence[Mapping[str, Any]]:
    """Return timed kernels."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def add_timings(path: Path, timed: Iterable[Mapping[str, Any]]) -> None:
    """Add timed kernels to those that are there."""
    with path.open("a", encoding="utf-8") as file:
        for kernel in timed:
            file.write(json.dumps(kernel) + "\n")


def off_by(cost: KernelCost, sample: KernelSample, *, low: bool) -> float | None:
    """Return the logarithm of how many times longer a kernel took than is told; None without a time."""
    time = sample.times[low]
    if not time:
        return None
    told = kernel_microseconds(cost, *amounts_and_traits(sample.op, sample.work, low=low))
    return float(np.log(time / told))


def within(off: NDArray[np.float64]) -> str:
    """Return in words how many kernels are told well, of logarithms of how many times longer they take."""
    return (
        f"{100 * np.mean(np.abs(off) <= np.log(1.25)):.1f} % within 1.25 and "
        f"{100 * np.mean(np.abs(off) <= np.log(2)):.1f} % within 2"
    )


def part_of(sample: KernelSample, parts: int, turn: int = 0) -> int:
    """Return which of some parts a kernel is in: one shape is in the same, wherever it was timed.

    Parameters
    ----------
    sample
        The kernel.
    parts
        How many there are.
    turn
        Which of some ways to part them, 0 to 3: each parts those anew that are together in another.
    """
    shape = repr((sample.op, sample.work.inputs, sample.work.output))
    return (zlib.crc32(shape.encode()) >> 8 * turn) % parts
