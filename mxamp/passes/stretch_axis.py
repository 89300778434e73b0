"""Repeat values along an axis with the operator that has the faster loop for it."""

from __future__ import annotations

import math
from typing import NamedTuple

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry
from mxamp.ops import FACTS
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State
from mxamp.passes.window_sizes import Sizes

_FEWEST = 1 << 12
"""Results, of which fewer take no time to speak of."""

_WIDE = 64
"""Values behind an axis from which on ``broadcast_axis`` is the faster one."""


class _Stretch(NamedTuple):
    """An axis of length one that gets another."""

    axis: int
    size: int


class StretchAxis(NodeRewrite):
    """Replace broadcast_axis by tile along the last axis, and tile by broadcast_axis along those before.

    Before::

        x (4, 1024, 1) -> broadcast_axis {axis: 2, size: 1024} (name)
        x (8, 1, 256) -> tile {reps: (1, 100, 1)} (name)

    After::

        x -> tile {reps: (1024,)} (name)
        x -> broadcast_axis {axis: 1, size: 100} (name)

    Likewise ``broadcast_to`` and ``repeat``.

    Refuses: several axes; an axis that is not certainly of length one in every call, or others of which that
    is not certain but their length (:mod:`mxamp.passes.axis_sizes`); where no shape is known; fewer than
    4,096 results; along axes before the last fewer than 64 values behind them; other dtypes than float32;
    numpy's shape semantics; a node that a rule of the user's picks; targets that do not name the pass; the
    bodies of control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet's broadcast_axis works out for each value where it comes from, and copies rows where only what
    is before the last axis grows; tile, broadcast_to and repeat go through general reductions of strides,
    which are fast for rows of one value. Microseconds as broadcast_axis, and as any of the others: (4, 1024,
    1) to 1,024 along the last axis 8,116 and 1,061, (8, 100, 1) to 64 102 and 19; (8, 1, 256) to 100 along
    the second 13 and 942, (8, 1, 64, 64) to 64 105 and 17,617, (1, 4096) to 16 6 and 128 (AMD EPYC of family
    26, float32, one thread).

    Values are copied and nothing else. Linear in nodes.
    """

    step = "stretch_axis"
    operators = frozenset({"broadcast_axis", "broadcast_axes", "broadcast_to", "repeat", "tile"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one node."""
        graph, node = state.graph, state.graph.nodes[position]
        if (
            graph.has_numpy_shapes
            or len(node.inputs) != 1
            or state.certain_dtypes[position][0] is not DType.FLOAT32
        ):
            return None
        before, after = state.axis_sizes.of(node.inputs[0]), state.axis_sizes.of(Entry(position))
        shape = state.shape(node.inputs[0])
        if before is None or after is None or shape is None:
            return None
        op = FACTS.canonical(node.op)
        stretch = _stretched(before, after)
        if stretch is None or math.prod(shape) * stretch.size < _FEWEST:
            return None
        is_last = stretch.axis == len(shape) - 1
        if is_last and op == "broadcast_axis":
            op, own = "tile", {"reps": str((stretch.size,))}
        elif not is_last and op != "broadcast_axis" and math.prod(shape[stretch.axis + 1 :]) >= _WIDE:
            op, own = "broadcast_axis", {"axis": str(stretch.axis), "size": str(stretch.size)}
        else:
            return None
        edit.replace(position, node._replace(op=op, attrs={**own_attributes(node), **own}))
        return f"{op} copies the same values, faster"


def _stretched(before: Sizes, after: Sizes) -> _Stretch | None:
    """Return the one axis that grows; None where it is not certain that it is one, of length one."""
    if len(before) != len(after):
        return None
    grows = [axis for axis, (own, size) in enumerate(zip(before, after)) if size != own]
    if len(grows) != 1 or before[grows[0]] != 1:
        return None
    size = after[grows[0]]
    return _Stretch(grows[0], size) if isinstance(size, int) else None
