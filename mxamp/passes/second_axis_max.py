"""Take the maximum along the second axis by Pooling of channels last."""

from __future__ import annotations

import math
from functools import partial

from mxamp.dtypes import DType
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.passes.axis_sizes import reduced_axes
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_FEW_VALUES = 1 << 12
"""Maxima of fewer take no longer than the nodes of the form."""

_FEWEST_AXES = 3
"""Of two axes the second is the last."""

_TERMS = frozenset({"broadcast_add", "broadcast_mul", "elemwise_add", "elemwise_mul"})
_MOVES = frozenset(
    {"Concat", "Dropout", "Reshape", "SwapAxis", "_copy", "expand_dims", "slice_axis", "squeeze", "transpose"}
)
_COMPUTES = frozenset(
    {
        *("Activation", "BatchNorm", "Convolution", "Deconvolution", "Embedding", "FullyConnected"),
        *("LayerNorm", "LeakyReLU", "Pooling", "RNN", "batch_dot", "dot", "relu", "sigmoid", "softmax"),
        "tanh",
    }
)
"""Operators that make no mask of minus infinity."""


class RewriteSecondAxisMax(NodeRewrite):
    """Replace a maximum along the second of three axes or more by global Pooling whose channels come last.

    Before::

        x -> max {axis: 1} (name)

    After::

        x -> Reshape {shape: (0, 0, 1, -1)} -> Pooling {global_pool: True, layout: NHWC, pool_type: max}
          -> Reshape {shape: (0, -1)} (rows)
        rows, x -> reshape_like {lhs_begin: 1, lhs_end: 2, rhs_begin: 2} (name)

    With ``keepdims`` the last Reshape keeps the axis of length one.

    Refuses: where the number of axes is not certain, or less than three; fewer than 4,096 values; other axes,
    and ``exclude``; what is no result of layers and activations, nor sums and products of such, or put
    together from them, for a mask may hold minus infinity; other dtypes than float32; numpy's shape
    semantics; a node that a rule of the user's picks; targets that do not name the pass; the bodies of
    control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet 1.9.1 looks for where each value lies anew. Its Pooling of channels last, a loop of its own,
    goes over rows. Of 64 channels of 56 x 56, as attention over places (CBAM) begins, the maximum takes 1.17
    ms and the form 0.31; of 128 words of 768 values, eight times, 9.7 and 1.0 (an Intel Xeon, float32, one
    thread). It has no kernel in low precision.

    The same, but for NaN, which Pooling passes over, the sign of a zero, and minus infinity where all is
    that, of which it makes the smallest number. Linear in nodes.
    """

    step = "second_axis_max"
    operators = frozenset({"max", "max_axis"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one maximum."""
        node = state.graph.nodes[position]
        x = node.inputs[0]
        shape = state.shape(x)
        if (
            state.graph.has_numpy_shapes
            or shape is None
            or len(shape) < _FEWEST_AXES
            or math.prod(shape) < _FEW_VALUES
            or reduced_axes(node, len(shape)) != frozenset({1})
            or state.certain_dtypes[position][0] is not DType.FLOAT32
            or x.node not in state.once(_computed)
        ):
            return None
        batch, terms, places = shape[0], shape[1], math.prod(shape[2:])

        put = partial(edit.part, position)
        lines = put("Reshape", "lines", x, like=(batch, terms, 1, places), shape="(0, 0, 1, -1)")
        attrs = {"kernel": "(1, 1)", "global_pool": "True", "layout": "NHWC", "pool_type": "max"}
        pooled = put("Pooling", "pooled", lines, like=(batch, 1, 1, places), **attrs)
        if is_true(node.attrs, "keepdims", default=False):
            rows = put("Reshape", "rows", pooled, like=(batch, 1, places), shape="(0, 1, -1)")
            place = 2
        else:
            rows = put("Reshape", "rows", pooled, like=(batch, places), shape="(0, -1)")
            place = 1
        attrs = own_attributes(node)
        attrs.update(lhs_begin=str(place), lhs_end=str(place + 1), rhs_begin="2", rhs_end=str(len(shape)))
        edit.replace(position, node._replace(op="reshape_like", attrs=attrs, inputs=(rows, x)))
        return "Pooling of channels last finds the same, and faster"


def _computed(state: State) -> frozenset[int]:
    """Return the nodes whose values all come from what makes no mask."""
    found: set[int] = set()
    for position, node in enumerate(state.graph.nodes):
        op = FACTS.canonical(node.op)
        if op in _COMPUTES or (op in _MOVES | _TERMS and all(each.node in found for each in node.inputs)):
            found.add(position)
    return frozenset(found)
