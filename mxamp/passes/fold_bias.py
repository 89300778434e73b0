"""Let a layer add what is added to its result, one number a filter."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, integers, is_true
from mxamp.ops.parameters import LAYERS
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State

_SUMS = frozenset({"broadcast_add", "_npi_add"})

_DIFFERENCES = frozenset({"broadcast_sub", "_npi_subtract"})

_BEFORE_PLACES = 2
"""Axes of a batch and of channels."""

_WITHOUT_BIAS = 2
"""Data and weight."""

LARGEST_SUM = 2.0**15
"""What adds more is a mask, and would not fit every dtype."""


class FoldBias(PreparationPass):
    """Make the bias of a layer of an array of parameters that is added to its result.

    Before::

        x -> Convolution(weight) -> broadcast_add(c) -> y               c of shape (1, filters, 1, 1)

    After::

        x -> Convolution(weight, bias) -> y

    Likewise a Deconvolution and a FullyConnected, what is subtracted, one number for all filters, and a layer
    that has a bias, to which c is added.

    Refuses: where anything else reads the layer, or it is a graph output; an array that is no dense float32
    parameter, does not lie along the filters alone, or holds values beyond 2^15, as masks do; a bias that
    others read; other dtypes than float32; a node that a rule of the user's picks; the bodies of control
    flow. The sum may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet adds in a loop over plain tensors, to which what the layer wrote is brought, the layer is not
    fused with what is behind, and the sum stays FP32, between two casts. Models that were built with Keras
    have one behind every layer: a U-Net takes 3.2 ms instead of 4.5 in FP32, and then 1.6 in bfloat16 (AMD
    EPYC of family 26, one thread, random weights).

    The sum is the same number, but oneDNN may add the bias before the products instead of behind them; with
    a bias that was there both are added at conversion, and rounded once. Linear in nodes.
    """

    step = "fold_bias"
    operators = _SUMS | _DIFFERENCES | {"broadcast_plus", "broadcast_minus"}

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph in which layers add."""
        edit, changes = GraphEdit(graph, state.params), []
        for position, node in enumerate(graph.nodes):
            if node.op not in self.operators or state.is_fixed(position):
                continue
            layer = self._folded(state, edit, position)
            if layer is None:
                continue
            if position in state.heads:  # the sum's name stays, and the layer's goes
                edit.replace(position, edit.node(layer)._replace(name=node.name))
                edit.drop(layer.node)
                gone, kept = graph.nodes[layer.node], node
            else:
                edit.drop(position, layer)
                gone, kept = node, graph.nodes[layer.node]
            changes.append(self.changed(gone, f"{kept.name!r} is both: a layer with a bias", into=kept.name))
        return Done(edit.finish(), tuple(changes)) if changes else None

    def _folded(self, state: State, edit: GraphEdit, position: int) -> Entry | None:
        """Give the layer that a sum reads its bias, and return it; None where there is no such layer."""
        graph, node = state.graph, state.graph.nodes[position]
        is_difference = FACTS.canonical(node.op) in _DIFFERENCES
        for number in (0,) if is_difference else (0, 1):
            layer, added = node.inputs[number], node.inputs[1 - number]
            if not _adds_nothing_else(state, layer, position):
                continue
            before = graph.nodes[layer.node]
            values = _along_filters(before, state.parameter(added))
            bias = before.inputs[_WITHOUT_BIAS:]
            own = state.own_parameter(bias[0]) if bias else None
            if values is None or (bias and own is None):
                continue
            if not np.all(np.abs(values) <= LARGEST_SUM):
                continue
            values = -values if is_difference else values
            sources = [graph.nodes[added.node].name]
            if own is not None:
                values = values.astype(np.float64) + own.values().astype(np.float64)
                sources.append(graph.nodes[bias[0].node].name)
            parameter = ArrayParameter(values.astype(np.float32))
            given = edit.add_parameter(f"{before.name}_bias", parameter, sources, before=layer.node)
            attrs = {**before.attrs, "no_bias": "False"}
            inputs = (*before.inputs[:_WITHOUT_BIAS], given)
            edit.replace(layer.node, before._replace(attrs=attrs, inputs=inputs))
            return layer
        return None


def _adds_nothing_else(state: State, layer: Entry, position: int) -> bool:
    """Return whether an entry is a layer in float32 that one sum alone reads."""
    return (
        FACTS.canonical(state.graph.nodes[layer.node].op) in LAYERS
        and state.only_reader(layer.node) == position
        and not state.is_fixed(layer.node)
        and state.dtypes[layer.node][0] is DType.FLOAT32
    )


def _along_filters(layer: Node, parameter: Parameter | None) -> NDArray[np.float32] | None:
    """Return what a parameter adds to each filter of a layer; None where it is more than that."""
    places = 0
    if FACTS.canonical(layer.op) == "FullyConnected":
        filters = integers(layer.attrs.get("num_hidden", ""))
        # What is not flattened may have one axis.
        axes = _BEFORE_PLACES if is_true(layer.attrs, "flatten", default=True) else 1
    elif layer.attrs.get("layout", "None") in CHANNELS_FIRST:
        filters = integers(layer.attrs.get("num_filter", ""))
        kernel = integers(layer.attrs.get("kernel", ""))
        if kernel is None:
            return None
        places = len(kernel)
        axes = _BEFORE_PLACES + places
    else:
        return None
    if not filters:
        return None
    return along_channels(parameter, filters[0], axes=axes, places=places)


def along_channels(
    parameter: Parameter | None, channels: int, *, axes: int, places: int
) -> NDArray[np.float32] | None:
    """Return the number that a parameter has for each channel where it is broadcast to values.

    Parameters
    ----------
    parameter
        A parameter.
    channels
        How many channels the values have.
    axes
        How many axes they have at least.
    places
        How many of these lie behind that of channels.

    Returns
    -------
    numpy.ndarray or None
        float32, of shape (channels,); None where the parameter is not dense float32, or lies along more than
        channels, or along others.
    """
    if parameter is None or parameter.dtype is not DType.FLOAT32 or parameter.is_sparse:
        return None
    shape = parameter.shape
    of_channels = len(shape) - 1 - places
    along = math.prod(shape)
    # One of fewer axes lies along the last ones.
    is_along = along == 1 or (of_channels >= 0 and shape[of_channels] == along)
    if along not in (1, channels) or not is_along or len(shape) > axes:
        return None
    return np.broadcast_to(parameter.values().reshape(-1), channels)
