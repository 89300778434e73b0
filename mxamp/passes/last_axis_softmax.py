"""Compute a softmax where its values lie side by side."""

from __future__ import annotations

import math
from typing import NamedTuple

from mxamp.dtypes import DType
from mxamp.graph.graph import Node
from mxamp.ops.attributes import is_true
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State
from mxamp.passes.turned_axis import axis_from_front, certain_rank, known_shape, turn_axis

_FEWEST_VALUES = {8: 2048, 4: 16_384}
"""Terms of a sum -> of so many or more, how many values there are at least. Of fewer, more operators cost as
much as they save; of fewer than four terms, the backend's kernel is no faster."""


class _Softmax(NamedTuple):
    """A softmax along an axis; its rank is the number of axes, where that is certain."""

    axis: int
    rank: int | None
    temperature: dict[str, str]


class RewriteLastAxisSoftmax(NodeRewrite):
    """Turn what a softmax along another axis reads, so that its axis is the last, and turn the result back.

    Before::

        x -> softmax {axis: 1} -> y

    After, of an image::

        x -> transpose {axes: (0, 2, 3, 1)} -> softmax {axis: -1} -> transpose {axes: (0, 3, 1, 2)} -> y

    Likewise ``SoftmaxActivation`` with ``mode=channel``, whose axis is 1. Where the number of axes is not
    certain (of images it is, and behind a ``transpose``), all that lie behind the axis become one::

        x -> Reshape {shape: (0, 0, -1)} -> transpose {axes: (0, 2, 1)} -> softmax {axis: -1}
          -> transpose {axes: (0, 2, 1)}, x -> reshape_like -> y

    Refuses: where the shape is not known, has fewer than 4 values along the axis, or fewer than 2,048 in all,
    16,384 where the axis has fewer than 8; an axis that is counted from the last, or ``SoftmaxActivation``,
    where the number of axes is not certain; the last axis; a length given
    with the data, a dtype to return; other dtypes than float32; numpy's shape semantics, where x may be
    empty; a node that a rule of the user's picks; targets that do not name the pass; the bodies of control
    flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: along the last axis it is oneDNN's kernel, along others a loop that strides through memory for each
    value. Of 64 channels of 64 x 64 softmax takes 3.5 ms, SoftmaxActivation 5.0, and this form 0.7, of 21
    1.2, 1.3 and 0.27, of 4 channels of 128 x 128 0.79, 0.76 and 0.40 (AMD EPYC, one thread). The last layer
    of a segmentation network, and the classes of SSD, are such ones. Of 10 capsules, (8, 1152, 10, 1) along
    the third axis, it takes 1,012 us and in this form 382, of 500 times 50 along the second 565 and 68.

    The same up to rounding: with inputs of all magnitudes to 80 each value differs from the exact one by at
    most 4.3e-6 of it, where the operator's differs by 4.0e-6. Beside an infinity a value is 0, where the
    operator makes it NaN. ``log_softmax`` stays: oneDNN's is less exact than MXNet's, 3.8e-6 and 5.5e-7 for
    inputs to 1. Linear in nodes.
    """

    step = "last_axis_softmax"
    operators = frozenset({"softmax", "SoftmaxActivation"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one softmax."""
        graph, node = state.graph, state.graph.nodes[position]
        softmax = _softmax(state, node)
        if softmax is None or graph.has_numpy_shapes or state.dtypes[position][0] is not DType.FLOAT32:
            return None
        shape = known_shape(state, node.inputs[0], softmax.rank)
        if shape is None or not _pays(shape, softmax.axis):
            return None
        is_certain, kept = softmax.rank is not None, softmax.temperature
        turn_axis(edit, position, "softmax", softmax.axis, shape, is_certain=is_certain, kept=kept)
        return "along the last axis the backend has a kernel for it"


def _pays(shape: tuple[int, ...], axis: int) -> bool:
    if axis >= len(shape) - 1:
        return False
    return any(
        shape[axis] >= terms and math.prod(shape) >= values for terms, values in _FEWEST_VALUES.items()
    )


def _softmax(state: State, node: Node) -> _Softmax | None:
    """Return what a node is; None where it needs no other form, or has none."""
    if len(node.inputs) != 1:
        return None
    rank = certain_rank(state, node.inputs[0])
    if node.op == "SoftmaxActivation":
        is_along_axis = node.attrs.get("mode") == "channel" and rank is not None and rank > 2
        return _Softmax(1, rank, {}) if is_along_axis else None
    axis = axis_from_front(node, rank)
    if (
        axis is None
        or is_true(node.attrs, "use_length", default=False)
        or node.attrs.get("dtype", "None") != "None"
    ):
        return None
    return _Softmax(axis, rank, {key: node.attrs[key] for key in ("temperature",) if key in node.attrs})
