"""Casts of the user's that a conversion leaves with nothing to do."""

from __future__ import annotations

from typing import Sequence

from mxamp.decisions import Plan
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph
from mxamp.ops import FACTS
from mxamp.passes.edit import GraphEdit
from mxamp.passes.planned import PlannedPass
from mxamp.passes.state import Done, State


class DropNeedlessCasts(PlannedPass):
    """Drop the user's casts whose readers may read what is cast, by what the plan makes of it.

    Before::

        x (bfloat16) -> Cast float32 -> amp_cast bfloat16 -> conv
        x (bfloat16) -> amp_cast bfloat16 -> tanh
        x (bfloat16) -> sum, which gets a cast up -> amp_cast float32 -> tanh

    After::

        x (bfloat16) -> conv
        x (bfloat16) -> tanh
        x (bfloat16) -> sum -> tanh

    Refuses: an output, for it has its name; a cast that another node waits for; where a reader takes another
    dtype than x has; casts from and to anything but x's dtype and float32.

    Notes
    -----
    Widening loses nothing, so the way back gives x again. :class:`mxamp.passes.DropNoOps` cannot see it, for
    x is low by the plan alone; it would when the result is converted again, which must change nothing.
    Bit-exact. Linear in nodes and inputs.
    """

    step = "drop_no_ops"

    def run(self, state: State) -> Done | None:
        """Return the graph without such casts."""
        needless = _needless_casts(state.graph, self.plan(state))
        if not needless:
            return None
        edit = GraphEdit(state.graph, state.params)
        for position in needless:
            edit.drop(position, state.graph.nodes[position].inputs[0])
        return Done(edit.finish(), decisions={})


def _needless_casts(graph: Graph, plan: Plan) -> Sequence[int]:
    kept = {head.node for head in graph.heads}
    for node in graph.nodes:
        kept.update(node.control_deps)
    found: dict[int, int] = {}  # and the node that is read instead
    for position, (node, decision) in enumerate(zip(graph.nodes, plan.decisions)):
        if not FACTS.is_cast(node.op):
            continue
        if decision is None or len(node.inputs) != 1 or position in kept:
            continue
        source = node.inputs[0]
        cast = found.get(source.node, source.node)
        made = plan.decisions[cast]
        if made is None or source.output:
            continue
        dtype, own = made.outputs[0], decision.outputs[0]
        if dtype is None or own not in (dtype, DType.FLOAT32):
            continue
        # That something is float32 may be an assumption about an input, but not behind a cast up.
        if not dtype.is_low_precision and not (dtype is DType.FLOAT32 and _is_cast_up(graph, plan, cast)):
            continue
        if decision.inputs[0] not in (None, dtype):
            continue
        wanted = set()
        for use in graph.uses_of(Entry(position)):
            reader = plan.decisions[use.node]
            need = None if reader is None else reader.inputs[use.input]
            wanted.add(own if need is None else need)
        if wanted == {dtype}:
            found[position] = cast
    return list(found)


def _is_cast_up(graph: Graph, plan: Plan, position: int) -> bool:
    """Return whether a node reads low precision through a cast to float32, so that it hands on float32."""
    node, decision = graph.nodes[position], plan.decisions[position]
    facts = FACTS.of(node.op, node.attrs)
    if facts is None or decision is None:
        return False
    for number, (entry, need) in enumerate(zip(node.inputs, decision.inputs)):
        if need is not DType.FLOAT32 or not facts.role(number, node.attrs).shares_dtype:
            continue
        source, made = graph.nodes[entry.node], plan.decisions[entry.node]
        handed = plan.variables_after.get(source.name) if made is None else made.outputs[entry.output]
        if handed is not None and handed.is_low_precision:
            return True
    return False
