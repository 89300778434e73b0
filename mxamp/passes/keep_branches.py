"""Keep MXNet's fusion from losing a value that is still read."""

from __future__ import annotations

from typing import Mapping

from mxamp.decisions import Decision, Plan
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node, Use
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State
from mxamp.targets import Support


class KeepBranches(PreparationPass):
    """Put a Reshape to the same shape where MXNet's oneDNN fusion would be wrong.

    Before::

        y = Convolution(x)
        z = elemwise_add(f(Activation(y)), y)      MXNet fuses y with the activation, and adds the wrong one

    After::

        y = Convolution(x)
        r = Reshape(y) {shape: (-2,)}
        z = elemwise_add(f(Activation(r)), y)

    Also where y is a graph output, and where it is the data of a BatchNorm whose mean or variance is read, or
    that normalizes another axis than that of the channels: the backend fuses that, too. What is found is in
    :mod:`mxamp.targets.fusion_defect`.

    Refuses: what is no such place; the bodies of control flow, which are not fused. Runs for targets that are
    CPUs alone.

    Notes
    -----
    Why: what y or the activation hands on would be the other's value, in float32 and in bfloat16. A Reshape
    is no operator that the backend fuses, so y has a second reader that it sees, and it ends the chain at y.
    The price is y read and written once. The user's float32 model stays wrong, so there is a warning.

    Bit-exact. Linear as :func:`mxamp.targets.fusion_defect.lost_branches`.
    """

    step = "keep_branches"
    device = "cpu"
    keeps_branches = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph that is computed as it is written."""
        lost = {branch.fused: branch for branch in state.lost_branches}
        if not lost:
            return None
        edit = GraphEdit(graph, state.params)
        changes = []
        for position, branch in sorted(lost.items()):
            node, name = graph.nodes[position], graph.nodes[branch.value].name
            kept = next(iter(read_through_reshape(edit, state, branch.value, position)))
            through = edit.node(kept).name
            reason = f"reads {name!r} through {through!r}, so that MXNet's fusion does not lose it"
            changes.append(self.changed(node, reason))
        return Done(edit.finish(), tuple(changes))


def read_through_reshape(edit: GraphEdit, state: State, value: int, reader: int) -> Mapping[Entry, int]:
    """Let a node read a value through a Reshape to the same shape, wherever it reads it.

    Parameters
    ----------
    edit
        Changes to the state's graph.
    state
        The model.
    value, reader
        The node whose first output is read, and the one that reads it: perhaps several times, as in x * x,
        and perhaps through what the backend deletes.

    Returns
    -------
    mapping of Entry to int
        What was put in -> the first input that reads it.
    """
    behind = state.handed_on
    inputs, name = state.graph.nodes[reader].inputs, state.graph.nodes[value].name
    found = {}
    for source in sorted({entry for entry in inputs if behind.get(entry, entry) == (value, 0)}):
        kept = put_reshape(edit, f"{name}_kept", source, before=reader)
        numbers = [number for number, entry in enumerate(inputs) if entry == source]
        for number in numbers:
            edit.connect(Use(reader, number), kept)
        found[kept] = numbers[0]
    return found


def put_reshape(edit: GraphEdit, name: str, source: Entry, *, before: int) -> Entry:
    """Put in a Reshape of an entry to the shape that it has, in front of a node, and return it."""
    reshape = Node("Reshape", name, {"shape": "(-2,)"}, (source,))
    return edit.insert(reshape, before=before, origin=source.node)


def handing_on(state: State, plan: Plan, use: Use) -> Decision:
    """Return the decision for a Reshape that hands on what a node reads, in the dtype it is read in."""
    decision, entry = plan.decisions[use.node], state.graph.nodes[use.node].inputs[use.input]
    assert decision is not None  # it is an operator
    dtype, made = decision.inputs[use.input], plan.decisions[entry.node]
    if dtype is None and made is not None:  # any will do: its own
        dtype = made.outputs[entry.output]
    if dtype is not None and dtype.is_low_precision:
        works = state.target.support("Reshape", {}).support is Support.WORKS
        dtype = dtype if works else DType.FLOAT32
    return decision._replace(
        compute=dtype, inputs=(dtype,), outputs=(dtype,), attrs=(), bodies=(), of_operator=False
    )
