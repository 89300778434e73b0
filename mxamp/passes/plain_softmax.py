"""Bring what a softmax along the last axis reads into plain order, where a layer wrote it in its own."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Use
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.keep_branches import put_reshape
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State
from mxamp.targets.layout import lies_in_layout

_LAST = -1


class PlainSoftmax(NodeRewrite):
    """Put a Reshape before a softmax along the last axis that reads what lies in the order of a layer.

    Before::

        Convolution [-> Activation, _mul_scalar ...] -> softmax {axis: -1} -> y

    After::

        Convolution [-> Activation, _mul_scalar ...] -> Reshape {shape: (-2,)} -> softmax {axis: -1} -> y

    Likewise ``log_softmax``.

    Refuses: another axis; a length given with the data; what lies in plain order as it is, as behind filters
    that fill no block; other dtypes than float32; numpy's shape semantics, where x may be empty; a node that
    a rule of the user's picks; targets that do not name the pass; the bodies of control flow. The softmax may
    be a graph output, for its name stays.

    Notes
    -----
    Why: oneDNN takes what it reads in the order in which it lies, and for blocks of channels it has no kernel
    but along channels: values are looked up one by one. Two sequences of 384 channels and 120 places behind a
    layer take 5.6 ms, as in a network that pools by attention, and 0.11 in plain order, what brings them
    there included; 64 channels of 56 x 56 17.3 and 0.47, with ``log_softmax`` 16.7 and 0.54 (Intel Xeon
    without AMX, float32, one thread).

    The same up to rounding, as kernels add up in other orders. Linear in nodes.
    """

    step = "plain_softmax"
    operators = frozenset({"log_softmax", "softmax"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Put a Reshape in front of one softmax."""
        graph, node = state.graph, state.graph.nodes[position]
        source = node.inputs[0]
        if (
            len(node.inputs) != 1
            or not _is_last(state, source, node.attrs.get("axis", str(_LAST)))
            or state.dtypes[position][0] is not DType.FLOAT32
            or not lies_in_layout(graph, source.node)
            or (graph.has_numpy_shapes and source.node not in state.never_empty)
        ):
            return None
        plain = put_reshape(edit, f"{node.name}_plain", source, before=position)
        edit.connect(Use(position, 0), plain)
        return "along places there is no kernel for blocks of channels"


def _is_last(state: State, entry: Entry, axis: str) -> bool:
    """Return whether an axis is certainly the last one."""
    axes, rank = integers(axis), state.axes(entry)
    return axes == (_LAST,) or (rank is not None and axes == (rank - 1,))
