"""Prepare a graph: the passes that change no value, one after another, before anything is decided."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Mapping, Sequence, TypeVar

from mxamp.errors import PolicyError, nearest_names
from mxamp.graph.graph import Graph
from mxamp.params.parameter import Parameter
from mxamp.passes.base import Pipeline
from mxamp.passes.common_subexpressions import MergeCommonSubexpressions
from mxamp.passes.drop_no_ops import DropNoOps
from mxamp.passes.fold_padding import FoldPadding
from mxamp.passes.global_pooling import RewriteGlobalPooling
from mxamp.passes.hard_sigmoid import RewriteHardSigmoid
from mxamp.passes.keep_branches import KeepBranches
from mxamp.passes.prepare import PreparationPass, PreparedNode
from mxamp.passes.relu import RewriteRelu
from mxamp.passes.share_layout import ShareLayout
from mxamp.passes.short_sums import RewriteShortSums
from mxamp.policy.policy import Policy
from mxamp.targets.fusion_defect import LostBranch, lost_branches

__all__ = ["PREPARATIONS", "Preparation", "check_prepare", "prepare_graph"]

_Shape = TypeVar("_Shape")

_PASSES: Mapping[str, type[PreparationPass]] = {
    # What does nothing hides duplicates, and both hide patterns; what fusion makes of it all comes last.
    step.step: step
    for step in (
        DropNoOps,
        MergeCommonSubexpressions,
        FoldPadding,
        RewriteGlobalPooling,
        RewriteShortSums,
        RewriteHardSigmoid,
        RewriteRelu,
        ShareLayout,
        KeepBranches,
    )
}

PREPARATIONS = tuple(_PASSES)
"""The names of the passes, in the order in which they run."""


@dataclass(frozen=True)
class Preparation:
    """A prepared graph, and how it came about.

    Attributes
    ----------
    before
        The user's graph.
    graph
        The graph after; the same object where no pass found anything.
    positions
        For every node of ``graph`` the node of ``before`` whose values it has.
    changes
        What became of nodes, pass after pass.
    lost
        What MXNet's fusion loses in ``before``; empty where the device is no CPU.
    """

    before: Graph
    graph: Graph
    positions: Sequence[int]
    changes: tuple[PreparedNode, ...] = ()
    lost: Sequence[LostBranch] = ()

    def moved(self, shapes: Sequence[tuple[_Shape, ...]] | None) -> Sequence[tuple[_Shape, ...]] | None:
        """Return the shapes of the outputs of ``before``'s nodes for each node of ``graph``."""
        if shapes is None or self.graph is self.before:
            return shapes
        # A node that was put in may have more outputs: the terms of a sum are shaped as the sum is.
        return [
            shapes[origin]
            if len(shapes[origin]) == node.num_outputs
            else shapes[origin][:1] * node.num_outputs
            for node, origin in zip(self.graph.nodes, self.positions)
        ]


def check_prepare(given: Any) -> tuple[str, ...]:
    """Return the passes asked for, in the order in which they run.

    Raises
    ------
    PolicyError
        When ``given`` is no sequence of their names.
    """
    valid = ", ".join(repr(name) for name in PREPARATIONS)
    try:
        names = None if isinstance(given, (str, bytes)) else list(given)
    except TypeError:
        names = None
    if names is None or not all(isinstance(name, str) for name in names):
        raise PolicyError(
            f"prepare must be a list of passes, not {given!r}. Name those that shall run, of {valid}; [] for "
            "none."
        )
    for name in names:
        if name not in _PASSES:
            raise PolicyError(
                f"prepare holds {name!r}, which is no pass.{nearest_names(name, PREPARATIONS)} "
                f"The passes are {valid}."
            )
    return tuple(name for name in PREPARATIONS if name in names)


def prepare_graph(
    graph: Graph,
    params: Mapping[str, Parameter],
    policy: Policy,
    steps: Sequence[str] = PREPARATIONS,
    *,
    device: str = "cpu",
) -> Preparation:
    """Run the passes over a graph.

    Parameters
    ----------
    graph
        The user's graph.
    params
        Its parameters and auxiliary states.
    policy
        The policy.
    steps
        The passes, as :func:`check_prepare` returns them.
    device
        The target's device; MXNet's fusion goes wrong on ``"cpu"`` alone.

    Notes
    -----
    MXNet's fusion may go wrong because of what a pass did (:mod:`mxamp.targets.fusion_defect`): two equal
    activations of one Convolution, merged, leave it with a single one, and its other reader with the wrong
    value. ``keep_branches`` guards such places; where it is left out, that pass is taken back.
    """
    before = graph
    lost = lost_branches(graph) if device == "cpu" else ()
    losses = len(lost)
    is_guarded = KeepBranches.step in steps
    positions: Sequence[int] = range(len(graph.nodes))
    changes: list[PreparedNode] = []
    finished: list[str] = []
    for name in steps:
        if name == KeepBranches.step and not (lost if graph is before else _losses(graph, device)):
            continue
        if _PASSES[name].device not in ("", device):
            continue
        step = _PASSES[name](params, policy)
        after = Pipeline([step], finished=finished).run(graph)
        finished.append(step.name)
        if after is graph:
            continue
        if not is_guarded:
            losses_after = _losses(after, device)
            if losses_after > losses:
                reason = "left as it is, for MXNet's fusion would go wrong without it"
                changes += [dataclasses.replace(change, into=None, reason=reason) for change in step.changes]
                continue
            losses = losses_after
        changes += step.changes
        positions = [positions[origin] for origin in step.positions]
        graph = after
    return Preparation(before, graph, positions, tuple(changes), lost)


def _losses(graph: Graph, device: str) -> int:
    return len(lost_branches(graph)) if device == "cpu" else 0
