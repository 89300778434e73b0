"""Keep apart the BatchNorms that MXNet takes for one and the same, and ends the process over."""

from __future__ import annotations

import math
from typing import Sequence

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit, NodeShapes

_NORMS = frozenset({"BatchNorm", "_npx_batch_norm"})


def keep_norms_apart(graph: Graph, shapes: Sequence[NodeShapes]) -> Graph:
    """Put Reshapes around every BatchNorm of a matrix, which MXNet may confuse with one of a plane.

    Before::

        FullyConnected -> (8, 512) -> BatchNorm

    After::

        FullyConnected -> (8, 512) -> Reshape to (8, 512, 1, 1) -> BatchNorm -> Reshape to (8, 512)

    Refuses: data of four dimensions, channels second; data with more than one value a row and channel.

    Parameters
    ----------
    graph
        The graph that is to be bound.
    shapes
        For every node the shape of each output.

    Returns
    -------
    Graph
        The same object where there is nothing to keep apart.

    Notes
    -----
    MXNet 1.9.1 computes a BatchNorm whose data has not four dimensions as one of the shape (N, C, 1, D), with
    oneDNN's primitive for that shape, which every thread keeps for the next BatchNorm alike
    (``GetBNForward`` in ``mkldnn_batch_norm-inl.h``). Where a Convolution leaves one pixel, the primitive
    that is kept writes blocks of channels, and the matrix, a view, cannot be written so: a segmentation
    fault. InsightFace's MobileFaceNet with an embedding as wide as its last convolution ends so, in float32
    with fusion off, or with fusion on after such a run. With the Reshape written out, MXNet allocates what
    the primitive asks for.

    Bit-exact: it is what the operator does inside.
    """
    inside = {
        position: shape
        for position, node in enumerate(graph.nodes)
        if node.op in _NORMS
        for shape in [_shape_inside(node, shapes)]
        if shape is not None
    }
    if not inside:
        return graph
    edit = GraphEdit(graph, {})
    for position, shape in inside.items():
        node = graph.nodes[position]
        plane = edit.insert(_reshape(node, "plane", shape, node.inputs[0]), before=position)
        attrs, inputs = {**node.attrs, "axis": "1"}, (plane, *node.inputs[1:])
        norm = edit.insert(node._replace(attrs=attrs, inputs=inputs), before=position)
        result = edit.insert(_reshape(node, "matrix", _data_shape(node, shapes), norm), before=position)
        edit.drop(position, result, *(Entry(norm.node, output) for output in range(1, node.num_outputs)))
    return edit.finish().graph


def _data_shape(node: Node, shapes: Sequence[NodeShapes]) -> tuple[int, ...]:
    source = node.inputs[0]
    return shapes[source.node][source.output] or ()


def _shape_inside(node: Node, shapes: Sequence[NodeShapes]) -> tuple[int, ...] | None:
    """Return the shape of four dimensions that oneDNN is given in place of the data's own.

    None where the data has that shape itself, or rows of more than one value, of which blocks of channels
    have another order than plain values, so that nothing is confused.
    """
    shape = _data_shape(node, shapes)
    axis = integers(node.attrs.get("axis", "1"))
    if not shape or not axis or len(axis) != 1 or not -len(shape) <= axis[0] < len(shape):
        return None
    place = axis[0] % len(shape)
    if (place == 1 and len(shape) == 4) or math.prod(shape[place + 1 :]) != 1:
        return None
    return math.prod(shape[:place]), shape[place], 1, 1


def _reshape(node: Node, ending: str, shape: tuple[int, ...], source: Entry) -> Node:
    return Node("Reshape", f"{node.name}_{ending}", {"shape": str(shape)}, (source,))
