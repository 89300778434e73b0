"""Which axes of the inputs are the batch, and what has its size."""

from __future__ import annotations

import dataclasses
from typing import Mapping, NamedTuple, Sequence

from mxamp.errors import DataError, ExportError
from mxamp.graph.graph import Entry, Graph, Use
from mxamp.graph.shapes import infer_entry_shapes
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
    first one, it is open as well, but another size.

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
) -> Graph:
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

    Raises
    ------
    DataError
        When the shapes do not fit the model; names the node.
    ExportError
        When the batch is open, and MXNet itself takes no other than that of the shapes.
    """
    inferred = infer_entry_shapes(graph, shapes, params).entries
    more: dict[str, Sequence[int]] = dict(shapes)
    batched = {name: axis.number for name, axis in open_axes.items() if axis.symbol == BATCH}
    for name, number in batched.items():
        shape = list(shapes[name])
        shape[number] *= 2
        more[name] = shape
    waiting = [
        position
        for position, node in enumerate(graph.nodes)
        if node.op in _CREATED and 0 in (integers(node.attrs.get("shape", "")) or ())
    ]
    if graph.has_numpy_shapes or not (waiting or batched):
        return graph
    try:
        others = infer_entry_shapes(graph, more, params).entries
    except DataError as error:
        raise ExportError(
            f"The batch cannot be left open, for the model takes no other than it was given: {error} Export "
            "with fixed shapes, without --dynamic-batch (dynamic_batch=False)."
        ) from error
    nodes = list(graph.nodes)
    for position in waiting:
        own, other = inferred[position][0], others[position][0]
        if own is None or other is None:
            continue
        node, source = nodes[position], next(iter(batched), "")
        attrs = {**node.attrs, "shape": str(own)}
        if own != other:
            batch = shapes[source][batched[source]]
            # It grows by as much for each sample, and is nothing for none.
            times = [(more - less) // batch for less, more in zip(own, other)]
            if any(each and each * batch != size for each, size in zip(times, own)):
                continue
            attrs["shape"] = str(tuple([0 if each else size for each, size in zip(times, own)]))
            attrs[BATCH_AXIS], attrs[BATCH_TIMES] = str(batched[source]), str(tuple(times))
            node = node._replace(inputs=(Entry(graph.variables[source]),))
        nodes[position] = node._replace(attrs=attrs)
    return dataclasses.replace(graph, nodes=tuple(nodes))
