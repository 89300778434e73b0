"""Time every node of a model while the whole model runs; a program, for it has to be a process of its own.

MXNet's executor calls a monitor after every node. With the naive engine a node has finished by then, so the
time between two calls is the time of one node, as it runs inside the network: with the memory layouts that
its neighbours use, after the weights were reordered once, and fused as deployed. (MXNet's
profiler disturbs nodes less, and tells them by their order alone, of executors that were bound for that:
:mod:`mxamp.runtime.node_profile`, which times kernels.)

The engine is chosen when MXNet is loaded, and a kernel that crashes takes its process with it.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

from mxamp.measuring.child import do_job
from mxamp.measuring.race import LEAD_IN_BELOW

ENGINE = "NaiveEngine"
"""The engine that has finished a node before it goes on to the next."""

_MONITOR = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)

_FEWEST_ROUNDS = 5


class NodeClock:
    """Times the nodes of one bound model, one forward pass after the other.

    Parameters
    ----------
    bound
        A :class:`mxamp.runtime.executor.BoundModel` with data loaded.
    names
        The nodes of the graph as the backend runs it.
    """

    def __init__(self, bound: Any, names: Sequence[str]) -> None:
        from mxamp.runtime.mxnet import import_mxnet

        library = import_mxnet().base._LIB
        self._bound = bound
        self._names = frozenset(names)
        self._nodes: dict[bytes, str] = {}
        self._calls: list[tuple[bytes, float, float]] = []
        self.seconds: dict[str, list[float]] = {}
        """Node -> its time in each pass."""
        free, now, calls = library.MXNDArrayFree, time.perf_counter, self._calls

        def after_node(name: bytes, handle: int, _: Any) -> None:
            called = now()
            free(ctypes.c_void_p(handle))  # MXNet hands over a copy of the NDArray, not of its values
            calls.append((name, called, now()))

        self._monitor = _MONITOR(after_node)  # kept, since MXNet only has its address
        failed = library.MXExecutorSetMonitorCallbackEX(
            bound.executor.handle, self._monitor, None, ctypes.c_int(0)
        )
        if failed:
            raise RuntimeError(import_mxnet().base.py_str(library.MXGetLastError()))

    def run(self) -> None:
        """Run one forward pass, and add what each node took."""
        self._calls.clear()
        last = time.perf_counter()
        self._bound.forward()
        taken: dict[str, float] = {}
        for output, called, returned in self._calls:
            # A node with several outputs is called for each; only the first call ends its run.
            node = self.node_of(output)
            taken[node] = taken.get(node, 0.0) + called - last
            last = returned
        for node, seconds in taken.items():
            self.seconds.setdefault(node, []).append(seconds)

    def microseconds(self) -> dict[str, float]:
        """Return node -> the lower quartile of its times.

        What else the machine does only makes a node slower, and a long node is hit more often than a short
        one: on a busy machine medians favour short nodes.
        """
        return {node: lower_quartile(seconds) for node, seconds in self.seconds.items()}

    def forget(self) -> None:
        """Forget what was timed so far."""
        self.seconds.clear()

    def node_of(self, output: bytes) -> str:
        """Return the node that an output is of: the one with the longest name that fits."""
        found = self._nodes.get(output)
        if found is None:
            found = output.decode("utf-8", "replace")
            # "conv0_output", "split0_output1", "batchnorm0_mean"
            node = found
            while node not in self._names and "_" in node:
                node = node.rpartition("_")[0]
            found = self._nodes[output] = node if node in self._names else found
        return found


def lower_quartile(seconds: Sequence[float]) -> float:
    """Return the lower quartile of some times, in microseconds."""
    return 1e6 * sorted(seconds)[len(seconds) // 4]


_LEAST_SHARE = 0.3
"""What a node keeps of its time, however much watching it takes."""


def undisturbed(microseconds: Mapping[str, float], whole: float) -> dict[str, float]:
    """Return what nodes take where nobody watches them: in sum, what a forward pass takes as a whole.

    Whoever is told of a node drives code and data out of the caches near the core, which the next node finds
    gone: 2 to 6 microseconds a node (AMD EPYC), whatever the node does. So each loses as much, and keeps
    three tenths at least.

    Parameters
    ----------
    microseconds
        Node -> its time, watched.
    whole
        Microseconds of a forward pass that was not.
    """

    def without(lost: float) -> dict[str, float]:
        return {node: max(us - lost, _LEAST_SHARE * us) for node, us in microseconds.items()}

    least, most = 0.0, max(microseconds.values(), default=0.0)
    if sum(microseconds.values()) <= whole:
        return dict(microseconds)
    for _ in range(40):
        middle = (least + most) / 2
        if sum(without(middle).values()) > whole:
            least = middle
        else:
            most = middle
    return without(most)


class BackendNode(NamedTuple):
    """A node of a graph as the CPU's backend runs it.

    Attributes
    ----------
    name, op
        Its name, and its operator.
    members
        The nodes that it fuses into one; itself alone otherwise.
    """

    name: str
    op: str
    members: tuple[str, ...]


def backend_nodes(symbol: Any) -> Sequence[BackendNode]:
    """Return the nodes of an ``mx.sym.Symbol`` as the CPU's backend runs them, in their order."""
    backend = symbol.get_backend_symbol("MKLDNN")
    found = []
    for node in json.loads(backend.tojson(remove_amp_cast=False))["nodes"]:
        if node["op"] != "null":
            members = (
                inner["name"]
                for body in node.get("subgraphs", ())
                for inner in body["nodes"]
                if inner["op"] != "null"
            )
            is_fused = node["name"].startswith("sg_") and node.get("subgraphs")
            found.append(
                BackendNode(node["name"], node["op"], tuple(members) if is_fused else (node["name"],))
            )
    return found


