"""Keep MXNet's fusion from losing a value because of what folding and casts make of the graph."""

from __future__ import annotations

from typing import AbstractSet

from mxamp.graph.graph import Use
from mxamp.passes.edit import GraphEdit
from mxamp.passes.insert_casts import OnTrial
from mxamp.passes.keep_branches import handing_on, read_through_reshape
from mxamp.passes.state import Done, State


class KeepPlannedBranches(OnTrial):
    """Put a Reshape to the same shape where MXNet's oneDNN fusion is right in FP32, and would be wrong now.

    Before::

        y = FullyConnected(x);  z = elemwise_mul(y, Activation(y))                  x * sigmoid(x), z in FP32
        y = FullyConnected(x);  z = elemwise_mul(cast(y), cast(Activation(y)))      with casts: z is cast(y)^2

    After::

        y = FullyConnected(x);  z = elemwise_mul(cast(y), cast(Activation(Reshape(y) {shape: (-2,)})))

    Also where a BatchNorm was folded into a Convolution, and what follows is one that is fused wrongly.

    Refuses: what was lost before anything was planned, for which :class:`mxamp.passes.KeepBranches` is;
    backends without oneDNN.

    Notes
    -----
    Why: behind a FullyConnected the backend sees no other readers once an activation is taken, and it takes
    one that it visits last (:mod:`mxamp.targets.fusion_defect`). The product comes last, but a cast of what
    it reads first comes before the activation.

    Casts are put in on trial where a FullyConnected is read several times, and nowhere else. Bit-exact;
    linear as :class:`mxamp.passes.InsertCasts`.
    """

    step = "keep_branches"

    def run(self, state: State) -> Done | None:
        """Return the graph of which fusion loses nothing that it did not lose before."""
        decided = state.decided
        assert decided is not None  # there is a plan
        lost = self._lost(state)
        if not lost:
            return None
        before = {(branch.value, branch.fused) for branch in decided.lost_branches}
        since = state.since_plan
        new = sorted(pair for pair in lost if (since.back(pair[0]), since.back(pair[1])) not in before)
        edit, decisions = GraphEdit(state.graph, state.params), {}
        for value, fused in new:
            for kept, number in read_through_reshape(edit, state, value, fused).items():
                decisions[kept.node] = handing_on(state, self.plan(state), Use(fused, number))
        if not decisions:
            return None
        reason = "reads it through a Reshape, so that MXNet's fusion does not lose what else reads {!r}"
        records = [
            self.changed(state, fused, reason.format(state.graph.nodes[value].name)) for value, fused in new
        ]
        return Done(edit.finish(), tuple(records), decisions)

    def _lost(self, state: State) -> AbstractSet[tuple[int, int]]:
        """Return which values fusion loses, with what takes them: behind casts, where these may matter."""
        backend = state.target.backend
        if backend.order_of_readers_matters(state.graph):
            graph, nodes, _ = self.with_casts(state)
            branches = backend.lost_branches(graph)
            return {(nodes.back(branch.value), nodes.back(branch.fused)) for branch in branches}
        return {(branch.value, branch.fused) for branch in state.lost_branches}
