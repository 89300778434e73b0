"""Write sigmoid and tanh in the form that backends run fast and fuse."""

from __future__ import annotations

import math

from mxamp.dtypes import DType
from mxamp.ops import FACTS
from mxamp.ops.parameters import LAYERS
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State

_FEWEST_VALUES = {"sigmoid": 1 << 8, "tanh": 1 << 7}
"""Of fewer values the operator takes less time than calling oneDNN does."""

_ROWS = 2
"""Axes of a recurrent cell's gates; how many values images and boxes have, the shapes of a call decide."""


class RewriteActivations(NodeRewrite):
    """Replace the operators ``sigmoid`` and ``tanh`` by ``Activation``.

    Before::

        x -> sigmoid -> y

    After::

        x -> Activation {act_type: sigmoid} -> y

    Refuses: rows of fewer than 2^8 values (tanh: 2^7) that no layer wrote, since only behind a layer it is a
    part of that; other dtypes than float32; inputs that may be empty, for which oneDNN's kernels raise
    (:mod:`mxamp.passes.never_empty`); a node that a rule of the user's picks; targets that do not name the
    pass; the bodies of control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: ``Activation`` is oneDNN's and reads blocks of channels. The operators are loops that call the C
    library for each value, on plain tensors, so that what reads them next gets a plain tensor, too: CenterNet
    looks for peaks by a max Pooling behind a sigmoid, which takes 16 ms of its 154 in bfloat16 on a plain
    tensor, and a hundredth of that on blocks.

    A call of oneDNN's takes 1.2 us, however few the values, and the loops 3 to 6 ns a value: of 80 values, a
    gate of a small LSTM cell, 0.5 us (sigmoid) and 0.7 (tanh), and the two are alike at 330 and 180. An
    unrolled forecaster of 36 steps with two such cells takes 1.76 ms with the operators and 1.95 with
    Activation (AMD EPYC of family 26, float32, one thread).

    Numerical effect in float32, u = 2^-24, all magnitudes to 110 tried: sigmoid differs from the exact value
    by at most 1.5u, as the operator does (relative to the value 6.3u, the operator 2.4u), and may be 0 below
    2^-125; tanh by at most 1.3u relative to the value, where the operator has 2.5u. Infinities and NaN give
    the same, and the sign of a zero stays. Linear in nodes.
    """

    step = "activations"
    operators = frozenset(_FEWEST_VALUES)
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one activation."""
        node = state.graph.nodes[position]
        if (
            len(node.inputs) != 1
            or node.inputs[0].node not in state.never_empty
            or state.certain_dtypes[position][0] is not DType.FLOAT32
            or _is_small(state, position)
        ):
            return None
        attrs = {**node.attrs, "act_type": FACTS.canonical(node.op)}
        edit.replace(position, node._replace(op="Activation", attrs=attrs))
        return "Activation is what backends have a kernel for"


def _is_small(state: State, position: int) -> bool:
    """Return whether calling oneDNN takes longer than the values do, which no layer hands on in registers."""
    node = state.graph.nodes[position]
    shape = state.usual_shape(node.inputs[0])
    return (
        shape is not None
        and len(shape) == _ROWS
        and math.prod(shape) < _FEWEST_VALUES[FACTS.canonical(node.op)]
        and state.graph.nodes[node.inputs[0].node].op not in LAYERS
    )