_ALONE = 15
"""Forward passes that are timed as a whole, before their nodes are watched."""

_WARMUP = 3
"""Forward passes in which kernels are chosen and weights reordered."""


def time_nodes(
    models: Sequence[Any], data: Mapping[str, Any], *, ctx: str, seconds: float, rounds: int
) -> list[dict[str, Any]]:
    """Time the nodes of several models, by turns.

    Parameters
    ----------
    models
        :class:`mxamp.Model`, each.
    data
        Input name -> array.
    ctx
        The device.
    seconds
        How long to go on, warming up included; every model runs :data:`_FEWEST_ROUNDS` times in any case.
    rounds
        The most forward passes of each.

    Returns
    -------
    list of dict
        For each model ``microseconds`` (node -> lower quartile, without what watching takes where that
        matters), ``fused`` (fused node -> its members) and ``rounds``.
    """
    from mxamp.runtime.executor import BoundModel, is_fusion_on

    bounds = [BoundModel(model, ctx=ctx, label=f"model {number + 1}") for number, model in enumerate(models)]
    for bound in bounds:
        bound.load(data)
    start = time.perf_counter()
    alone = [_times_alone(bound) for bound in bounds]
    clocks, fusions = [], []
    for model, bound in zip(models, bounds):
        names: list[str] = [node.name for node in model.graph.nodes]
        fused: dict[str, list[str]] = {}
        if bound.ctx.device_type == "cpu" and is_fusion_on():
            nodes = backend_nodes(bound.symbol)
            names = [node.name for node in nodes]
            fused = {node.name: list(node.members) for node in nodes if node.members != (node.name,)}
        clocks.append(NodeClock(bound, names))
        fusions.append(fused)
    for clock in clocks:
        for _ in range(_WARMUP):
            clock.run()
        clock.forget()
    done = 0
    while done < rounds and (done < _FEWEST_ROUNDS or time.perf_counter() - start < seconds):
        for bound, clock, short in zip(bounds, clocks, alone):
            if short is not None:
                bound.forward()  # brings back into the caches what the others drove out
            clock.run()
        done += 1
    found = []
    for clock, fused, short in zip(clocks, fusions, alone):
        watched = clock.microseconds()
        microseconds = watched if short is None else undisturbed(watched, short)
        found.append({"microseconds": microseconds, "fused": fused, "rounds": done})
    return found


def _times_alone(bound: Any) -> float | None:
    """Return the microseconds of a forward pass that nobody watches; None where watching hardly counts."""
    for _ in range(_WARMUP):
        start = time.perf_counter()
        bound.forward()
        last = time.perf_counter() - start
    if last >= LEAD_IN_BELOW:
        return None
    taken = []
    for _ in range(_ALONE):
        start = time.perf_counter()
        bound.forward()
        taken.append(time.perf_counter() - start)
    return lower_quartile(taken)


def main(path: str) -> None:
    """Do what a job's file asks for, and write the result beside it."""
    do_job(_time_models, path)


def _time_models(job: Mapping[str, Any]) -> Any:
    from mxamp.model import load

    with np.load(job["data"]) as arrays:
        data = dict(arrays)
    return time_nodes(
        [load(prefix) for prefix in job["models"]],
        data,
        ctx=job["ctx"],
        seconds=job["seconds"],
        rounds=job["rounds"],
    )


if __name__ == "__main__":
    main(sys.argv[1])
