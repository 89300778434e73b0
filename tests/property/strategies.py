"""Random graphs of real operators, in which every tensor has the shape (2, 4, 4, 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import numpy as np
from hypothesis import strategies as st

from mxamp.graph import Entry, Graph, Node
from tests.building import Net

SHAPE = (2, 4, 4, 4)

ONE_INPUT: dict[str, tuple[str, dict[str, str]]] = {
    "relu": ("Activation", {"act_type": "relu"}),
    "sigmoid": ("Activation", {"act_type": "sigmoid"}),
    "softrelu": ("Activation", {"act_type": "softrelu"}),
    "leaky": ("LeakyReLU", {"act_type": "leaky", "slope": "0.1"}),
    "elu": ("LeakyReLU", {"act_type": "elu", "slope": "0.25"}),
    "tanh": ("tanh", {}),
    "softmax": ("softmax", {"axis": "1"}),
    "clip": ("clip", {"a_min": "-1", "a_max": "1"}),
    "scale": ("_mul_scalar", {"scalar": "0.5"}),
    "shift": ("_plus_scalar", {"scalar": "0.25"}),
    "tiny": ("_plus_scalar", {"scalar": "1e-12"}),
    "mask": ("_minimum_scalar", {"scalar": "1e18"}),
    "max pool": ("Pooling", {"kernel": "(3, 3)", "pad": "(1, 1)", "stride": "(1, 1)", "pool_type": "max"}),
    "mean pool": ("Pooling", {"kernel": "(3, 3)", "pad": "(1, 1)", "stride": "(1, 1)", "pool_type": "avg"}),
    "reshape": ("Reshape", {"shape": "(2, 4, 4, 4)"}),
    "transpose": ("transpose", {"axes": "(0, 1, 3, 2)"}),
}
"""Continuous functions: FP32 and BF16 results can be compared."""

JUMPS: dict[str, tuple[str, dict[str, str]]] = {
    "rank": ("argsort", {"axis": "1"}),
    "best": ("topk", {"axis": "1", "k": "1", "ret_typ": "mask"}),
    "compare": ("_greater_scalar", {"scalar": "0"}),
    "floor": ("floor", {}),
    # No jump, but MXNet 1.9.1 cannot bind a copy of a copy.
    "copy": ("_copy", {}),
}
"""Functions with jumps: converted and checked, but not compared."""

TWO_INPUTS = ("elemwise_add", "elemwise_mul", "elemwise_sub", "broadcast_mul", "broadcast_maximum")


@dataclass(frozen=True, repr=False)
class Sample:
    """A graph with its parameters."""

    graph: Graph
    params: dict[str, np.ndarray[Any, Any]]

    def __repr__(self) -> str:
        from mxamp.graph.printer import print_graph

        return "\n" + print_graph(self.graph, attrs=True)


class _Writer:
    """Adds nodes, each once: a node that is there already is used again, as after common subexpressions."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.net = Net()
        self.known: dict[tuple[Any, ...], Entry] = {}
        self.values = [self.net.var("data")]
        self.weights: dict[tuple[int, ...], list[Entry]] = {}

    def add(self, op: str, *inputs: Entry, outputs: int = 1, **attrs: str) -> Entry:
        key = (op, inputs, tuple(sorted(attrs.items())))
        if key not in self.known:
            self.known[key] = self.net.op(op, *inputs, outputs=outputs, **attrs)
        return self.known[key]

    def pick(self) -> Entry:
        # Recent values, so that graphs are deep, and now and then an old one, so that branches join.
        recent = self.values[-3:]
        return self.draw(st.sampled_from(recent if self.draw(st.integers(0, 3)) else self.values))

    def weight(self, *shape: int) -> Entry:
        known = self.weights.setdefault(shape, [])
        if not known or self.draw(st.integers(0, 4)):
            known.append(self.net.param(f"weight{len(self.net.nodes)}", *shape))
        return self.draw(st.sampled_from(known))

    # ------------------------------------------------------------------ what can be added

    def one(self, table: dict[str, tuple[str, dict[str, str]]]) -> Entry:
        op, attrs = table[self.draw(st.sampled_from(sorted(table)))]
        return self.add(op, self.pick(), **attrs)

    def two(self) -> Entry:
        return self.add(self.draw(st.sampled_from(TWO_INPUTS)), self.pick(), self.pick())

    def conv(self, data: Entry | None = None, channels: int = 4) -> Entry:
        size = self.draw(st.sampled_from([1, 3]))
        attrs = {"kernel": f"({size}, {size})", "pad": f"({size // 2}, {size // 2})", "num_filter": "4"}
        weight = self.weight(4, channels, size, size)
        return self.add("Convolution", data or self.pick(), weight, no_bias="True", **attrs)

    def dense(self) -> Entry:
        attrs = {"num_hidden": "4", "flatten": "False", "no_bias": "True"}
        return self.add("FullyConnected", self.pick(), self.weight(4, 4), **attrs)

    def norm(self) -> Entry:
        data, name = self.pick(), f"bn{len(self.net.nodes)}"
        return self.net.bn(data, name)

    def join(self) -> Entry:
        both = self.add("Concat", self.pick(), self.pick(), dim="1", num_args="2")
        return self.conv(both, 8)

    def swap(self) -> Entry:
        halves = self.add("SliceChannel", self.pick(), outputs=2, num_outputs="2", axis="1")
        return self.add("Concat", Entry(halves.node, 1), halves, dim="1", num_args="2")

    def exp(self) -> Entry:
        return self.add("exp", self.add("tanh", self.pick()))

    def read_weight(self) -> Entry:
        """Read a layer's weight in FP32, so that its readers disagree."""
        small = self.weight(4, 4)
        return self.add("broadcast_add", self.pick(), self.add("exp", small))

    def cast(self) -> Entry:
        """Round as a user might have: to bfloat16 and back."""
        low = self.add("amp_cast", self.pick(), dtype="bfloat16")
        return self.add("amp_cast", low, dtype="float32")

    def mystery(self) -> Entry:
        return self.add("_mystery", self.pick(), outputs=2)


