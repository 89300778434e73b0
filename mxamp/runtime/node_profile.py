"""What every node of a bound graph takes, as MXNet's own profiler tells, in a process of the naive engine.

The profiler reads the clock right before and right behind a node, in compiled code. A monitor
(:mod:`mxamp.runtime.node_times`) is called in Python between nodes, which drives code and data out of the
caches near the core: of kernels of less than 12 microseconds that were timed twice, by the profiler 78 in
100 agree within a quarter, by the monitor 60 to 75.

Its events carry operators' names, not nodes'. The naive engine finishes one node before it begins the next,
so the events of a pass are the nodes in the order in which the executor runs them. Executors run several
nodes as one unless told otherwise: see :func:`mxamp.runtime.executor.bind_environment`.
"""

from __future__ import annotations

import re
import tempfile
from functools import lru_cache
from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.runtime.mxnet import import_mxnet

_EVENT = re.compile(r'"name": "([^"]*)",\s*"cat": "operator",\s*"ph": "([BE])",\s*"ts": (\d+)')


class NodeProfiler:
    """MXNet's profiler; a process has one: :func:`node_profiler`."""

    def __init__(self) -> None:
        self._profiler = import_mxnet().profiler
        # It only writes to files; this one has no name, and is gone with the process, however that ends.
        self._trace = tempfile.TemporaryFile("r+", encoding="utf-8")  # noqa: SIM115
        self._profiler.set_config(
            profile_symbolic=True,
            profile_imperative=False,
            profile_api=False,
            profile_memory=False,
            filename=f"/proc/self/fd/{self._trace.fileno()}",
            aggregate_stats=False,
        )

    def time(self, forward: Callable[[], None], operators: Sequence[str], passes: int) -> NDArray[np.float64]:
        """Run some forward passes, and return what each node took in each.

        Parameters
        ----------
        forward
            Runs one, of an executor that was bound without bundles.
        operators
            The operators of the nodes that run, in their order.
        passes
            How many.

        Returns
        -------
        numpy.ndarray
            ``(passes, len(operators))``, microseconds, each a whole number: a difference of two times that
            were cut to whole ones, so wrong by less than one, and right in the mean.

        Raises
        ------
        RuntimeError
            When other operators ran.
        """
        self._profiler.set_state("run")
        try:
            for _ in range(passes):
                forward()
        finally:
            self._profiler.set_state("stop")
            self._profiler.dump(finished=False)
        self._trace.seek(0)
        names, taken = _innermost(self._trace.read())
        self._trace.seek(0)
        self._trace.truncate()  # it appends
        if names != list(operators) * passes:
            raise RuntimeError(
                f"MXNet's profiler saw {len(names)} operators in {passes} forward passes of a graph of "
                f"{len(operators)}, or others."
            )
        return np.array(taken, dtype=np.float64).reshape(passes, len(operators))


@lru_cache(maxsize=None)
def node_profiler() -> NodeProfiler:
    """Return the profiler of this process."""
    return NodeProfiler()


def _innermost(text: str) -> tuple[list[str], list[int]]:
    """Return names and microseconds of the events of a trace that have no others inside."""
    names: list[str] = []
    taken: list[int] = []
    open_: list[tuple[str, int]] = []
    is_leaf = False
    for name, phase, at in _EVENT.findall(text):
        if phase == "B":
            open_.append((name, int(at)))
            is_leaf = True
        else:
            began = open_.pop()
            if is_leaf:
                names.append(began[0])
                taken.append(int(at) - began[1])
            is_leaf = False
    return names, taken


_LIKE_THE_MEDIAN = 1.1
_CLOCK = 1.0


def typical(taken: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what nodes take in an undisturbed pass, in microseconds.

    The mean of what is no longer than the median, give or take a tenth and what the clock is cut to: means
    tell less than the clock's microsecond, and what else the machine does only makes a node slower.

    Parameters
    ----------
    taken
        ``(passes, nodes)``, as :meth:`NodeProfiler.time` returns it.
    """
    counts = taken <= _LIKE_THE_MEDIAN * np.median(taken, axis=0) + _CLOCK
    found: NDArray[np.float64] = (taken * counts).sum(axis=0) / counts.sum(axis=0)
    return found


def forward_of(executor: Any) -> Callable[[], None]:
    """Return what runs a forward pass, and makes no arrays of its outputs."""
    mx = import_mxnet()
    run, check = mx.base._LIB.MXExecutorForward, mx.base.check_call

    def forward() -> None:
        check(run(executor.handle, 0))  # which lives as long as the executor

    return forward
