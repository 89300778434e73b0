"""Kernels that were timed, as samples to fit costs to."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from mxamp.ops import FACTS
from mxamp.ops.casts import AMP_CAST
from mxamp.targets.cost import CAST_DOWN, CAST_UP
from mxamp.targets.kernel_family import family_of
from mxamp.targets.work import Work


class KernelSample(NamedTuple):
    """One kernel that was timed.

    Attributes
    ----------
    family
        The kind of kernel that it is.
    op
        Its canonical operator name.
    work
        What it does.
    times
        Microseconds in FP32 and in the low dtype; None where it does not run. A cast has one time.
    """

    family: str
    op: str
    work: Work
    times: tuple[float | None, float | None]


def read_kernels(timed: Iterable[Mapping[str, Any]]) -> list[KernelSample]:
    """Return what :func:`mxamp.runtime.kernel_times.time_kernels` measured, as samples."""
    samples = []
    for one in timed:
        if one["work"] is None:
            continue
        op, work, times = FACTS.canonical(one["op"]), Work.from_document(one["work"]), one["us"]
        if op == AMP_CAST:  # what it does there is what it is called by
            for label, family, order in zip(("float32", "low"), (CAST_DOWN, CAST_UP), work.arrives_in):
                if label in times:
                    read = work._replace(arrives_in=(order, order))
                    samples.append(KernelSample(family, op, read, (times[label], None)))
        else:
            samples.append(
                KernelSample(family_of(op, work), op, work, (times.get("float32"), times.get("low")))
            )
    return samples


def by_family(samples: Sequence[KernelSample]) -> Mapping[str, Sequence[KernelSample]]:
    """Return the samples of each family."""
    found: dict[str, list[KernelSample]] = {}
    for sample in samples:
        found.setdefault(sample.family, []).append(sample)
    return found
