"""Multiply images by numbers, and add numbers to them, as a BatchNorm does."""

from __future__ import annotations

import math
from typing import Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import real_number
from mxamp.params.parameter import ArrayParameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.fold_bias import LARGEST_SUM, along_channels
from mxamp.passes.fold_scale import LARGEST_FACTOR
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State
from mxamp.passes.unit_norm import unit_norm
from mxamp.targets.layout import READ_BLOCKS

_IMAGE = 4
_PLACES = 2
"""Axes of an image, and those of them that are its height and width."""

_OF_NUMBERS = frozenset({"_mul_scalar", "_div_scalar", "_plus_scalar", "_minus_scalar", "_rminus_scalar"})
_OF_ARRAYS = frozenset({"broadcast_mul", "broadcast_add", "broadcast_sub"})


class _Step(NamedTuple):
    """What one node does to each channel of an image: x -> scale x + shift."""

    position: int
    image: Entry
    scale: NDArray[np.float64]
    shift: NDArray[np.float64]


class RewriteScaleAndShift(PreparationPass):
    """Replace products with numbers and sums with numbers by one BatchNorm.

    Before::

        x -> _mul_scalar {scalar: 1.4} -> _plus_scalar {scalar: 0.2} -> Convolution

    After::

        x -> BatchNorm(1.4, 0.2, mean 0, variance 1) -> Convolution

    Likewise quotients, differences, and products and sums with arrays of parameters that lie along channels,
    as many as stand one behind the other.

    Refuses: where x is not certainly an image (four axes), of one place, or its channels are not known, or
    fill no blocks (of 16, without AVX-512 of 8); where no shape is known or assumed, or anything that reads
    the result reads plain tensors, unless a layer takes the BatchNorm; graph outputs; arrays that are no
    dense float32 parameters; factors beyond 2^20 or below 2^-20, and what adds more than 2^15, as masks do;
    other dtypes than float32; nodes that a rule of the user's picks; targets that do not name the pass; the
    bodies of control flow.

    Notes
    -----
    Why: MXNet goes over plain tensors once for each of them, and what is read and written is brought into
    another order before and behind. A BatchNorm is oneDNN's, and it is known how to fold it into a layer, or
    into a depthwise Convolution that runs in low precision (:mod:`mxamp.passes.fold_batch_norm`,
    :mod:`mxamp.passes.convolve_batch_norm`). 32 channels of 240 x 320 between a product and a depthwise layer
    take 7.2 ms more with both and 0.5 so, 256 of 14 x 14 142 us and 39 (AMD EPYC of family 23, float32, one
    thread). Networks that read text, of PaddleOCR's, have such a pair before and behind every activation.
    With AVX-512 14 such pairs before layers run 1.5 to 4.9 times as fast in float32 with them, 2.3 times in
    the geometric mean (an Intel Xeon, one thread).

    Up to rounding the same: the numbers are put together in float64 and rounded once, and the BatchNorm
    divides by exactly one (:mod:`mxamp.passes.unit_norm`). Linear in nodes.
    """

    step = "scale_and_shift"
    operators = frozenset(
        {
            *_OF_NUMBERS,
            *_OF_ARRAYS,
            "_MulScalar",
            "_DivScalar",
            "_PlusScalar",
            "_MinusScalar",
            "_RMinusScalar",
            "broadcast_plus",
            "broadcast_minus",
        }
    )
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with BatchNorms."""
        edit, changes = GraphEdit(graph, state.params), []
        for last, chain in sorted(_chains(graph, state).items()):
            source = chain[0].image
            scale, shift = np.ones(1), np.zeros(1)
            for step in chain:
                scale, shift = scale * step.scale, shift * step.scale + step.shift
            channels = state.image_origins.channels_of(source)
            if channels is None or not (_is_moderate(scale, shift) and _is_image(state, chain[0], channels)):
                continue
            name = graph.nodes[last].name
            gamma, beta = (
                edit.add_parameter(f"{name}_{what}", ArrayParameter(values), before=last)
                for what, numbers in (("gamma", scale), ("beta", shift))
                for values in [np.broadcast_to(numbers, channels).astype(np.float32)]
            )
            edit.replace(last, unit_norm(edit, last, source, gamma, beta, channels))
            for step in chain:
                if step.position != last:
                    edit.drop(step.position, source)
                reason = "a BatchNorm scales and shifts in the order in which images are kept"
                changes.append(self.changed(graph.nodes[step.position], reason, into=name))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _chains(graph: Graph, state: State) -> Mapping[int, Sequence[_Step]]:
    """Return the steps that stand one behind the other, by the last of them."""
    found: dict[int, Sequence[_Step]] = {}
    seen: set[int] = set()
    for last in reversed(range(len(graph.nodes))):
        if graph.nodes[last].op not in RewriteScaleAndShift.operators or last in seen or last in state.heads:
            continue
        chain = _chain(state, last)
        seen.update(step.position for step in chain)
        if chain and (_is_for_blocks(state, last) or _is_of_layer(state, chain[0])):
            found[last] = chain
    return found


def _chain(state: State, last: int) -> Sequence[_Step]:
    """Return the steps that end with a node, each read by the next alone."""
    found: list[_Step] = []
    position = last
    while not state.is_fixed(position):
        step = _step(state, position)
        if step is None:
            break
        found.append(step)
        before = step.image.node
        if step.image.output or state.only_reader(before) != position:
            break
        position = before
    return found[::-1]


def _step(state: State, position: int) -> _Step | None:
    """Return what a node does to each channel; None where it is more than that."""
    node = state.graph.nodes[position]
    op = FACTS.canonical(node.op)
    if state.certain_dtypes[position][0] is not DType.FLOAT32:
        return None
    if op in _OF_ARRAYS:
        return _step_of_array(state, position, node, op)
    number = real_number(node.attrs, "scalar")
    if op not in _OF_NUMBERS or number is None or not math.isfinite(number) or len(node.inputs) != 1:
        return None
    if op == "_div_scalar" and not number:
        return None
    factor = {"_mul_scalar": number, "_div_scalar": 1 / (number or 1), "_rminus_scalar": -1.0}.get(op, 1.0)
    added = {"_plus_scalar": number, "_minus_scalar": -number, "_rminus_scalar": number}.get(op, 0.0)
    return _Step(position, node.inputs[0], np.full(1, factor), np.full(1, added))


def _step_of_array(state: State, position: int, node: Node, op: str) -> _Step | None:
    """Return what an array of parameters does to each channel of an image."""
    for number, image in enumerate(node.inputs):
        channels = state.image_origins.channels_of(image)
        if channels is None or image.node not in state.images:
            continue
        values = along_channels(
            state.parameter(node.inputs[1 - number]), channels, axes=_IMAGE, places=_PLACES
        )
        if values is None:
            continue
        array, one, nothing = values.astype(np.float64), np.ones(1), np.zeros(1)
        if op == "broadcast_mul":
            return _Step(position, image, array, nothing)
        if op == "broadcast_add":
            return _Step(position, image, one, array)
        return _Step(position, image, one, -array) if number == 0 else _Step(position, image, -one, array)
    return None


def _is_for_blocks(state: State, position: int) -> bool:
    """Return whether all that reads a node reads blocks of channels as they are."""
    readers = [state.graph.nodes[use.node] for use in state.graph.uses[position].get(0, ())]
    return bool(readers) and all(FACTS.canonical(node.op) in READ_BLOCKS for node in readers)


def _is_of_layer(state: State, first: _Step) -> bool:
    """Return whether a layer writes what a chain alone reads: a BatchNorm is folded into that.

    Behind another one, too, which goes first.
    """
    reader, source = first.position, first.image.node
    while state.only_reader(source) == reader:
        node = state.graph.nodes[source]
        op = FACTS.canonical(node.op)
        if op != "BatchNorm":
            return op in state.target.fold_into
        reader, source = source, node.inputs[0].node
    return False


def _is_moderate(scale: NDArray[np.float64], shift: NDArray[np.float64]) -> bool:
    factors = np.abs(scale)
    are_factors = np.all((factors >= 1 / LARGEST_FACTOR) & (factors <= LARGEST_FACTOR))
    return bool(are_factors and np.all(np.abs(shift) <= LARGEST_SUM))


def _is_image(state: State, first: _Step, channels: int) -> bool:
    """Return whether a chain reads an image of whole blocks, and of more than one place or of a layer."""
    source, shape = first.image, state.usual_shape(first.image)
    if source.node not in state.images or source.output or channels % state.target.block:
        return False
    # A layer takes the norm; one over a single place MXNet may confuse with one over a matrix.
    return _is_of_layer(state, first) if shape is None else math.prod(shape[2:]) > 1
