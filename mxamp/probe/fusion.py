"""Fusion: what the backend swallowed of the chains, against what the target's patterns say.

The patterns are read from MXNet's source, since no number of chains could tell a whole rule. The chains test
them: a pattern stays in the result if everything that it predicts of any chain was swallowed, and the target
says what was swallowed besides.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from mxamp.dtypes import DType
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.probe.case import Case, Dims, Ref
from mxamp.probe.jobs import CHECK, Unit
from mxamp.probe.judge import Outcome
from mxamp.probe.workers import Answer
from mxamp.targets import FusionPattern, Support, Target, fusion_groups

Groups = Sequence[Sequence[int]]


class FusionFindings(NamedTuple):
    """What the chains say of the patterns.

    Attributes
    ----------
    confirmed
        Numbers of the patterns of which everything that they predict was swallowed.
    refuted
        Number of a pattern -> the chain that was not swallowed as it says, or came out wrong; "" where no
        chain tests it.
    beyond
        Chains of which more was swallowed than the confirmed patterns predict.
    differing
        Chains that are swallowed differently in float32 and in the low dtype.
    """

    confirmed: Sequence[int]
    refuted: Mapping[int, str]
    beyond: Sequence[str]
    differing: Sequence[str]


def check_patterns(
    cases: Mapping[str, Case],
    answers: Mapping[Unit, Answer],
    patterns: Sequence[FusionPattern],
    *,
    must_be_right: bool,
) -> FusionFindings:
    """Hold patterns against what was swallowed.

    Parameters
    ----------
    cases, answers
        All cases, and what came of them.
    patterns
        The patterns.
    must_be_right
        Whether a chain's result counts too: the patterns let operators run low that would not alone.
    """
    chains = [
        (case, checks)
        for case in cases.values()
        if case.fused
        for checks in [_checks(answers.get(Unit(case.name, CHECK)))]
        if checks
    ]
    confirmed: list[int] = []
    refuted: dict[int, str] = {}
    for number, pattern in enumerate(patterns):
        tested = [
            (case, checks, groups)
            for case, checks in chains
            for groups in [predicted_groups(case, (pattern,))]
            if groups
        ]
        failing = [
            case.name
            for case, checks, groups in tested
            if not all(_swallowed(group, check) for group in groups for check in checks)
            or (must_be_right and not all(_is_right(case, check) for check in checks))
        ]
        if tested and not failing:
            confirmed.append(number)
        else:
            refuted[number] = failing[0] if failing else ""
    kept = [patterns[number] for number in confirmed]
    beyond, differing = [], []
    for case, checks in chains:
        groups = predicted_groups(case, kept)
        found = [group for check in checks for group in check.get("swallowed_low", ())]
        if any(not _is_within(group, groups) for group in found):
            beyond.append(case.name)
        if any(check.get("swallowed_low") != check.get("swallowed_float32") for check in checks):
            differing.append(case.name)
    return FusionFindings(confirmed, refuted, beyond, differing)


def _checks(answer: Answer | None) -> Sequence[Mapping[str, Any]]:
    """Return the checks that say something of fusion: not those that raised, for some operator in them."""
    return [] if answer is None else [check for check in answer.jobs if "swallowed_low" in check]


def _swallowed(group: Sequence[int], check: Mapping[str, Any]) -> bool:
    return any(set(group) <= set(found) for found in check.get("swallowed_low", ()))


def _is_within(group: Sequence[int], groups: Groups) -> bool:
    return any(set(group) <= set(known) for known in groups)


def _is_right(case: Case, check: Mapping[str, Any]) -> bool:
    """Whether a chain is right; the weights that a fused BatchNorm scales are truncated, which is known."""
    has_norm = any(one.op == "BatchNorm" for one in case.steps)
    limit = Outcome.BIASED if has_norm else Outcome.INEXACT
    return Outcome(check["outcome"]).rank <= limit.rank


def predicted_groups(case: Case, patterns: Sequence[FusionPattern]) -> Groups:
    """Return the steps of a chain that patterns say are run as one, first to last."""
    graph, names, places = chain_graph(case)
    found = fusion_groups(graph, names, _NO_TARGET, patterns=list(patterns))
    return [[places[position] for position in group] for group in found]


_NO_TARGET = Target("chains", DType.BFLOAT16, "cpu", "", {}, Support.UNMEASURED)
"""Patterns are given, so nothing is asked of it."""


def chain_graph(case: Case) -> tuple[Graph, list[str], dict[int, int]]:
    """Return a case as a graph, the canonical operator names, and node -> step."""
    dims = case.check[0]
    nodes: list[Node] = []
    places: dict[int, int] = {}

    def variable() -> Entry:
        nodes.append(Node(VARIABLE, f"in{len(nodes)}"))
        return Entry(len(nodes) - 1)

    flow = [variable()]
    for number, one in enumerate(case.steps):
        inputs = [flow[-1]]
        inputs += [flow[part.step] if isinstance(part, Ref) else variable() for part in one.inputs]
        attrs = {key: str(_value(value, dims)) for key, value in one.attrs.items()}
        nodes.append(Node(one.op, f"step{number}", attrs, tuple(inputs)))
        places[len(nodes) - 1] = number
        flow.append(Entry(len(nodes) - 1))
    heads = (flow[-1], *(flow[index] for index in case.extra_heads))
    graph = Graph(tuple(nodes), heads)
    return graph, [FACTS.canonical(node.op) for node in nodes], places


def _value(value: Any, dims: Dims) -> Any:
    return value(dims) if callable(value) else value
