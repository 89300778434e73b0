"""Write sigmoid and tanh in the form that backends run fast and fuse."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.ops import FACTS
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State

_KINDS = frozenset({"sigmoid", "tanh"})


class RewriteActivations(NodeRewrite):
    """Replace the operators ``sigmoid`` and ``tanh`` by ``Activation``.

    Before::

        x -> sigmoid -> y

    After::

        x -> Activation {act_type: sigmoid} -> y

    Refuses: other dtypes than float32; inputs that may be empty, for which oneDNN's kernels raise
    (:mod:`mxamp.passes.never_empty`); a node that a rule of the user's picks; targets that do not name the
    pass; the bodies of control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: ``Activation`` is oneDNN's and reads blocks of channels. The operators are loops that call the C
    library for each value, on plain tensors, so that what reads them next gets a plain tensor, too: CenterNet
    looks for peaks by a max Pooling behind a sigmoid, which takes 16 ms of its 154 in bfloat16 on a plain
    tensor, and a hundredth of that on blocks.

    Numerical effect in float32, u = 2^-24, all magnitudes to 110 tried: sigmoid differs from the exact value
    by at most 1.5u, as the operator does (relative to the value 6.3u, the operator 2.4u), and may be 0 below
    2^-125; tanh by at most 1.3u relative to the value, where the operator has 2.5u. Infinities and NaN give
    the same, and the sign of a zero stays. Linear in nodes.
    """

    step = "activations"
    operators = _KINDS
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one activation."""
        node = state.graph.nodes[position]
        if (
            len(node.inputs) != 1
            or node.inputs[0].node not in state.never_empty
            or state.certain_dtypes[position][0] is not DType.FLOAT32
        ):
            return None
        attrs = {**node.attrs, "act_type": FACTS.canonical(node.op)}
        edit.replace(position, node._replace(op="Activation", attrs=attrs))
        return "Activation is what backends have a kernel for"
