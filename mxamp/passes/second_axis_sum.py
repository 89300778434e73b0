"""Sums and means along an axis between others by a matrix product."""

from __future__ import annotations

import math
from functools import partial

from mxamp.graph.graph import Entry
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.passes.edit import GraphEdit
from mxamp.passes.last_axis_sum import summed_axis
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_MOST_TERMS = 1 << 12
"""A layer of 3x3 and 512 channels adds up more. Longer sums are left to MXNet, which carries what rounding
loses along."""

_SECOND, _THIRD = 1, 2
"""Axes whose own form there is; those before a later one are joined until it is the third. The last has
another (:mod:`mxamp.passes.last_axis_sum`)."""


class RewriteSecondAxisSum(NodeRewrite):
    """Replace a sum along an axis between others, or a mean, by a product with a vector of ones.

    Before::

        x -> sum {axis: 1} (name)

    After::

        x -> Reshape {shape: (0, 0, -1)} (rows)
        rows -> slice_axis {axis: 2, begin: 0, end: 1} -> ones_like (ones)
        rows, ones -> batch_dot {transpose_a: True} (product)
        product, x -> reshape_like {lhs_begin: 1, rhs_begin: 2} (name)

    With ``keepdims`` the product gets the shape of ``slice_axis(x) {axis: 1, begin: 0, end: 1}``. A mean
    divides the product by the number of terms, which ``batch_dot(ones, ones)`` is. Along the third of four
    axes or more rows are ``Reshape(x) {shape: (-3, 0, -1)}``, and without ``keepdims`` a Reshape follows;
    along a later one a ``Reshape {shape: (-3, -2)}`` comes before that for each axis more.

    Refuses: where the shape is not known; the first axis and the last; fewer than 2,048 values; more than
    4,096 terms; a number of axes that is not certain, but for the second axis with ``keepdims``; other dtypes
    than float32; numpy's shape semantics, where x may be empty; a node that a rule of the user's picks;
    targets that do not name the pass; the bodies of control flow. The node may be a graph output, for its
    name stays.

    Notes
    -----
    Why: MXNet 1.9.1 adds up term by term, each a stride away from the one before. 160 sums of 1,152 terms
    take 829 us and the product 79, 300 of 56 take 69 and 12, and 8 times 768 of 128 take 6.2 ms and 0.3 (AMD
    EPYC of family 26, one thread): attention over the words of a sentence, and the votes for a capsule.
    The mean of each column of 64 channels of 56 x 56, as attention to coordinates needs it, takes 1.5 ms and
    the products 0.11. Along the fourth of six axes, 1 x 4 x 16 x 49 x 28 x 28, where involution applies its
    kernels, a sum takes 57 ms and the product 2.8 (family 23).

    All that is made is made of x, so that the form is right for every shape; shapes only tell whether it is
    worth it. The same up to the order of summation: n terms differ from the exact sum by at most n - 1
    roundings of what is summed up, where MXNet corrects for what each addition loses. Infinities and NaN give
    the same. Linear in nodes.
    """

    step = "second_axis_sum"
    operators = frozenset({"sum", "sum_axis", "mean"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one sum."""
        node = state.graph.nodes[position]
        axis = _axis(state, position)
        if axis is None:
            return None
        x = node.inputs[0]
        shape = state.usual_shape(x)
        assert shape is not None  # an axis is summed up
        terms, others = shape[axis], shape[axis + 1 :]
        batch, sums = math.prod(shape[:axis]), math.prod(others)

        put, first = partial(edit.part, position), {"begin": "0", "end": "1"}
        source, before = x, list(shape)
        for _ in range(axis - _THIRD):
            before[:2] = [before[0] * before[1]]
            source = put("Reshape", "joined", source, like=tuple(before), shape="(-3, -2)")
        joined = "(0, 0, -1)" if axis == _SECOND else "(-3, 0, -1)"
        rows = put("Reshape", "rows", source, like=(batch, terms, sums), shape=joined)
        column = put("slice_axis", "column", rows, like=(batch, terms, 1), axis="2", **first)
        ones = put("ones_like", "ones", column, like=(batch, terms, 1))
        product = put("batch_dot", "product", rows, ones, like=(batch, sums, 1), transpose_a="True")
        if FACTS.canonical(node.op) == "mean":
            count = put("batch_dot", "count", ones, ones, like=(batch, 1, 1), transpose_a="True")
            product = put("broadcast_div", "mean", product, count, like=(batch, sums, 1))
        attrs, op = own_attributes(node), "reshape_like"
        inputs: tuple[Entry, ...] = (product, x)
        keeps_axis = is_true(node.attrs, "keepdims", default=False)
        if keeps_axis or axis > _SECOND:
            kept = (*shape[:axis], 1, *others)
            like = put("slice_axis", "like", x, like=kept, axis=str(axis), **first)
            inputs = (product, like)
            if not keeps_axis:
                inputs = (put("reshape_like", "kept", *inputs, like=kept),)
                op, attrs = "Reshape", {**attrs, "shape": str((*(0,) * axis, -3, -2))}
        else:
            attrs.update(lhs_begin="1", rhs_begin="2")
        edit.replace(position, node._replace(op=op, attrs=attrs, inputs=inputs))
        return "a product with ones sums up as well, and faster"


def _axis(state: State, position: int) -> int | None:
    """Return the axis that a sum goes over, from the first on; None where the form is no better for it."""
    axis = summed_axis(state, position)
    if axis is None:
        return None
    node = state.graph.nodes[position]
    x = node.inputs[0]
    shape = state.usual_shape(x)
    assert shape is not None  # an axis is summed up
    has_certain_axes = state.shape(x) is not None
    if not has_certain_axes and (axis != _SECOND or not is_true(node.attrs, "keepdims", default=False)):
        return None
    axis %= len(shape)
    is_between = _SECOND <= axis < len(shape) - 1
    return axis if is_between and 1 < shape[axis] <= _MOST_TERMS else None
