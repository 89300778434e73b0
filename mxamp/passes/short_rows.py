"""Cut tensors into short rows with the operator that copies them fast."""

from __future__ import annotations

import math

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_AXES = 4
"""For three or five the backend has no kernel that is faster."""

_CHANNELS = 1
"""The second axis."""

_LONGEST_ROW = 64
"""Longer ones are copied about as fast by either operator."""

_FEWEST_ROWS = 1 << 10
"""Fewer take no time to speak of."""


class SliceShortRows(NodeRewrite):
    """Replace ``slice_axis`` along an axis behind which few values lie by ``slice``.

    Before::

        x (1, 172, 309, 1) -> slice_axis {axis: 2, begin: 36, end: 300} (name)

    After::

        x -> slice {begin: (None, None, 36), end: (None, None, 300)} (name)

    Refuses: where no shape is known or assumed; other tensors than those of four axes; the second axis, along
    which ``slice`` may raise (:mod:`mxamp.passes.channel_slices`), and the last; more than 64 values behind
    the axis; fewer than 1,024 rows of them; an axis that is counted from the end where the number of axes is
    not certain; what is told its shape by its readers; other dtypes than float32; numpy's shape semantics; a
    node that a rule of the user's picks; targets that do not name the pass; the bodies of control flow. The
    node may be a graph output, for its name stays.

    Notes
    -----
    Why: ``slice_axis`` copies the values behind the axis row by row, at 5 to 15 ns a row, and for ``slice``
    of four axes there is a kernel of oneDNN. Five eighths of the third axis of (1, 172, 309, 1) take 392 and
    27 us, with 4 values behind it 394 and 48, with 16 446 and 202, of (1, 64, 200, 64) 198 and 108, of (1,
    20, 309, 1) 56 and 19. With three axes (1, 1000, 512) takes 83 and 139 (AMD EPYC of family 23, float32,
    one thread).

    Bit-exact, for every shape: shapes only tell whether it is worth it. Linear in nodes.
    """

    step = "short_rows"
    operators = frozenset({"slice_axis"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one slice."""
        node = state.graph.nodes[position]
        source = node.inputs[0]
        shape, written = state.usual_shape(source), state.usual_shape(Entry(position))
        axis, begin = _number(node.attrs.get("axis", "")), _number(node.attrs.get("begin", ""))
        end = node.attrs.get("end", "None")
        if (
            shape is None
            or written is None
            or len(shape) != _AXES
            or axis is None
            or begin is None
            or (end != "None" and _number(end) is None)
            or (axis < 0 and state.axes(source) is None)
            or source.node in state.left_open
            or state.graph.has_numpy_shapes
            or state.certain_dtypes[position][0] is not DType.FLOAT32
        ):
            return None
        axis %= len(shape)
        row = math.prod(shape[axis + 1 :])
        if (
            axis in (_CHANNELS, len(shape) - 1)
            or row > _LONGEST_ROW
            or math.prod(written) < _FEWEST_ROWS * row
        ):
            return None
        before = "None, " * axis
        attrs = {**own_attributes(node), "begin": f"({before}{begin},)", "end": f"({before}{end},)"}
        edit.replace(position, node._replace(op="slice", attrs=attrs))
        return "slice copies short rows faster"


def _number(text: str) -> int | None:
    found = integers(text)
    return found[0] if found is not None and len(found) == 1 else None
