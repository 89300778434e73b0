"""Keep MXNet's fusion from losing a value that is still read."""

from __future__ import annotations

from mxamp.graph.builder import GraphBuilder
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.passes.prepare import PreparationPass, PreparedNode, Surroundings
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

    Also where y is a graph output. What is found is in :mod:`mxamp.targets.fusion_defect`.

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

    def rewrite(self, graph: Graph, around: Surroundings) -> Graph:
        """Return the graph that is computed as it is written."""
        lost = {branch.fused: branch for branch in lost_branches(graph)}
        if not lost:
            return graph
        builder = GraphBuilder([*(node.name for node in graph.nodes), *self._params])
        places: list[int] = []
        origins: list[int] = []
        changes = []
        for position, node in enumerate(graph.nodes):
            inputs = [Entry(places[producer], index) for producer, index in node.inputs]
            branch = lost.get(position)
            if branch is not None:
                value = graph.nodes[branch.value]
                name = builder.free_name(f"{value.name}_kept")
                kept = builder.add(Node("Reshape", name, {"shape": "(-2,)"}, (Entry(places[branch.value]),)))
                origins.append(branch.value)
                # The value may be read twice by it, as in x * x.
                inputs = [
                    Entry(kept) if before == (branch.value, 0) else entry
                    for before, entry in zip(node.inputs, inputs)
                ]
                reason = f"reads {value.name!r} through {name!r}, so that MXNet's fusion does not lose it"
                changes.append(PreparedNode(node.name, node.op, self.step, node.name, reason))
            deps = tuple([places[dep] for dep in node.control_deps])
            places.append(builder.add(node.reading(tuple(inputs), deps)))
            origins.append(position)
        self.positions, self.changes = origins, tuple(changes)
        heads = [Entry(places[head.node], head.output) for head in graph.heads]
        return builder.build(heads, graph.attrs, graph.head_versions)
