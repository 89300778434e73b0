"""Sums and means along the last axis by a matrix product."""

from __future__ import annotations

import math
from functools import partial

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_FEW_VALUES = 1 << 11
"""Sums of fewer values take no longer than the nodes that make the ones."""

_MOST_TERMS = 1 << 10
"""Longer sums are left to MXNet, which carries what rounding loses along."""


class RewriteLastAxisSum(NodeRewrite):
    """Replace a sum along the last axis, or a mean, by a product with a vector of ones.

    Before::

        x -> sum {axis: 3} (name)

    After::

        x -> _contrib_arange_like {axis: -1} -> ones_like (ones)
        x, ones -> dot (name)

    With ``keepdims`` the ones are a matrix of one column, an ``expand_dims`` of them. A mean multiplies by
    shares of one, as many as there are terms::

        ones, ones -> dot (count)
        ones, count -> broadcast_div (shares)
        x, shares -> dot (name)

    Refuses: where the shape is not known, it has a single axis, or fewer than 2,048 values; other axes;
    more than 1,024 terms; other dtypes than float32; numpy's shape semantics, where x may be empty; a node
    that a rule of the user's picks; targets that do not name the pass; the bodies of control flow. The node
    may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet 1.9.1 computes for each term where it lies, and corrects for what each addition loses. 184,320
    sums of 8 terms take 6.1 ms, the product 0.8 (AMD EPYC, one thread): in a capsule network such sums are
    half of the time. ``dot`` does not run in bfloat16 on CPUs, so the sum stays float32.

    The ones are made of x, so that the form is right for every shape, and for the axis -1 for any number of
    axes (of a single one a sum has one axis in MXNet, and so has the product); shapes only tell whether it is
    worth it: 2,048 values take 27 us as a sum, and 15 as a product. The same up to the order of summation: n
    terms differ from the exact sum by at most n - 1 roundings of what is summed up, and a mean by one more,
    for its share is rounded. Infinities and NaN give the same.
    Linear in nodes.
    """

    step = "last_axis_sum"
    operators = frozenset({"sum", "sum_axis", "mean"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one sum."""
        node = state.graph.nodes[position]
        if not _pays(state, position, node):
            return None
        source = node.inputs[0]
        shape = state.usual_shape(source)
        assert shape is not None  # it pays

        put = partial(edit.part, position)
        terms = put("_contrib_arange_like", "terms", source, like=shape[-1:], axis="-1")
        ones = put("ones_like", "ones", terms, like=shape[-1:])
        if FACTS.canonical(node.op) == "mean":
            count = put("dot", "count", ones, ones, like=(1,))
            ones = put("broadcast_div", "shares", ones, count, like=shape[-1:])
        if is_true(node.attrs, "keepdims", default=False):
            ones = put("expand_dims", "column", ones, like=(*shape[-1:], 1), axis="-1")
        edit.replace(position, node._replace(op="dot", attrs=own_attributes(node), inputs=(source, ones)))
        return "a product with ones sums up as well, and faster"


_SUMS = frozenset({"sum", "mean"})


def summed_axis(state: State, position: int) -> int | None:
    """Return the one axis that a float32 sum or mean goes over, as written.

    Parameters
    ----------
    state
        What is known of the graph.
    position
        A node's.

    Returns
    -------
    int or None
        None where there are several, where the operator is another, and where too little is known or so few
        values are summed up that nothing is gained; in numpy's shape semantics, where they may be none.
    """
    graph, node = state.graph, state.graph.nodes[position]
    if graph.has_numpy_shapes or FACTS.canonical(node.op) not in _SUMS or len(node.inputs) != 1:
        return None
    shape, axis = state.usual_shape(node.inputs[0]), integers(node.attrs.get("axis", "()"))
    if (
        shape is None
        or axis is None
        or len(axis) != 1
        or is_true(node.attrs, "exclude", default=False)
        or math.prod(shape) < _FEW_VALUES
        or state.certain_dtypes[position][0] is not DType.FLOAT32
        or state.usual_shape(Entry(position)) is None
    ):
        return None
    return axis[0]


def _pays(state: State, position: int, node: Node) -> bool:
    axis = summed_axis(state, position)
    if axis is None:
        return False
    shape = state.usual_shape(node.inputs[0])
    assert shape is not None  # an axis is summed up
    has_certain_axes = state.shape(node.inputs[0]) is not None
    return (
        len(shape) > 1
        and (axis in (-1, len(shape) - 1) if has_certain_axes else axis == -1)
        and 1 < shape[-1] <= _MOST_TERMS
    )
