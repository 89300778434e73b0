"""Time random kernels, some dozens in one graph; a program, for it needs an engine of its own and may crash.

Each kernel gets its data as a network hands them on: from a 1x1 convolution, in oneDNN's blocks of channels
or brought into plain order, freshly written. Between a kernel's runs all others run, so that its weights
have to come from where a network's do. A node behind it reads what it writes, which otherwise were an
output of the graph, with memory of its own that no cache holds. What is timed is a node of the graph as the
backend fuses it (:mod:`mxamp.runtime.node_profile`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.decisions.workload import chain_work, model_work
from mxamp.dtypes import DType
from mxamp.errors import MxampError
from mxamp.graph.graph import Graph
from mxamp.probe.kernels import Kernel, draw_kernels, seat_guests
from mxamp.probe.kernels.kernel import BLOCKED, Operand
from mxamp.runtime.executor import bind_environment
from mxamp.runtime.mxnet import import_mxnet
from mxamp.runtime.node_profile import forward_of, node_profiler, typical
from mxamp.runtime.node_times import backend_nodes
from mxamp.runtime.parameter import ndarray_from_numpy
from mxamp.runtime.shapes import infer_shapes
from mxamp.runtime.symbol import compose, graph_from_symbol
from mxamp.targets.image_layout import block_here

_FEED_CHANNELS = 16
_WARMUP = 2
"""Forward passes in which kernels are chosen and prepared."""

_PASSES = (12, 100)
"""Forward passes of a graph that are timed: at least, and at most ..."""

_TIMED_SECONDS = 0.08
"""... for so long."""

_SETTLING_SECONDS = 0.04
"""A graph runs for so long before. What branches and prefetchers have learnt of it takes passes to come back
once another has run: timed twice, in 12 passes three at a time, 72 to 75 of 100 kernels agree within a
quarter, in 12 that follow each other 78 to 83, in 36 84 to 91 (AMD EPYC)."""

_IMAGE = 4
_CAST = "amp_cast"


class _Graph:
    """The symbol of some kernels in one dtype, with values for its variables."""

    def __init__(
        self, chosen: Sequence[Kernel], dtype: DType, other: DType, random: np.random.Generator
    ) -> None:
        self._mx, self._dtype, self._other, self._random = import_mxnet(), dtype, other, random
        self.values: dict[str, tuple[NDArray[Any], DType]] = {}
        self.members: list[tuple[str, ...]] = []
        heads = []
        for number, one in enumerate(chosen):
            head, names = self._kernel(one, f"k{number}")
            heads.append(head)
            self.members.append(names)
        self.symbol = self._mx.sym.Group(
            [self._read(head, f"r{number}") for number, head in enumerate(heads)]
        )

    def _variable(self, name: str, shape: Sequence[int], dtype: DType, limit: int = 0) -> Any:
        if limit:
            array = self._random.integers(0, limit, shape).astype(np.float32)
        else:
            array = self._random.uniform(0.1, 1.0, shape).astype(np.float32)
        self.values[name] = (array, dtype)
        return self._mx.sym.Variable(name)

    def _data(self, operand: Operand, name: str, layout: str) -> Any:
        """Return data as a layer has just written them."""
        shape, dtype = operand.shape, self._dtype
        sym = self._mx.sym
        if len(shape) == 4:
            n, c, *sides = shape
            source = self._variable(f"{name}_source", (n, _FEED_CHANNELS, *sides), dtype)
            weight = self._variable(f"{name}_feed", (c, _FEED_CHANNELS, 1, 1), dtype)
            fed = sym.Convolution(source, weight, kernel=(1, 1), num_filter=c, no_bias=True)
            # A Pooling keeps the layout, and nothing is fused with it.
            fed = sym.Pooling(fed, kernel=(1, 1), pool_type="max")
            return fed if layout == BLOCKED else sym.Reshape(fed, shape=(0, 0, 0, 0))
        rows = int(np.prod(shape[:-1]))
        source = self._variable(f"{name}_source", (rows, _FEED_CHANNELS), dtype)
        weight = self._variable(f"{name}_feed", (shape[-1], _FEED_CHANNELS), dtype)
        fed = sym.FullyConnected(source, weight, num_hidden=shape[-1], no_bias=True)
        return sym.Reshape(fed, shape=tuple(shape))

    def _operand(self, operand: Operand, name: str, layout: str) -> Any:
        if operand.role == "data":
            return self._data(operand, name, layout)
        if operand.role == "index":
            return self._variable(name, operand.shape, DType.FLOAT32, operand.limit)
        if operand.role == "regions":
            corners = np.sort(self._random.uniform(0, operand.limit - 1, (operand.shape[0], 2, 2)), axis=1)
            boxes = np.pad(corners.reshape(-1, 4), ((0, 0), (1, 0)))  # all of the first image
            self.values[name] = boxes.astype(np.float32), DType.FLOAT32
            return self._mx.sym.Variable(name)
        dtype = self._dtype if operand.role == "weight" else DType.FLOAT32
        return self._variable(name, operand.shape, dtype)

    def _kernel(self, one: Kernel, name: str) -> tuple[Any, tuple[str, ...]]:
        inputs = [
            self._operand(operand, f"{name}_in{number}", one.layout)
            for number, operand in enumerate(one.operands)
        ]
        attrs = dict(one.attrs)
        if one.op == _CAST:
            attrs["dtype"] = self._other.label
        value = compose(self._mx, one.op, name, inputs, attrs)
        names = [name]
        for part in one.tail.split():
            names.append(f"{name}_{part}")
            if part == "add":
                shape = self._output_shape(value)
                value = compose(
                    self._mx,
                    "elemwise_add",
                    names[-1],
                    [value[0], self._data(Operand(shape), names[-1], BLOCKED)],
                    {},
                )
            else:
                value = compose(self._mx, "Activation", names[-1], [value[0]], {"act_type": "relu"})
        return value, tuple(names)

    def _read(self, head: Any, name: str) -> Any:
        """Return what reads the first output of a kernel, and writes little.

        Further ones, as a BatchNorm's statistics, are none of a network's.
        """
        if len(self._output_shape(head[0])) == _IMAGE:  # in whichever layout it comes
            return self._mx.sym.Pooling(head[0], kernel=(1, 1), global_pool=True, pool_type="max", name=name)
        return self._mx.sym.slice_axis(head[0], axis=-1, begin=0, end=1, name=name)

    def _output_shape(self, value: Any) -> tuple[int, ...]:
        shapes = {name: array.shape for name, (array, _) in self.values.items()}
        known = {name: shapes[name] for name in value.list_arguments() if name in shapes}
        return tuple(value.infer_shape(**known)[1][0])

    def bind(self) -> Any:
        """Return an executor of it, fused as deployed."""
        device = self._mx.cpu()
        arrays = {
            name: ndarray_from_numpy(array.astype(dtype.numpy), device)
            for name, (array, dtype) in self.values.items()
        }
        return self.symbol.bind(
            device,
            args={name: arrays[name] for name in self.symbol.list_arguments()},
            aux_states={name: arrays[name] for name in self.symbol.list_auxiliary_states()},
            grad_req="null",
        )


def time_kernels(
    chosen: Sequence[Kernel], low: DType, runs_low: Sequence[int], *, seed: int
) -> list[dict[str, Any]]:
    """Time kernels in FP32 and, those whose operators run in it, in the low dtype.

    Parameters
    ----------
    chosen
        The kernels, in the order in which they run.
    low
        The low dtype.
    runs_low
        The numbers of those that run in it.
    seed
        Where values come from.

    Returns
    -------
    list of dict
        For each kernel ``family``, ``op``, ``work`` and ``us``: microseconds in ``float32`` and, where it
        runs, in ``low``; for a cast those of casting down and of casting up.
    """
    results: list[dict[str, Any]] = [{"family": one.family, "op": one.op, "us": {}} for one in chosen]
    for label, dtype, other, numbers in (
        ("float32", DType.FLOAT32, low, range(len(chosen))),
        ("low", low, DType.FLOAT32, sorted(runs_low)),
    ):
        if not numbers:
            continue
        graph = _Graph([chosen[number] for number in numbers], dtype, other, np.random.default_rng(seed))
        if dtype is DType.FLOAT32:
            for result, work in zip(results, _works(graph)):
                result["work"] = work
        for number, microseconds in zip(numbers, _time_members(graph)):
            results[number]["us"][label] = round(microseconds, 2)
    return results


def _time_members(graph: _Graph) -> list[float]:
    """Return what each kernel of a graph takes, in microseconds."""
    nodes = backend_nodes(graph.symbol)
    with bind_environment(fusion=True, bundles=False):
        forward = forward_of(graph.bind())
    for _ in range(_WARMUP):
        forward()
    least, most = _PASSES
    start, passes = time.perf_counter(), 0
    while not passes or (time.perf_counter() - start < _SETTLING_SECONDS and passes < most // 2):
        forward()
        passes += 1
    each = (time.perf_counter() - start) / passes
    passes = int(min(most, max(least, _TIMED_SECONDS / each)))
    taken = typical(node_profiler().time(forward, [node.op for node in nodes], passes))
    return [
        sum(float(us) for node, us in zip(nodes, taken) if set(node.members) & set(members))
        for members in graph.members
    ]


def _works(built: _Graph) -> list[Any]:
    graph: Graph = graph_from_symbol(built.symbol)
    shapes = infer_shapes(graph, {name: array.shape for name, (array, _) in built.values.items()}, {})
    positions = {node.name: position for position, node in enumerate(graph.nodes)}
    each = model_work(graph, shapes, block=block_here())
    works = []
    for members in built.members:
        chain = [positions[name] for name in members]
        work = chain_work(graph, chain, shapes, [each[position] for position in chain])
        works.append(None if work is None else work.to_document())
    return works


def main() -> int:
    """Time the graphs that the lines on standard input ask for; answer with a line each."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    mx = import_mxnet()
    for line in sys.stdin:
        job = json.loads(line)
        seed, random = job["seed"], np.random.default_rng(job["seed"])
        chosen = draw_kernels(job["count"], random, job["weights"])
        chosen, _ = seat_guests(chosen, job["guests"], random)
        low, failures = DType.parse(job["dtype"]), (MxampError, mx.base.MXNetError, ValueError, TypeError)
        timed: list[dict[str, Any]] = []
        try:
            timed = time_kernels(chosen, low, job["low"], seed=seed)
        except failures:
            # One of them does not run; the others are still worth knowing.
            for number, one in enumerate(chosen):
                try:
                    timed += time_kernels([one], low, [0] if number in job["low"] else [], seed=seed)
                except failures as error:
                    note = str(error)[-300:]
                    timed.append({"family": one.family, "op": one.op, "work": None, "us": {}, "note": note})
        answers.write(json.dumps({"timed": timed}) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
