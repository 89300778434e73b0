"""Which axes of the inputs are the batch, and what has its size."""

from __future__ import annotations

import dataclasses
from typing import Mapping, NamedTuple, Sequence

from mxamp.errors import DataError, ExportError
from mxamp.graph.graph import Entry, Graph, Use
from mxamp.graph.shapes import MaybeShape, infer_entry_shapes
from mxamp.onnx.writer import BATCH
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true

_CREATED = frozenset({"_zeros", "_zeros_without_dtype", "_ones", "_full"})
"""What reads nothing, and whose shape is an attribute."""

BATCH_AXIS, BATCH_TIMES = "__batch_axis__", "__batch_times__"
"""Attributes of such a node that was given an input with the batch: the axis of the batch there, and for each
axis of the node's own with the size 0 by what the batch is multiplied."""

_PARAMETERS = 1
"""The input of an RNN that is no sequence and no state."""


class OpenAxis(NamedTuple):
    """The axis of an input whose size is left open, and what that size is called."""

    number: int
    symbol: str


def batch_axes(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> dict[str, OpenAxis]:
    """Return the axes that are left open: the batch of every input, which is its first axis.

    What a recurrent operator reads has its steps, or its layers, there, and the batch behind these; and where
    a variable says its ``__layout__``, N is the batch. Where an input's is longer or shorter than that of the
    first one, it is open as well, but another size; :func:`with_sizes` tells whether the model takes others.

    Parameters
    ----------
    graph
        The graph.
    shapes
        Input name -> shape.
    """
    numbers = {name: _batch_axis(graph, name) for name in shapes}
    sizes = {name: shapes[name][number] for name, number in numbers.items() if number < len(shapes[name])}
    first = next(iter(sizes.values()), None)
    return {
        name: OpenAxis(numbers[name], BATCH if size == first else f"{name}_{BATCH}")
        for name, size in sizes.items()
    }


def _batch_axis(graph: Graph, name: str) -> int:
    position = graph.variables[name]
    layout = graph.nodes[position].attrs.get("__layout__", "")
    if "N" in layout:
        return layout.index("N")
    uses = graph.uses_of(Entry(position))
    return int(bool(uses) and all(_is_recurrent(graph, use) for use in uses))


def _is_recurrent(graph: Graph, use: Use) -> bool:
    """Whether an input is read as a sequence, or as a state, by a recurrent operator."""
    node = graph.nodes[use.node]
    is_lengths = use.input + 1 == len(node.inputs) and is_true(
        node.attrs, "use_sequence_length", default=False
    )
    return FACTS.canonical(node.op) == "RNN" and use.input != _PARAMETERS and not is_lengths


def with_sizes(
    graph: Graph,
    shapes: Mapping[str, Sequence[int]],
    params: Mapping[str, tuple[int, ...]],
    open_axes: Mapping[str, OpenAxis],
) -> tuple[Graph, Mapping[str, OpenAxis]]:
    """Return a graph in which zeros state all their sizes; MXNet tells those that are 0 from their readers.

    The states that Gluon's recurrent layers begin with are such zeros: their batch is 0. Where the batch is
    open they read an input that has it.

    Parameters
    ----------
    graph
        The graph.
    shapes
        Input name -> shape.
    params
        The shapes of parameters and auxiliary states, by name.
    open_axes
        The axes that are left open.

    Returns
    -------
    tuple
        The graph, and the axes that can be left open: the batch, and what the model takes in another size.

    Raises
    ------
    DataError
        When the shapes do not fit the model; names the node.
    ExportError
        When the batch is open, and MXNet itself takes no other than that of the shapes.
    """
    inferred = infer_entry_shapes(graph, shapes, params).entries
    doubled = _doubled(graph, shapes, params, open_axes)
    nodes = list(graph.nodes)
    for position, node in enumerate(graph.nodes):
        own = inferred[position][0]
        if graph.has_numpy_shapes or own is None or node.op not in _CREATED:
            continue
        if 0 not in (integers(node.attrs.get("shape", "")) or ()):
            continue
        grown = {name: entries[position][0] for name, entries in doubled.items()}
        source = next((name for name, other in grown.items() if other not in (own, None)), None)
        attrs = {**node.attrs, "shape": str(own)}
        if source is not None:
            axis = open_axes[source].number
            batch = shapes[source][axis]
            # It grows by as much for each sample, and is nothing for none.
            times = [(more - less) // batch for less, more in zip(own, grown[source] or own)]
            if any(each and each * batch != size for each, size in zip(times, own)):
                continue
            attrs["shape"] = str(tuple([0 if each else size for each, size in zip(times, own)]))
            attrs[BATCH_AXIS], attrs[BATCH_TIMES] = str(axis), str(tuple(times))
            node = node._replace(inputs=(Entry(graph.variables[source]),))
        nodes[position] = node._replace(attrs=attrs)
    kept = {open_axes[name].symbol for name in doubled}
    taken = {name: axis for name, axis in open_axes.items() if axis.symbol in kept}
    return dataclasses.replace(graph, nodes=tuple(nodes)), taken


def _doubled(
    graph: Graph,
    shapes: Mapping[str, Sequence[int]],
    params: Mapping[str, tuple[int, ...]],
    open_axes: Mapping[str, OpenAxis],
) -> dict[str, Sequence[tuple[MaybeShape, ...]]]:
    """Return the shapes of all nodes with twice the size of each that is open, by an input that has it.

    What the model takes in no other size is left out; where that is the batch it is an error.
    """
    found: dict[str, Sequence[tuple[MaybeShape, ...]]] = {}
    for symbol in dict.fromkeys(axis.symbol for axis in open_axes.values()):
        more = {name: list(shape) for name, shape in shapes.items()}
        named = {name: axis.number for name, axis in open_axes.items() if axis.symbol == symbol}
        for name, number in named.items():
            more[name][number] *= 2
        try:
            found[next(iter(named))] = infer_entry_shapes(graph, more, params).entries
        except DataError as error:
            if symbol == BATCH:
                raise ExportError(
                    "The batch cannot be left open, for the model takes no other than it was given: "
                    f"{error} Export with fixed shapes, without --dynamic-batch (dynamic_batch=False)."
                ) from error
    return found
