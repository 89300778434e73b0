"""Take parts of a tensor along its first axis, along which they are copied whole."""

from __future__ import annotations

import math
from functools import partial
from typing import Sequence

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_MOST_AXES = 4
"""MXNet's transpose works out for each value where it comes from once there are more."""

_FEWEST_VALUES = 1 << 12
"""Of fewer, three operators cost as much as they save."""

_LEAST_SHARE = 8
"""At least one value of so many is taken, for all are turned."""


class TakeRows(NodeRewrite):
    """Turn what is taken along an axis between others, so that it is taken along the first.

    Before::

        x -> take(indices) {axis: 1} (name)

    After::

        x -> transpose {axes: (1, 0, 2, 3)} -> take(indices) {axis: 0}
          -> transpose {axes: (1, 0, 2, 3)} (name)

    Refuses: where the number of axes is not certain, or is more than four; indices of other than one axis;
    the first axis and the last; fewer than 4,096 values that are taken, or one of more than eight; what is
    told its shape by its readers; other dtypes than float32; numpy's shape semantics; a node that a rule of
    the user's picks; targets that do not name the pass; the bodies of control flow. The node may be a graph
    output, for its name stays.

    Notes
    -----
    Why: along the first axis MXNet copies whole what an index says, along others it works out for each value
    where it comes from. All 12 channels of 208 x 208, in another order, take 4.5 ms and so 0.33, 64 of 56 x
    56, eight times, 15 and 1.7, 48 of 28 x 28 0.36 and 0.04; 28 of 56 rows of 64 channels 0.98 and 0.10 (AMD
    EPYC of family 23, float32, one thread).

    Bit-exact, for every shape, and every index: those that are out of range are what ``mode`` says, along
    whichever axis. Linear in nodes.
    """

    step = "take_rows"
    operators = frozenset({"take"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one take."""
        node = state.graph.nodes[position]
        source, indices = node.inputs
        shape, taken = state.shape(source), state.shape(indices)
        axis = integers(node.attrs.get("axis", "0"))
        if (
            shape is None
            or taken is None
            or len(taken) != 1
            or axis is None
            or len(axis) != 1
            or not 2 < len(shape) <= _MOST_AXES
            or not 0 < axis[0] % len(shape) < len(shape) - 1
            or not {source.node, indices.node}.isdisjoint(state.left_open)
            or state.graph.has_numpy_shapes
            or state.certain_dtypes[position][0] is not DType.FLOAT32
        ):
            return None
        place = axis[0] % len(shape)
        beside = math.prod(shape) // max(1, shape[place])
        if taken[0] * beside < _FEWEST_VALUES or taken[0] * _LEAST_SHARE < shape[place]:
            return None
        order = [place, *[each for each in range(len(shape)) if each != place]]
        back = [order.index(each) for each in range(len(shape))]
        put = partial(edit.part, position)
        turned_shape = tuple([shape[each] for each in order])

        def turn() -> Entry:
            return put("transpose", "first", source, like=turned_shape, axes=_text(order))

        attrs = {key: value for key, value in node.attrs.items() if not key.startswith("__")}
        first = edit.once((source, place), turn)
        rows = put("take", "rows", first, indices, like=(*taken, *turned_shape[1:]), **{**attrs, "axis": "0"})
        attrs = {**own_attributes(node), "axes": _text(back)}
        edit.replace(position, node._replace(op="transpose", attrs=attrs, inputs=(rows,)))
        return "along the first axis values are copied whole"


def _text(axes: Sequence[int]) -> str:
    return f"({', '.join(map(str, axes))})"
