"""Write what bounds the result of a layer from below and above as the one operator that backends fuse."""

from __future__ import annotations

import math
from typing import NamedTuple, Sequence

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, real_number
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass, own_attributes
from mxamp.passes.relu import is_relu
from mxamp.passes.state import Done, State

_FUSED_RANKS = (2, 3)
"""Axes of places of the convolutions that a clip is fused with."""


class _Bounds(NamedTuple):
    """The values that something leaves as they are; what is outside becomes the nearer end."""

    low: float
    high: float

    def then(self, other: _Bounds) -> _Bounds:
        """Return the bounds of both, one after the other."""
        return _Bounds(other.nearest(self.low), other.nearest(self.high))

    def nearest(self, value: float) -> float:
        """Return what becomes of a value."""
        return min(max(value, self.low), self.high)


_NONE = _Bounds(-math.inf, math.inf)


class RewriteBounds(PreparationPass):
    """Replace maxima and minima with numbers, one behind the other, by ``clip``.

    Before::

        Convolution -> relu -> _minimum_scalar {scalar: 6} -> _maximum_scalar {scalar: 0} -> y

    After::

        Convolution -> clip {a_min: 0, a_max: 6} -> y

    Likewise other clips among them, in any order, where the bound below is 0, and behind the BatchNorm of a
    Convolution.

    Refuses: what is bounded on one side alone, or from below by another number than 0, or is one number;
    where no Convolution over images or volumes is in front, since only with that a clip is fused, and by
    itself it is slower than what it replaces; where what is between has other readers or is a graph output;
    other dtypes than float32; a node that a rule of the user's picks; the bodies of control flow. The last
    node may be a graph output, for its name stays.

    Notes
    -----
    Why: models that were read from TensorFlow or ONNX write the activation of MobileNets so. MXNet's oneDNN
    backend makes a ``clip`` from 0 a part of the layer, and no maximum or minimum: each goes over plain
    tensors, into which what the layer wrote is brought first.

    Bit-exact for every number, but for the sign of a zero. A NaN becomes one of the bounds, as in all
    networks that are written with ``clip`` behind a layer. Linear in nodes.

    References
    ----------
    Howard et al., "MobileNets", 2017; Krizhevsky, "Convolutional deep belief networks on CIFAR-10", 2010.
    """

    step = "bounds"
    operators = FACTS.spellings("_maximum_scalar", "_minimum_scalar")

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Write every pair of bounds."""
        edit, changes = GraphEdit(graph, state.params), []
        done: set[int] = set()
        for last in reversed(range(len(graph.nodes))):
            chain = () if last in done else _chain(state, last)
            done.update(chain)
            if len(chain) < 2 or not _is_fused(state, chain[0]):
                continue
            bounds = _NONE
            for position in chain:
                bounds = bounds.then(_bounds(graph.nodes[position]) or _NONE)
            if bounds.low != 0 or not 0 < bounds.high < math.inf:
                continue
            node = graph.nodes[last]
            attrs = {**own_attributes(node), "a_min": "0.0", "a_max": repr(bounds.high)}
            edit.replace(last, Node("clip", node.name, attrs, graph.nodes[chain[0]].inputs))
            for position in chain:
                if position != last:
                    edit.drop(position, Entry(last))
                reason = "a layer takes a clip into itself, and no maxima and minima"
                changes.append(self.changed(graph.nodes[position], reason, into=node.name))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _chain(state: State, last: int) -> Sequence[int]:
    """Return the nodes that bound values one behind the other, up to one, each read by the next alone."""
    found: list[int] = []
    position = last
    while _bounds(state.graph.nodes[position]) is not None and not state.is_fixed(position):
        if state.certain_dtypes[position][0] is not DType.FLOAT32:
            break
        found.append(position)
        source = state.graph.nodes[position].inputs[0]
        if source.output or state.only_reader(source.node) != position:
            break
        position = source.node
    return found[::-1]


def _bounds(node: Node) -> _Bounds | None:
    """Return between what a node bounds its input; None where it does something else."""
    op = FACTS.canonical(node.op)
    scalar = real_number(node.attrs, "scalar")
    low, high = real_number(node.attrs, "a_min"), real_number(node.attrs, "a_max")
    if len(node.inputs) != 1:
        return None
    if is_relu(node):
        return _Bounds(0.0, math.inf)
    if op == "clip" and low is not None and high is not None and low <= high:
        return _Bounds(low, high)
    if op == "_maximum_scalar" and scalar is not None and not math.isnan(scalar):
        return _Bounds(scalar, math.inf)
    if op == "_minimum_scalar" and scalar is not None and not math.isnan(scalar):
        return _Bounds(-math.inf, scalar)
    return None


def _is_fused(state: State, first: int) -> bool:
    """Return whether a layer writes what a node alone reads, or the BatchNorm of one does."""
    reader, source = first, state.graph.nodes[first].inputs[0]
    for op in ("BatchNorm", "Convolution"):
        node = state.graph.nodes[source.node]
        if source.output or state.only_reader(source.node) != reader:
            return False
        if node.op == "Convolution":
            return len(integers(node.attrs.get("kernel", "")) or ()) in _FUSED_RANKS
        if node.op != op:
            return False
        reader, source = source.node, node.inputs[0]
    return False
