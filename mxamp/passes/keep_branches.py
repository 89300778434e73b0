"""Keep MXNet's fusion from losing a value that is still read."""

from __future__ import annotations

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.passes.edit import GraphEdit
from mxamp.passes.prepare import PreparationPass, Prepared, PreparedNode, Surroundings
from mxamp.targets.fusion_defect import lost_branches

__all__ = ["KeepBranches"]


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

    def rewrite(self, graph: Graph, around: Surroundings) -> Prepared | None:
        """Return the graph that is computed as it is written."""
        lost = {branch.fused: branch for branch in lost_branches(graph)}
        if not lost:
            return None
        edit = GraphEdit(graph, around.params)
        changes = []
        for position, node in enumerate(graph.nodes):
            branch = lost.get(position)
            if branch is None:
                edit.keep(node)
                continue
            value = graph.nodes[branch.value]
            source = edit.entry(Entry(branch.value))
            reshape = Node("Reshape", f"{value.name}_kept", {"shape": "(-2,)"}, (source,))
            kept = edit.insert(reshape, origin=branch.value)
            # The value may be read twice by it, as in x * x.
            inputs = [kept if entry == (branch.value, 0) else edit.entry(entry) for entry in node.inputs]
            edit.replace(node._replace(inputs=tuple(inputs)))
            name = edit.node(kept).name
            reason = f"reads {value.name!r} through {name!r}, so that MXNet's fusion does not lose it"
            changes.append(PreparedNode(node.name, node.op, self.step, node.name, reason))
        return Prepared(edit.finish(), tuple(changes))
