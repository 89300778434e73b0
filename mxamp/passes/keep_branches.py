"""Keep MXNet's fusion from losing a value that is still read."""

from __future__ import annotations

from mxamp.graph.graph import Graph, Node
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State


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
        behind = state.target.backend.handed_on(graph)
        changes = []
        for position, branch in sorted(lost.items()):
            node, name, through = graph.nodes[position], graph.nodes[branch.value].name, ""
            # It may be read twice, as in x * x, or through what the backend deletes.
            read = {entry for entry in node.inputs if behind.get(entry, entry) == (branch.value, 0)}
            for source in sorted(read):
                reshape = Node("Reshape", f"{name}_kept", {"shape": "(-2,)"}, (source,))
                kept = edit.insert(reshape, before=position, origin=source.node)
                for use in graph.uses_of(source):
                    if use.node == position:
                        edit.connect(use, kept)
                through = through or edit.node(kept).name
            reason = f"reads {name!r} through {through!r}, so that MXNet's fusion does not lose it"
            changes.append(self.changed(node, reason))
        return Done(edit.finish(), tuple(changes))
