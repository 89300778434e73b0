"""Write a leaky relu that is spelled out as the operator that backends know."""

from __future__ import annotations

from typing import AbstractSet, NamedTuple, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import real_number
from mxamp.params.parameter import ArrayParameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.fold_bias import along_channels
from mxamp.passes.prelu import RewritePReLU
from mxamp.passes.preparation import PreparationPass, own_attributes
from mxamp.passes.relu import is_relu
from mxamp.passes.state import Done, State

_ADDS = ("elemwise_add", "broadcast_add")
_SUBTRACTS = ("elemwise_sub", "broadcast_sub")
_MAXIMA = ("_maximum", "broadcast_maximum")
_OF_TWO = frozenset({*_ADDS, *_SUBTRACTS, *_MAXIMA})
_OF_ONE = frozenset({"_div_scalar", "_minimum_scalar", "_mul_scalar", "abs", "negative", "relu"})
_CHOICE = "where"
_PICKS_FIRST_ABOVE = {
    "_greater_scalar": True,
    "_greater_equal_scalar": True,
    "_lesser_scalar": False,
    "_lesser_equal_scalar": False,
}

_DEEPEST = 6
"""Nodes between the result and what is activated, along one way."""

_IMAGE, _PLACES = 4, 2
"""Axes of an image, and those of them that are its height and width."""

_Factor = Union[float, NDArray[np.float64]]


class _Line(NamedTuple):
    """How many times x something is where x is negative, and where positive; or that of each channel."""

    below: _Factor
    above: _Factor


_X = _Line(1.0, 1.0)


class _Found(NamedTuple):
    """A leaky relu that is spelled out.

    Attributes
    ----------
    x
        What it is of.
    slope
        How many times x it is where x is negative: one number, or one a channel.
    parts
        The nodes that compute nothing else.
    """

    x: Entry
    slope: NDArray[np.float32]
    parts: Sequence[int]


