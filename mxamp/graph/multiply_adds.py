"""How many multiply-adds a node does."""

from __future__ import annotations

import math
from typing import Sequence, Tuple

from mxamp.graph.graph import Graph
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true

__all__ = ["multiply_adds"]

Shape = Tuple[int, ...]


def multiply_adds(graph: Graph, position: int, shapes: Sequence[tuple[Shape | None, ...]]) -> int | None:
    """Return the multiply-adds of one forward pass through a node.

    Parameters
    ----------
    graph
        The graph.
    position
        The node.
    shapes
        For every node, the shape of each output.

    Returns
    -------
    int or None
        None for operators that are not sums of products, and where a shape is not known.

    Notes
    -----
    Every output element of a Convolution sums over one filter, ``prod(weight.shape[1:])`` products; every
    input element of a Deconvolution is multiplied with one; an output element of FullyConnected, dot,
    batch_dot and their like in NumPy mode sums over the contracted axes. Biases are not counted.
    """
    node = graph.nodes[position]
    facts = FACTS.of(node.op, node.attrs)
    if facts is None or not facts.multiplies:
        return None
    inputs = [shapes[entry.node][entry.output] for entry in node.inputs]
    output = shapes[position][0]
    if output is None or any(shape is None for shape in inputs[:2]) or len(inputs) < 2:
        return None
    first, second = inputs[0], inputs[1]
    assert first is not None  # checked above
    assert second is not None  # checked above
    if facts.name == "Convolution":
        return math.prod(output) * math.prod(second[1:])
    if facts.name == "Deconvolution":
        return math.prod(first) * math.prod(second[1:])
    if "DeformableConvolution" in facts.name:
        weight = inputs[2 if facts.name == "_contrib_DeformableConvolution" else 3]
        return None if weight is None else math.prod(output) * math.prod(weight[1:])
    if facts.name == "FullyConnected":
        return math.prod(output) * second[-1]
    if facts.name in ("dot", "batch_dot"):
        transposed = is_true(node.attrs, "transpose_a", default=False)
        axis = (0 if facts.name == "dot" else -2) if transposed else -1
        return math.prod(output) * first[axis]
    if facts.name in ("_np_dot", "_npi_matmul"):
        return math.prod(output) * math.prod(first[-1:])
    if facts.name == "_npi_tensordot_int_axes":
        (summed,) = integers(node.attrs.get("axes", "")) or (0,)
        return math.prod(output) * math.prod(second[:summed])
    if facts.name == "_npi_tensordot":
        axes = integers(node.attrs.get("a_axes_summed", ""))
        return None if axes is None else math.prod(output) * math.prod(first[axis] for axis in axes)
    if facts.name == "_npi_einsum":
        return _einsum(node.attrs.get("subscripts", ""), inputs)
    return None


def _einsum(subscripts: str, shapes: Sequence[Shape | None]) -> int | None:
    """Return the multiply-adds of MXNet's einsum, which goes through all indices at once.

    None where the subscripts hold an ellipsis.
    """
    terms = subscripts.replace(" ", "").split("->")[0].split(",")
    if "." in subscripts or len(terms) != len(shapes):
        return None
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes):
        if shape is None:
            return None
        sizes.update(zip(term, shape))
    return math.prod(sizes.values()) * (len(terms) - 1)
