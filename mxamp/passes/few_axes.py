"""Move values along as few axes as possible."""

from __future__ import annotations

import math

from mxamp.dtypes import DType
from mxamp.ops import FACTS
from mxamp.passes.arranged import Arranged, move_into
from mxamp.passes.axis_sizes import moved_axes
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State

_FEW_VALUES = 16_384
"""Of fewer, more operators cost as much as they save."""


class MoveFewAxes(NodeRewrite):
    """Replace a transpose of five axes or more by one or two of up to four, and SwapAxis by a transpose.

    Before::

        x (8, 3, 85, 52, 52) -> transpose {axes: (0, 3, 4, 1, 2)} (name)
        x (8, 128, 64) -> SwapAxis {dim1: 1, dim2: 2} (name)
        x (8, 128, 1, 64) -> transpose {axes: (0, 2, 1, 3)} (name)

    After (axes that stay side by side are one, one of length one is nowhere in particular, and what is more
    than four then is moved in two steps)::

        x -> Reshape {shape: (0, 255, 2704)} -> transpose {axes: (0, 2, 1)}
          -> Reshape {shape: (0, 52, 52, 3, 85)} (name)
        x -> transpose {axes: (0, 2, 1)} (name)
        x -> Reshape {shape: (0, 1, 128, 64)} (name)

    Refuses: where the number of axes is not certain, or it is not certain for every call that an axis is of
    length one, or how long axes are that are parted again (:mod:`mxamp.passes.axis_sizes`); fewer than 16,384
    values, where more than one node would take the place of one; a SwapAxis that leaves the last axis alone,
    which moves whole rows; what is a layer's of volumes, through activations and Reshape, which MXNet cannot
    transpose along fewer axes; other dtypes than float32; numpy's shape semantics; a node that a rule of the
    user's picks; targets that do not name the pass; the bodies of control flow. The node may be a graph
    output, for its name stays.

    Notes
    -----
    Why: MXNet works out for each value where it comes from once there are more than four axes, and SwapAxis
    does for any number. Eight images of 52 x 52 with three boxes of 85 values take 15.4 ms, and along three
    axes 3.3; 8 x 8 windows of 7 x 7 x 96 take 744 us and 177; eight sequences of 128 times 64 are turned in
    583 us by SwapAxis and in 37 by transpose (an Intel Xeon, float32, one thread).

    Values are moved and nothing else. Linear in nodes.
    """

    step = "few_axes"
    operators = frozenset({"transpose", "SwapAxis", "swapaxes"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one node."""
        node = state.graph.nodes[position]
        if state.graph.has_numpy_shapes or state.certain_dtypes[position][0] is not DType.FLOAT32:
            return None
        sizes, shape = state.axis_sizes.of(node.inputs[0]), state.shape(node.inputs[0])
        order = None if shape is None else moved_axes(node, len(shape))
        if sizes is None or shape is None or order is None:
            return None
        moves = Arranged(sizes, shape).transposed(order).moves
        if not moves or (len(moves) > 1 and math.prod(shape) < _FEW_VALUES):
            return None
        *before, last = moves
        is_turned = bool(before) or last.op == "transpose"
        if FACTS.canonical(node.op) == "SwapAxis":
            if is_turned and order[-1] == len(order) - 1:
                return None  # whole rows are moved, as fast as by a transpose
        elif is_turned and not before:
            return None
        if is_turned and node.inputs[0].node in state.of_volumes:
            return None
        move_into(edit, position, node.inputs[0], moves)
        return "moves the same values along fewer axes" if before else f"{last.op} moves the same values"