class RewriteLeakyReLU(PreparationPass):
    """Replace what adds up to a leaky relu by ``LeakyReLU``.

    Before, one of::

        relu(x) + g * relu(-x)                 maximum(x, 0.1 * x)
        relu(x) + g * (x - abs(x)) * 0.5       where(x > 0, x, 0.1 * x)
        relu(x) + g * minimum(x, 0)

    After, with the slope that the terms have, for one number and for one a channel::

        x -> LeakyReLU {act_type: leaky, slope: 0.1}         x -> LeakyReLU {act_type: prelu}(slope)

    Any terms that are a multiple of x where x is positive, and another where it is negative, and x itself
    where it is positive: sums, differences, maxima, and choices by the sign of x, of relus, magnitudes and
    products.

    Refuses: terms that something else reads, or that are graph outputs, for they have values of their own;
    slopes that are not finite, or 1; one a channel where x is not certainly an image of as many channels, or
    where these fill no blocks and the target has a form of its own for PReLU, which takes no others
    (:mod:`mxamp.passes.prelu`); inputs that may be empty, for which oneDNN's kernels raise
    (:mod:`mxamp.passes.never_empty`); other dtypes than float32; a node that a rule of the user's picks; the
    bodies of control flow. The last node may be a graph output, for its name stays.

    Notes
    -----
    Why: TensorFlow has no operator for PReLU, and what comes from there has four to six in its place, over
    plain tensors, whose sum no layer takes. A leaky relu is a part of the layer in front of it, and PReLU has
    a form of four kernels of the backend.

    Exact for x of up to half the largest number, and results of normal size: one of the terms of a sum is a
    zero, and the other is x, or a product that is rounded as that of the operator is. The sign of a zero may
    differ. An infinity, which less its own magnitude is NaN, stays one; a NaN stays one or becomes 0, as in
    all networks that are written with ``LeakyReLU``. Linear in nodes.

    References
    ----------
    He et al., "Delving deep into rectifiers", 2015, equation 1.
    """

    step = "leaky_relu"
    operators = FACTS.spellings(*_OF_TWO, _CHOICE)

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Write every leaky relu."""
        edit, changes = GraphEdit(graph, state.params), []
        for position, node in enumerate(graph.nodes):
            found = _found(state, position) if node.op in self.operators else None
            if found is None:
                continue
            attrs, inputs = own_attributes(node), [found.x]
            if found.slope.size == 1:
                attrs.update(act_type="leaky", slope=repr(float(found.slope.reshape(()))))
            else:
                attrs["act_type"] = "prelu"
                slope = ArrayParameter(found.slope)
                inputs.append(edit.add_parameter(f"{node.name}_slope", slope, before=position))
            edit.replace(position, node._replace(op="LeakyReLU", attrs=attrs, inputs=tuple(inputs)))
            reason = "a leaky relu that is spelled out, for which backends have a kernel"
            changes.append(self.changed(node, reason))
            for part in found.parts:
                edit.drop(part, Entry(position))
                changes.append(self.changed(graph.nodes[part], "a part of a leaky relu", into=node.name))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _found(state: State, position: int) -> _Found | None:
    """Return the leaky relu of which a node is the last; None where it is of none, or one that stays."""
    x = None if state.is_fixed(position) else _argument(state, position)
    if x is None or x.node not in state.never_empty or x.node in state.left_open:
        return None
    if state.graph.has_numpy_shapes and not state.axes(x):  # LeakyReLU takes no number by itself
        return None
    if state.certain_dtypes[x.node][x.output] is not DType.FLOAT32:
        return None
    nodes: set[int] = set()
    line = _line(state, Entry(position), x, nodes, _DEEPEST)
    if line is None or not np.all(np.equal(line.above, 1.0)):
        return None
    slope = np.asarray(line.below, np.float32)
    is_kept = (
        slope.size > 1 and RewritePReLU.step in state.target.rewrites and slope.size % state.target.block
    )
    if is_kept or not np.isfinite(slope).all() or np.all(slope == 1.0):
        return None
    parts = sorted(nodes - {position})
    return _Found(x, slope, parts) if all(_is_part(state, part, nodes) for part in parts) else None


def _is_part(state: State, position: int, nodes: AbstractSet[int]) -> bool:
    """Return whether nothing but some nodes reads one, and nothing keeps it as it is."""
    uses = [use.node for uses in state.graph.uses[position].values() for use in uses]
    return not state.is_fixed(position) and position not in state.heads and set(uses) <= nodes


def _argument(state: State, position: int) -> Entry | None:
    """Return the nearest value that both terms of a node are made of; None where there is none."""
    node = state.graph.nodes[position]
    if FACTS.canonical(node.op) == _CHOICE:
        condition = state.graph.nodes[node.inputs[0].node]
        return condition.inputs[0] if FACTS.canonical(condition.op) in _PICKS_FIRST_ABOVE else None
    first, second = (_way(state, entry) for entry in node.inputs)
    return next((entry for entry in first if entry in second), None)


def _way(state: State, entry: Entry) -> Sequence[Entry]:
    """Return a value, what it is a multiple of, and so on."""
    found = [entry]
    while len(found) <= _DEEPEST:
        node = state.graph.nodes[entry.node]
        op = _operator(node)
        if op in _OF_ONE:
            entry = node.inputs[0]
        elif op == "broadcast_mul":
            others = [each for each in node.inputs if state.parameter(each) is None]
            if len(others) != 1:
                break
            entry = others[0]
        elif op in _OF_TWO and state.parameter(node.inputs[1]) is None:
            # x - abs(x): the one is made of the other.
            first, second = node.inputs
            inner = state.graph.nodes[second.node]
            entry = first if _operator(inner) in _OF_ONE and inner.inputs[0] == first else second
        else:
            break
        found.append(entry)
    return found


def _line(state: State, entry: Entry, x: Entry, parts: set[int], depth: int) -> _Line | None:
    """Return what a value is of x, and note the nodes that make it; None where it is not of x alone."""
    if entry == x:
        return _X
    if entry.output or not depth:
        return None
    parts.add(entry.node)
    node = state.graph.nodes[entry.node]
    op = _operator(node)

    def of(source: Entry) -> _Line | None:
        return _line(state, source, x, parts, depth - 1)

    if op in _OF_ONE:
        line = of(node.inputs[0])
        return None if line is None else _of_one(op, line, real_number(node.attrs, "scalar"))
    if op == "broadcast_mul":
        return _of_product(state, node, x, parts, depth)
    if op == _CHOICE:
        condition = state.graph.nodes[node.inputs[0].node]
        is_of_sign = condition.inputs[:1] == (x,) and real_number(condition.attrs, "scalar") == 0.0
        picks = _PICKS_FIRST_ABOVE.get(FACTS.canonical(condition.op)) if is_of_sign else None
        first, second = of(node.inputs[1]), of(node.inputs[2])
        if first is None or second is None or picks is None:
            return None
        parts.add(node.inputs[0].node)
        return _Line(second.below, first.above) if picks else _Line(first.below, second.above)
    if op in _OF_TWO:
        first, second = of(node.inputs[0]), of(node.inputs[1])
        return None if first is None or second is None else _of_two(op, first, second)
    return None


def _operator(node: Node) -> str:
    """Return the canonical name, and ``relu`` for its other spelling."""
    return "relu" if is_relu(node) else FACTS.canonical(node.op)


def _of_one(op: str, line: _Line, scalar: float | None) -> _Line | None:
    below, above = line
    if op == "relu":
        return _Line(np.minimum(below, 0.0), np.maximum(above, 0.0))
    if op == "abs":
        return _Line(-np.abs(below), np.abs(above))
    if op == "negative":
        return _Line(-1.0 * below, -1.0 * above)
    if scalar is None:
        return None
    if op == "_minimum_scalar":
        return _Line(np.maximum(below, 0.0), np.minimum(above, 0.0)) if scalar == 0 else None
    if op == "_div_scalar":
        return _Line(below / scalar, above / scalar) if scalar else None
    return _Line(below * scalar, above * scalar)


def _of_two(op: str, first: _Line, second: _Line) -> _Line:
    if op in _MAXIMA:
        return _Line(np.minimum(first.below, second.below), np.maximum(first.above, second.above))
    sign = -1.0 if op in _SUBTRACTS else 1.0
    return _Line(first.below + sign * second.below, first.above + sign * second.above)


def _of_product(state: State, node: Node, x: Entry, parts: set[int], depth: int) -> _Line | None:
    """Return what a product with an array of parameters that lie along an image's channels is of x."""
    channels = state.image_origins.channels_of(x)
    if channels is None or x.node not in state.images:
        return None
    for number in (0, 1):
        factors = along_channels(state.parameter(node.inputs[number]), channels, axes=_IMAGE, places=_PLACES)
        if factors is None:
            continue
        line = _line(state, node.inputs[1 - number], x, parts, depth - 1)
        factors = factors.astype(np.float64)
        return None if line is None else _Line(line.below * factors, line.above * factors)
    return None
