"""Fusion groups: chains of nodes that the backend runs as one kernel.

Inside a group the tail is free: its values never leave the registers at low precision, so an operator that
is slow or biased on its own may belong to a low group.
"""

from __future__ import annotations

from typing import AbstractSet, Mapping, Sequence

from mxamp.graph.graph import Entry, Graph, Use
from mxamp.ops.parameters import FOLDED
from mxamp.targets.parts import FusionPattern, FusionStep
from mxamp.targets.target import Target


def fusion_groups(
    graph: Graph,
    names: Sequence[str],
    target: Target,
    *,
    among: AbstractSet[int] | None = None,
    patterns: Sequence[FusionPattern] | None = None,
) -> Sequence[tuple[int, ...]]:
    """Return the longest chains that the target's patterns match; no node is in two.

    Parameters
    ----------
    graph
        The graph.
    names
        The canonical operator name of every node.
    target
        Whose patterns.
    among
        The nodes that may be in a chain; None for all. A chain ends before a node that is not among them, as
        the backend's does at the cast that will stand there.
    patterns
        The patterns to match; by default ``target.fusion``.

    Notes
    -----
    A link is followed only where the next node is the one reader of the entry and the entry is not a
    graph output: otherwise the backend must keep the value, and does not fuse.
    """
    patterns = target.fusion if patterns is None else patterns
    if not patterns:
        return ()
    beginning: dict[str, list[FusionPattern]] = {}
    for pattern in patterns:
        for op in dict.fromkeys(pattern.steps[0].operators):
            beginning.setdefault(op, []).append(pattern)
    heads = set(graph.heads)
    taken: set[int] = set()
    groups = []
    for position, node in enumerate(graph.nodes):
        if node.is_variable or position in taken or (among is not None and position not in among):
            continue
        best: list[int] = []
        for pattern in beginning.get(names[position], ()):
            if pattern.steps[0].accepts(names[position], node.attrs):
                chain = _match(graph, names, heads, pattern, position, among, taken)
                if len(chain) > len(best):
                    best = chain
        if len(best) > 1:
            taken.update(best)
            groups.append(tuple(best))
    return groups


def folded_patterns(target: Target) -> tuple[FusionPattern, ...]:
    """Return chains that run as one because a conversion folds a BatchNorm in them into the layer before it.

    Those are a layer and a BatchNorm, and what the backend fuses behind the layer once that is gone.

    Parameters
    ----------
    target
        The target. There are none where the backend fuses nothing by itself: what it runs as it stands is
        left as it stands in FP32.
    """
    if not target.rounds_once:
        return ()
    norm = FusionStep(tuple(FOLDED))
    behind = [
        FusionPattern((pattern.steps[0], norm, *pattern.steps[1:]))
        for pattern in (*target.rounds_once, *target.fusion)
        if not _has_norm(pattern) and not set(target.fold_into).isdisjoint(pattern.steps[0].operators)
    ]
    return (FusionPattern((FusionStep(target.fold_into), norm)), *behind)


def fuses_batch_norm(target: Target, op: str, attrs: Mapping[str, str]) -> bool:
    """Return whether the backend itself runs a layer and a BatchNorm behind it as one kernel.

    Parameters
    ----------
    target
        The target.
    op, attrs
        The layer's canonical operator name, and its attributes.
    """
    return any(
        pattern.steps[0].accepts(op, attrs) and _has_norm(pattern)
        for pattern in (*target.rounds_once, *target.fusion)
    )


def _has_norm(pattern: FusionPattern) -> bool:
    return any(not FOLDED.isdisjoint(step.operators) for step in pattern.steps)


def _match(
    graph: Graph,
    names: Sequence[str],
    heads: set[Entry],
    pattern: FusionPattern,
    start: int,
    among: AbstractSet[int] | None,
    taken: AbstractSet[int],
) -> list[int]:
    chain = [start]
    use = _only_reader(graph, heads, start)
    for step in pattern.steps[1:]:
        if use is not None and (use.node in taken or (among is not None and use.node not in among)):
            use = None  # the sum of two convolutions is fused behind one; the other's chain ends before it
        if (
            use is not None
            and (use.input == 0 or step.any_input)
            and step.accepts(names[use.node], graph.nodes[use.node].attrs)
        ):
            chain.append(use.node)
            use = _only_reader(graph, heads, use.node)
        elif not step.optional:
            return []
    return chain


def _only_reader(graph: Graph, heads: set[Entry], position: int) -> Use | None:
    """Return the one place where output 0 is read, if nothing else reads the node at all."""
    uses = graph.uses[position]
    if len(uses) != 1 or 0 not in uses or len(uses[0]) != 1 or (position, 0) in heads:
        return None
    return uses[0][0]
