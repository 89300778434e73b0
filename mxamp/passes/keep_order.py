"""Bring values into plain order where MXNet would take them for such."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node, Use
from mxamp.passes.edit import GraphEdit
from mxamp.passes.keep_branches import handing_on
from mxamp.passes.planned import PlannedPass
from mxamp.passes.state import Done, State


class KeepOrder(PlannedPass):
    """Copy what lies in oneDNN's order where another shape of it is said, and misread behind that.

    Before::

        Convolution (volumes) -> Reshape {shape: (0, 0, -1)} -> transpose            raises

    After::

        Convolution -> slice_axis {axis: 1, begin: 0, end: None} -> Reshape {shape: (0, 0, -1)} -> transpose

    And before an RNN, which raises where it finds blocks, those of a sequence among them.

    Refuses: what is no such place (:mod:`mxamp.targets.order_defect`); what is low, for casts bring it into
    plain order; the bodies of control flow; backends without oneDNN.

    Notes
    -----
    Why: a slice of the whole axis writes plain order. What reads the Reshape would be wrong otherwise, or
    raise, whether the graph was so before or passes made it so: where BatchNorm is folded, a layer stands
    where something wrote plain values. The copy takes the time that reading blocks does anyway.

    Bit-exact. Linear as :func:`mxamp.targets.order_defect.misread_orders`.
    """

    step = "keep_order"

    def run(self, state: State) -> Done | None:
        """Return the graph that is computed as it is written."""
        plan = self.plan(state)

        def is_cast(position: int) -> bool:
            decision = plan.decisions[position]
            outputs = () if decision is None else decision.outputs[:1]
            return any(dtype is not None and dtype is not DType.FLOAT32 for dtype in outputs)

        graph = state.graph
        misread = [at for at in state.target.backend.misread_orders(graph, is_cast) if not is_cast(at)]
        if not misread:
            return None
        edit, decisions = GraphEdit(graph, state.params), {}
        copies: dict[Entry, Entry] = {}
        for position in misread:
            source, use = graph.nodes[position].inputs[0], Use(position, 0)
            if source not in copies:
                name = f"{graph.nodes[source.node].name}_plain"
                copy = Node("slice_axis", name, {"axis": "1", "begin": "0", "end": "None"}, (source,))
                copies[source] = edit.insert(copy, before=position, origin=source.node)
                decisions[copies[source].node] = handing_on(state, plan, use)
            edit.connect(use, copies[source])
        reason = "reads a copy in plain order, since MXNet misreads blocks of channels here"
        return Done(edit.finish(), tuple([self.changed(state, at, reason) for at in misread]), decisions)
