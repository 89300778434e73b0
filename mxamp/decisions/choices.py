"""Which nodes have a choice of precision, and why the others that could be low have none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import AbstractSet, Mapping, Sequence

from mxamp.decisions.inputs import DecisionInputs
from mxamp.decisions.low_precision import WHY_NONE, LowPrecision
from mxamp.dtypes import DType
from mxamp.ops.casts import CAST
from mxamp.policy.color import Color, Verdict
from mxamp.policy.context import ColoringContext
from mxamp.targets import fusion_groups, overrunning, read_volumes


@dataclass(frozen=True)
class Choices:
    """What a placement chooses from.

    Attributes
    ----------
    low
        The nodes that are low whatever that costs.
    free
        The nodes that may be low or FP32.
    refusals
        Node -> why it stays FP32, for nodes that policy and dtypes let be low.
    groups
        The chains that the backend fuses: what is in one shares a precision.
    """

    low: frozenset[int]
    free: frozenset[int]
    refusals: Mapping[int, str]
    groups: Sequence[tuple[int, ...]]

    @property
    def nodes(self) -> frozenset[int]:
        """The nodes that may be low, those that must be included."""
        return self.low | self.free

    def opened(self) -> Choices:
        """Return the same where nothing is low whatever it costs."""
        return replace(self, low=frozenset(), free=self.nodes)

    def refused(self, nodes: AbstractSet[int], why: str) -> Choices:
        """Return the same without the choice about nodes, which stay FP32.

        A chain that has lost a node stays one unit, so all of it is FP32.
        """
        left = self.nodes - nodes
        return Choices(
            low=self.low - nodes,
            free=self.free - nodes,
            refusals={**self.refusals, **dict.fromkeys(nodes, why)},
            groups=[chain for chain in self.groups if not left.isdisjoint(chain)],
        )


def find_choices(
    given: DecisionInputs,
    context: ColoringContext,
    verdicts: Sequence[Verdict],
    data_dtypes: Sequence[DType | None],
    too_large: Mapping[int, str],
) -> Choices:
    """Return the choices that policy and target leave: GREEN nodes are low, GRAY ones free.

    Parameters
    ----------
    given
        The graph and the target.
    context
        What the policy knew of the graph.
    verdicts
        The color of every node.
    data_dtypes
        What every node computes in before conversion.
    too_large
        Node -> the parameter that it would have stored a second time, though the model grows by that.
    """
    graph, target = given.graph, given.target
    could_be_low: set[int] = set()
    refusals: dict[int, str] = {}
    volumes = read_volumes(graph, context.names)
    kept = {**given.kept, **overrunning(graph, context.names, given.shapes, target)}
    for position, (node, facts) in enumerate(zip(graph.nodes, context.facts)):
        if facts is None or data_dtypes[position] is not DType.FLOAT32:
            continue
        if facts.name == CAST or verdicts[position].color is Color.RED:
            continue
        if given.low_precision is LowPrecision.NONE:
            refusals[position] = WHY_NONE
            continue
        if node.name in kept:
            refusals[position] = kept[node.name]
            continue
        if position in too_large:
            refusals[position] = (
                f"it shares {too_large[position]!r} with a float32 node, and a second copy would make the "
                "model larger than it was"
            )
            continue
        could_be_low.add(position)
        refusal = target.refusal(facts.name, node.attrs, volume=position in volumes)
        if refusal is not None:
            refusals[position] = refusal
    groups = []
    for chain in fusion_groups(graph, context.names, target, among=could_be_low):
        if chain[0] in refusals:  # a fused chain is one unit if its head can run low
            continue
        groups.append(chain)
        for position in chain:
            refusals.pop(position, None)
    choices = could_be_low - refusals.keys()
    green = frozenset(position for position in choices if verdicts[position].color is Color.GREEN)
    return Choices(green, frozenset(choices) - green, refusals, groups)
