"""Let a convolution pad for itself where one end of an axis gets more than the other."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops.attributes import CHANNELS_FIRST
from mxamp.params.padded import PaddedParameter
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.equal_shapes import for_each_place
from mxamp.passes.fold_padding import edges_of, pads_fast
from mxamp.passes.images import depthwise
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State

_BEFORE_PLACES, _PLACES = 2, 2
"""Axes of a batch and of channels, and those of an image's places."""

_FEW_CHANNELS = 4
"""Of so many a window may be larger by a row and a column at little cost: the image itself is."""


class _Uneven(NamedTuple):
    """What a Pad puts around an image, along both axes of its places.

    Attributes
    ----------
    even
        What it puts at both ends.
    more
        How much more it puts at one end than at the other.
    zeros_before
        How many zeros a window begins with that pads as much at both ends, where it may not move on.
    """

    even: tuple[int, ...]
    more: tuple[int, ...]
    zeros_before: tuple[int, ...]


class UnevenPadding(PreparationPass):
    """Replace a Pad of zeros, more at one end than at the other, by padding of the Convolution that reads it.

    Before::

        x -> Pad {pad_width: (0, 0, 0, 0, 0, 1, 0, 1)} -> Convolution(w) {kernel: (3, 3), stride: (2, 2)} -> y

    After, for depthwise Convolutions and for images of up to four channels, w having a row and a column of
    zeros first, since padding at both ends makes windows begin earlier::

        x -> Convolution(w') {kernel: (4, 4), pad: (1, 1), stride: (2, 2)} -> y

    and for others whose channels fill whole blocks, ``d`` having a one last and zeros elsewhere::

        x -> Convolution(d) {kernel: (2, 2), pad: (1, 1), depthwise} -> Convolution(w) {stride: (2, 2)} -> y

    What is padded at both ends alike is padding of the layer's own either way.

    Refuses: other constants than zero, and other modes; padding of the batch or of channels; even padding,
    which :mod:`mxamp.passes.fold_padding` folds; where the Pad is a graph output, or anything else reads it;
    channels last; dilations that what is added does not fit into; more padding than the target's layers are
    fast with (:mod:`mxamp.passes.explicit_padding`); groups that are not depthwise; other channels; weights
    that are no dense float32 parameter; other dtypes than float32; a node that a rule of the user's picks;
    targets that do not name the pass; the bodies of control flow.

    Notes
    -----
    Why: TensorFlow pads so for every stride of two ("SAME"), and all models have it that come from there,
    EfficientNets of other frameworks too. Pad goes over plain tensors, into which what a layer wrote is
    brought, and out of which it is brought again; and it runs in FP32 alone, so that in low precision two
    casts come with it. A depthwise layer of 64 channels of 112 x 112 takes 2.49 ms with a Pad, and 0.69 so,
    one of 5x5 over 144 channels of 56 x 56 1.38 and 0.42, 32 channels of 112 x 112 to 64 2.40 and 1.62, 3 of
    224 x 224 to 32 0.51 and 0.43, each with the layer in front if there is one (AMD EPYC of family 23,
    float32, one thread). With AVX-512 13 such layers run 1.15 to 7.5 times as fast in float32, 2.3 times in
    the geometric mean (an Intel Xeon, one thread).

    The same products are summed, and products with zeros besides: an infinity, or a NaN, becomes one in a
    window that begins a row earlier, too. Linear in nodes and parameters.
    """

    step = "uneven_padding"
    operators = frozenset({"Pad", "pad"})
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph in which layers pad for themselves."""
        edit, changes = GraphEdit(graph, state.params), []
        for position, node in enumerate(graph.nodes):
            edges = None if state.is_fixed(position) else _uneven(node)
            reader = None if edges is None else state.only_reader(position)
            weight = None if reader is None else _weight(state, reader, position)
            if edges is None or reader is None or weight is None:
                continue
            layer = _padded(state, edit, reader, weight, edges)
            if layer is None or not pads_fast(state, layer):
                continue
            edit.replace(reader, layer)
            edit.drop(position, node.inputs[0])
            into = graph.nodes[reader].name
            changes.append(self.changed(node, f"its zeros are those of a window of {into!r}", into=into))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _uneven(node: Node) -> _Uneven | None:
    """Return what a Pad of zeros puts around an image, unevenly; None where a node is none such."""
    edges = edges_of(node, "constant") if node.op in UnevenPadding.operators else None
    if edges is None or len(edges.before) != _PLACES or edges.before == edges.after:
        return None
    both = list(zip(*edges))
    return _Uneven(
        even=tuple([min(ends) for ends in both]),
        more=tuple([max(ends) - min(ends) for ends in both]),
        zeros_before=tuple([max(0, after - before) for before, after in both]),
    )


def _weight(state: State, position: int, pad: int) -> Parameter | None:
    """Return the weight of a layer of float32 images whose data a Pad is; None where a node is none such."""
    node = state.graph.nodes[position]
    if node.op != "Convolution" or node.inputs[0] != Entry(pad) or state.is_fixed(position):
        return None
    weight = state.parameter(node.inputs[1])
    is_layer = (
        weight is not None
        and weight.dtype is DType.FLOAT32
        and not weight.is_sparse
        and len(weight.shape) == _BEFORE_PLACES + _PLACES
        and node.attrs.get("layout", "None") in CHANNELS_FIRST
        and state.certain_dtypes[position][0] is DType.FLOAT32
    )
    return weight if is_layer else None


def _padded(state: State, edit: GraphEdit, position: int, weight: Parameter, edges: _Uneven) -> Node | None:
    """Return a layer that pads for itself, or reads what is padded in blocks; None where it does not pay."""
    node = state.graph.nodes[position]
    pad = for_each_place(node, "pad", _PLACES, 0)
    dilate = for_each_place(node, "dilate", _PLACES, 1)
    if pad is None or dilate is None:
        return None
    groups, channels = node.attrs.get("num_group", "1"), weight.shape[1]
    if groups == node.attrs.get("num_filter") or (groups == "1" and channels <= _FEW_CHANNELS):
        if any(more % step for more, step in zip(edges.more, dilate)):
            return None
        values = _with_zeros(weight, edges, dilate)
        name = state.graph.nodes[node.inputs[1].node].name
        grown = edit.add_parameter(f"{name}_uneven", values, (name,), before=position)
        total = [sum(parts) for parts in zip(pad, edges.even, edges.more)]
        attrs = {**node.attrs, "kernel": str(values.shape[_BEFORE_PLACES:]), "pad": str(tuple(total))}
        return node._replace(attrs=attrs, inputs=(node.inputs[0], grown, *node.inputs[2:]))
    if groups == "1" and channels % state.target.block == 0:
        source = state.graph.nodes[node.inputs[0].node].inputs[0]
        key = (source, edges.more, edges.zeros_before)
        moved = edit.once(key, partial(_moved, state, edit, position, source, channels, edges))
        attrs = {**node.attrs, "pad": str(tuple(map(sum, zip(pad, edges.even))))}
        return node._replace(attrs=attrs, inputs=(moved, *node.inputs[1:]))
    return None


def _with_zeros(weight: Parameter, edges: _Uneven, dilate: Sequence[int]) -> PaddedParameter:
    """Return the weights of a window with as many zeros on one side as a Pad has more at one end."""
    axes = range(_BEFORE_PLACES, _BEFORE_PLACES + _PLACES)
    added = {axis: more // step for axis, more, step in zip(axes, edges.more, dilate)}
    first = {axis: zeros // step for axis, zeros, step in zip(axes, edges.zeros_before, dilate)}
    return PaddedParameter(weight, added, first=first)


def _moved(
    state: State, edit: GraphEdit, position: int, source: Entry, channels: int, edges: _Uneven
) -> Entry:
    """Put in a depthwise layer that writes its image with more rows or columns of zeros at one end."""
    name = state.graph.nodes[position].name
    window = tuple([1 + more for more in edges.more])
    values = np.zeros((channels, 1, *window), np.float32)
    values[(slice(None), 0, *edges.zeros_before)] = 1.0
    ones = edit.once(
        (channels, window, edges.zeros_before),
        lambda: edit.add_parameter(f"{name}_place", ArrayParameter(values), before=position),
    )
    layer = depthwise(f"{name}_padded", source, ones, channels)
    layer = layer._replace(attrs={**layer.attrs, "kernel": str(window), "pad": str(edges.more)})
    shape = state.usual_shape(source)
    shape = shape and (*shape[:2], *[size + more for size, more in zip(shape[2:], edges.more)])
    return edit.insert(layer, before=position, shapes=(shape,))
