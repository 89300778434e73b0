"""Drop choices between two tensors of which it is known which one is taken."""

from __future__ import annotations

from typing import Mapping

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.passes.edit import GraphEdit
from mxamp.passes.left_unread import left_unread
from mxamp.passes.open_shapes import source_of_shape
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State

_TAKES: Mapping[str, int] = {"_ones": 1, "_zeros": 2, "ones_like": 1, "zeros_like": 2}
"""What a condition is -> which input is taken."""


class DropKnownChoices(PreparationPass):
    """Drop a choice whose condition is all ones, or all zeros: whoever read it reads what it takes.

    Before::

        where(ones_like(h), new, old) -> y

    After::

        new -> y

    What only such a choice read, its condition and what it does not take, goes as well.

    Refuses: a choice that is a graph output, whose name it has; other conditions; where one of its inputs
    takes its shape from the others, as the zeros of a first state do, or an input beside other inputs; where
    an input would have no reader any more; a node that a rule of the user's picks; the bodies of control
    flow.

    Notes
    -----
    Why: a ``ZoneoutCell`` that is run for inference, where its Dropout does nothing, chooses so in every
    step: an LSTNet of GluonTS has 492 of them, and a GPVAR, with 1,506, runs 1.07 of FP32 without (AMD EPYC
    of family 26, one thread).

    Bit-exact: ``where`` takes tensors of one shape and one dtype. Linear in nodes and inputs.
    """

    step = "known_choices"
    operators = frozenset({"where"})

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph without such choices."""
        edit, changes = GraphEdit(graph, state.params), []
        taken: dict[Entry, Entry] = {}
        into: dict[int, str] = {}
        for position, node in enumerate(graph.nodes):
            if node.op not in self.operators or position in state.heads or state.is_fixed(position):
                continue
            condition = graph.nodes[node.inputs[0].node]
            number = _TAKES.get(FACTS.canonical(condition.op))
            if number is None:
                continue
            entry = taken.get(node.inputs[number], node.inputs[number])
            if _tells_a_shape(state, node):
                continue
            taken[Entry(position)] = entry
            edit.drop(position, entry)
            into[position] = graph.nodes[entry.node].name
            reason = f"its condition is all {'ones' if number == 1 else 'zeros'}"
            changes.append(self.changed(node, reason, into=into[position]))
        if not taken:
            return None
        for position in left_unread(graph, state, taken, lambda node: not node.subgraphs):
            edit.drop(position)
            readers = (use.node for places in graph.uses[position].values() for use in places)
            into[position] = into[next(readers)]
            reason = "only a choice that is gone read it"
            changes.append(self.changed(graph.nodes[position], reason, into=into[position]))
        edited = edit.finish()
        if _read_variables(edited.graph) != _read_variables(graph):
            return None
        return Done(edited, tuple(changes))


def _read_variables(graph: Graph) -> frozenset[str]:
    return frozenset(graph.nodes[position].name for position in graph.input_order())


def _tells_a_shape(state: State, choice: Node) -> bool:
    """Return whether MXNet may infer the shape of an input of the choice from the others."""
    sources = {source_of_shape(state.graph, entry) for entry in choice.inputs}
    asked = [source for source in sources if source in state.left_open or _is_input(state, source)]
    return len(sources) > 1 and bool(asked)


def _is_input(state: State, position: int) -> bool:
    node = state.graph.nodes[position]
    return node.is_variable and node.name not in state.params