@st.composite
def samples(
    draw: st.DrawFn,
    *,
    continuous: bool = False,
    unknown: bool = False,
    casts: bool = True,
    most_nodes: int = 16,
) -> Sample:
    """Draw a graph with one input, a few layers that may share weights, and up to three outputs.

    Parameters
    ----------
    continuous
        Whether to leave out what jumps, so that rounding moves the result a little only.
    unknown
        Whether there may be operators without facts.
    casts
        Whether there may be casts of the user's own.
    most_nodes
        The most steps drawn.
    """
    writer = _Writer(draw)
    steps: list[Callable[[], Entry]] = [
        *(lambda: writer.one(ONE_INPUT), writer.two, writer.conv, writer.dense, writer.norm, writer.join),
        *(writer.swap, writer.exp, writer.read_weight),
    ]
    if not continuous:
        steps.append(lambda: writer.one(JUMPS))
    if unknown:
        steps.append(writer.mystery)
    if casts:
        steps.append(writer.cast)
    for _ in range(draw(st.integers(3, most_nodes))):
        writer.values.append(draw(st.sampled_from(steps))())
    heads = [writer.values[-1], *draw(st.lists(st.sampled_from(writer.values), max_size=2))]
    return Sample(reachable(writer.net.graph(*heads)), writer.net.params)


def reachable(graph: Graph) -> Graph:
    """Drop what no output needs: MXNet never stores it."""
    needed = set()
    pending = [head.node for head in graph.heads]
    while pending:
        position = pending.pop()
        if position not in needed:
            needed.add(position)
            pending.extend(entry.node for entry in graph.nodes[position].inputs)
    kept = sorted(needed)
    new = {old: position for position, old in enumerate(kept)}

    def moved(entry: Entry) -> Entry:
        return Entry(new[entry.node], entry.output)

    nodes: list[Node] = [
        graph.nodes[old]._replace(inputs=tuple(map(moved, graph.nodes[old].inputs))) for old in kept
    ]
    return Graph(tuple(nodes), tuple(map(moved, graph.heads)), graph.attrs)


def kept_params(sample: Sample) -> dict[str, Any]:
    return {name: sample.params[name] for name in sample.graph.variables if name in sample.params}
