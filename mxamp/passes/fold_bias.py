"""Let a layer add what is added to its result, one number a filter."""

from __future__ import annotations

import math
from typing import Mapping, NamedTuple, Sequence

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

    Likewise a Deconvolution and a FullyConnected, what is subtracted, one number for all filters, several
    sums one behind the other, and a layer that has a bias, to which c is added.

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
        sums: dict[int, _Sums] = {}
        for position, node in enumerate(graph.nodes):
            if node.op in self.operators and not state.is_fixed(position):
                found = _found(state, position, sums)
                if found is not None:
                    sums[position] = found
        whole = {found.layer: found for found in sums.values()}  # the last of each layer holds all
        edit, changes = GraphEdit(graph, state.params), []
        for layer, found in whole.items():
            before, last = graph.nodes[layer], found.positions[-1]
            parameter = ArrayParameter(found.values.astype(np.float32))
            given = edit.add_parameter(f"{before.name}_bias", parameter, found.made_from, before=layer)
            made = before._replace(
                attrs={**before.attrs, "no_bias": "False"}, inputs=(*before.inputs[:_WITHOUT_BIAS], given)
            )
            # The name of a graph output stays, and the layer's goes.
            kept = last if last in state.heads else layer
            edit.replace(kept, made._replace(name=graph.nodes[kept].name))
            name = graph.nodes[kept].name
            for position in {layer, *found.positions} - {kept}:
                edit.drop(position, Entry(kept))
                reason = f"{name!r} is both: a layer with a bias"
                changes.append(self.changed(graph.nodes[position], reason, into=name))
        return Done(edit.finish(), tuple(changes)) if changes else None


class _Sums(NamedTuple):
    """What is added to the result of a layer.

    Attributes
    ----------
    layer
        The layer.
    positions
        The nodes that add, each to what the one before it writes.
    values
        What they and the layer's own bias add to each filter.
    made_from
        The parameters that say so.
    """

    layer: int
    positions: Sequence[int]
    values: NDArray[np.float64]
    made_from: Sequence[str]


def _found(state: State, position: int, sums: Mapping[int, _Sums]) -> _Sums | None:
    """Return what a node, and those that it reads, add to the result of a layer; None where there is none."""
    graph, node = state.graph, state.graph.nodes[position]
    is_difference = FACTS.canonical(node.op) in _DIFFERENCES
    for number in (0,) if is_difference else (0, 1):
        source, added = node.inputs[number], node.inputs[1 - number]
        before = sums.get(source.node) or _of_layer(state, source)
        if before is None or state.only_reader(source.node) != position:
            continue
        values = _along_filters(graph.nodes[before.layer], state.parameter(added))
        if values is None or not np.all(np.abs(values) <= LARGEST_SUM):
            continue
        total = before.values + (-1.0 if is_difference else 1.0) * values.astype(np.float64)
        made_from = (graph.nodes[added.node].name, *before.made_from)
        return _Sums(before.layer, (*before.positions, position), total, made_from)
    return None


def _of_layer(state: State, entry: Entry) -> _Sums | None:
    """Return what the bias of a layer in float32 adds; None where it has to stay, or there is no layer."""
    node = state.graph.nodes[entry.node]
    is_layer = FACTS.canonical(node.op) in LAYERS and state.dtypes[entry.node][0] is DType.FLOAT32
    if not is_layer or state.is_fixed(entry.node):
        return None
    if len(node.inputs) == _WITHOUT_BIAS:
        return _Sums(entry.node, (), np.zeros(1), ())
    bias = node.inputs[_WITHOUT_BIAS]
    own = state.own_parameter(bias)
    if own is None:
        return None
    return _Sums(entry.node, (), own.values().astype(np.float64), (state.graph.nodes[bias.node].name,))


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
