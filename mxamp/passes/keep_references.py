"""Keep MXNet from giving away the memory of a tensor of which only the shape is still read."""

from __future__ import annotations

from mxamp.decisions import Decision
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Use
from mxamp.ops import FACTS, InputRole
from mxamp.passes.edit import GraphEdit
from mxamp.passes.insert_casts import OnTrial
from mxamp.passes.keep_branches import handing_on, put_reshape
from mxamp.passes.state import Done, State
from mxamp.targets.memory_defect import Memory


class KeepReferences(OnTrial):
    """Let operators that read the shape of a tensor alone read one that MXNet still keeps.

    Before::

        y = reshape_like(rows, x)         x in bfloat16, and every other node reads it in float32

    After::

        y = reshape_like(rows, amp_cast(x))       the cast that the others read, where that is kept
        y = reshape_like(rows, Reshape(x) {shape: (-2,)})                             elsewhere

    Refuses: references that MXNet keeps as it is; the bodies of control flow; backends without oneDNN.

    Notes
    -----
    Why: MXNet does not count such readers, and where another tensor in oneDNN's order lies in that memory
    when they run, it raises (:mod:`mxamp.targets.memory_defect`). A multi-scale DenseNet whose Concats are
    put together as rows, and brought back by ``reshape_like``, ran in float32 and not in bfloat16.

    Casts are put in on trial where there are such readers, and nowhere else. Bit-exact; linear as
    :class:`mxamp.passes.InsertCasts`.
    """

    step = "keep_references"

    def run(self, state: State) -> Done | None:
        """Return the graph in which every reference is kept until its shape is read."""
        uses = state.target.backend.uncounted_references(state.graph)
        if not uses:
            return None
        graph, nodes, inserted = self.with_casts(state)
        memory = Memory(graph)
        edit, decisions, records = GraphEdit(state.graph, state.params), {}, []
        for use in uses:
            reader = nodes.forward(use.node)
            assert reader is not None  # casts take no node away
            if not memory.may_be_lost(graph.nodes[reader].inputs[use.input], reader):
                continue
            reference = state.graph.nodes[use.node].inputs[use.input]
            casts = [cast for cast in inserted.casts if cast.origin == reference]
            kept = [cast for cast in casts if not memory.may_be_lost(Entry(cast.node), reader)]
            if kept and self._takes_any_dtype(state, use):
                decisions[use.node] = self._reading(state, use, kept[0].dtype)
            else:
                name = f"{state.graph.nodes[reference.node].name}_kept"
                put = put_reshape(edit, name, reference, before=use.node)
                edit.connect(use, put)
                decisions[put.node] = handing_on(state, self.plan(state), use)
            reason = (
                "reads the shape of what MXNet keeps until then, since it gives away the memory of "
                f"{state.graph.describe(reference)!r}"
            )
            records.append(self.changed(state, use.node, reason))
        return Done(edit.finish(), tuple(records), decisions) if records else None

    def _takes_any_dtype(self, state: State, use: Use) -> bool:
        node = state.graph.nodes[use.node]
        facts = FACTS.of(node.op, node.attrs)
        return facts is not None and facts.role(use.input, node.attrs) is InputRole.LIKE

    def _reading(self, state: State, use: Use, dtype: DType) -> Decision:
        """Return the decision for a node that reads one input in a certain dtype."""
        decision = self.plan(state).decisions[use.node]
        assert decision is not None  # it is an operator
        inputs = [*decision.inputs]
        inputs[use.input] = dtype
        return decision._replace(inputs=tuple(inputs))
