"""How many multiply-adds an operator does, by the shapes of what it reads and writes."""

from __future__ import annotations

import math
from typing import Mapping, Sequence, Tuple

from mxamp.ops.attributes import integers, is_true

Shape = Tuple[int, ...]


def multiply_adds_of(
    op: str, attrs: Mapping[str, str], inputs: Sequence[Shape | None], output: Shape
) -> int | None:
    """Return the multiply-adds of one call; None where they are not known.

    Parameters
    ----------
    op
        The canonical name of an operator that multiplies.
    attrs
        Its attributes.
    inputs
        The shapes of its inputs; those of the first two are known.
    output
        The shape of its first output.

    Notes
    -----
    Every output element of a Convolution sums over one filter, ``prod(weight.shape[1:])`` products; every
    input element of a Deconvolution is multiplied with one; an output element of FullyConnected, dot,
    batch_dot and their like in NumPy mode sums over the contracted axes. Biases are not counted.
    """
    first, second = inputs[0], inputs[1]
    assert first is not None  # checked above
    assert second is not None  # checked above
    if op == "Convolution":
        return math.prod(output) * math.prod(second[1:])
    if op == "Deconvolution":
        return math.prod(first) * math.prod(second[1:])
    if "DeformableConvolution" in op:
        weight = inputs[2 if op == "_contrib_DeformableConvolution" else 3]
        return None if weight is None else math.prod(output) * math.prod(weight[1:])
    if op == "FullyConnected":
        return math.prod(output) * second[-1]
    if op in ("dot", "batch_dot"):
        transposed = is_true(attrs, "transpose_a", default=False)
        axis = (0 if op == "dot" else -2) if transposed else -1
        return math.prod(output) * first[axis]
    if op in ("_np_dot", "_npi_matmul"):
        return math.prod(output) * math.prod(first[-1:])
    if op == "_npi_tensordot_int_axes":
        (summed,) = integers(attrs.get("axes", "")) or (0,)
        return math.prod(output) * math.prod(second[:summed])
    if op == "_npi_tensordot":
        axes = integers(attrs.get("a_axes_summed", ""))
        return None if axes is None else math.prod(output) * math.prod(first[axis] for axis in axes)
    if op == "_npi_einsum":
        return _einsum(attrs.get("subscripts", ""), inputs)
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
