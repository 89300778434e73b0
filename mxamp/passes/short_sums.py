"""Add where a sum has two terms."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass, own_attributes
from mxamp.passes.records import PreparedNode
from mxamp.passes.state import Done, State

_TERMS = 2
"""A sum of two is the same in any order, and rounded once; one of three is not."""


class RewriteShortSums(PreparationPass):
    """Replace the sum over an axis of length two, and ``add_n`` of two tensors, by an addition.

    Before::

        x -> Reshape {shape: (0, 2, 64, 0, 0)} [-> broadcast_mul] -> sum {axis: 1} -> y

    After::

        x -> Reshape [-> broadcast_mul] -> SliceChannel {num_outputs: 2, axis: 1, squeeze_axis: True}
          -> elemwise_add -> y

    ``add_n(a, b)`` becomes ``elemwise_add(a, b)``.

    Refuses: ``add_n`` of one tensor or more than two; a sum where the axis is not certainly of length two,
    which a Reshape with that number must say, or one for each factor of a product; several axes, ``keepdims``
    and ``exclude``; other dtypes than float32; a node that a rule of the user's picks; the bodies of control
    flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet's reduction walks a tensor in the order of its results, a stride at a time. Split attention
    (ResNeSt) has two of them in every block, which take half of the time in BF16. ``add_n`` runs in FP32
    alone, and the residual networks of the symbol API have one in every block: ``elemwise_add`` runs in both,
    and is fused with the layer before it.

    Bit-exact: a sum of two numbers is rounded once. Only two negative zeros, which a sum over an axis adds to
    a positive one, stay negative. Linear in nodes.
    """

    step = "short_sums"
    operators = frozenset({"sum", "sum_axis", "add_n", "ElementWiseSum"})

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with additions."""
        sums: dict[int, int | None] = {}  # the axis; None of add_n
        for position, node in enumerate(graph.nodes):
            if node.op not in self.operators or state.is_fixed(position):
                continue
            if FACTS.canonical(node.op) == "add_n":
                # oneDNN's addition raises where there is nothing to add.
                if (
                    len(node.inputs) == _TERMS
                    and state.dtypes[position][0] is DType.FLOAT32
                    and node.inputs[0].node in state.never_empty
                ):
                    sums[position] = None
            elif len(node.inputs) == 1:
                axis = _axis(node)
                if (
                    axis is not None
                    and state.dtypes[position][0] is DType.FLOAT32
                    and _has_two(graph, node.inputs[0], axis)
                ):
                    sums[position] = axis
        if not sums:
            return None
        edit = GraphEdit(graph, state.params)
        changes = []
        for position, axis in sums.items():
            node = graph.nodes[position]
            attrs = own_attributes(node)
            if axis is None:
                edit.replace(position, node._replace(op="elemwise_add", attrs=attrs))
                changes.append(self.changed(node, "has two terms"))
                continue
            halves = {"num_outputs": str(_TERMS), "axis": str(axis), "squeeze_axis": "True"}
            split = edit.insert(
                Node("SliceChannel", f"{node.name}_terms", halves, node.inputs, _TERMS), before=position
            )
            terms = tuple([Entry(split.node, number) for number in range(_TERMS)])
            edit.replace(position, node._replace(op="elemwise_add", attrs=attrs, inputs=terms))
            reason = "the axis is of length two: one addition"
            changes.append(PreparedNode(node.name, "sum", self.step, node.name, reason))
        return Done(edit.finish(), tuple(changes))


def _axis(node: Node) -> int | None:
    """Return the one axis, counted from the front, that a sum drops."""
    axes = integers(node.attrs.get("axis", "()"))
    if axes is None or len(axes) != 1 or axes[0] < 0:
        return None
    if is_true(node.attrs, "keepdims", default=False) or is_true(node.attrs, "exclude", default=False):
        return None
    return axes[0]


def _has_two(graph: Graph, entry: Entry, axis: int) -> bool:
    """Whether an axis is certainly of length two."""
    node = graph.nodes[entry.node]
    op = FACTS.canonical(node.op)
    if op == "broadcast_mul":
        # Both say how many axes they have, so that none is broadcast along an axis more.
        shapes = [_reshaped(graph.nodes[factor.node]) for factor in node.inputs]
        known = [shape for shape in shapes if shape is not None and axis < len(shape)]
        return (
            len(known) == len(node.inputs)
            and len({len(shape) for shape in known}) == 1 < len(known[0])
            and {shape[axis] for shape in known} in ({_TERMS}, {1, _TERMS})
        )
    shape = _reshaped(node)
    # The sum of a vector has one axis in MXNet's own shapes, and a term of it none.
    return shape is not None and axis < len(shape) > 1 and shape[axis] == _TERMS


def _reshaped(node: Node) -> tuple[int, ...] | None:
    """Return the shape that a Reshape asks for, where each of its numbers is one axis of the result."""
    if FACTS.canonical(node.op) != "Reshape" or is_true(node.attrs, "reverse", default=False):
        return None
    shape = integers(node.attrs.get("shape", ""))
    # -2 stands for any number of axes, -3 joins two, -4 splits one in two and is followed by their sizes.
    if not shape or any(size < -1 for size in shape):
        return None
    return shape
