"""Prepare a graph: the passes that change no value, one after another, before anything is decided."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Sequence

from mxamp.arguments import items
from mxamp.dtypes import DType
from mxamp.errors import PassError, PolicyError, nearest_names
from mxamp.graph.graph import Entry, Graph
from mxamp.graph.node_map import NodeMap
from mxamp.graph.output_names import output_names
from mxamp.graph.verify import verify_graph
from mxamp.ops.casts import AMP_CAST
from mxamp.params.parameter import Parameter
from mxamp.passes.base import blaming
from mxamp.passes.common_subexpressions import MergeCommonSubexpressions
from mxamp.passes.dense_input import SeparateDenseInput
from mxamp.passes.drop_no_ops import DropNoOps
from mxamp.passes.edit import Edited, NodeShapes
from mxamp.passes.fold_constants import FoldConstants
from mxamp.passes.fold_padding import FoldPadding
from mxamp.passes.global_pooling import RewriteGlobalPooling
from mxamp.passes.hard_sigmoid import RewriteHardSigmoid
from mxamp.passes.instance_norm import RewriteInstanceNorm
from mxamp.passes.keep_branches import KeepBranches
from mxamp.passes.one_spelling import OneSpelling
from mxamp.passes.pad_channels import PadChannels
from mxamp.passes.prelu import RewritePReLU
from mxamp.passes.prepare import PreparationPass, Prepared, PreparedNode, Surroundings
from mxamp.passes.relu import RewriteRelu
from mxamp.passes.share_layout import ShareLayout
from mxamp.passes.short_sums import RewriteShortSums
from mxamp.policy.policy import Policy
from mxamp.targets import Target
from mxamp.targets.fusion_defect import LostBranch, lost_branches

__all__ = ["PREPARATIONS", "Preparation", "check_prepare", "prepare_graph"]

_PASSES: Mapping[str, type[PreparationPass]] = {
    # What does nothing hides duplicates, as other words do, and all hide patterns; what fusion makes of it
    # comes last.
    step.step: step
    for step in (
        DropNoOps,
        OneSpelling,
        MergeCommonSubexpressions,
        FoldConstants,
        FoldPadding,
        RewriteGlobalPooling,
        RewriteShortSums,
        RewriteHardSigmoid,
        RewriteRelu,
        RewriteInstanceNorm,
        PadChannels,
        RewritePReLU,
        ShareLayout,
        SeparateDenseInput,
        KeepBranches,
    )
}

_LAST_PATTERN = RewriteRelu.step

PREPARATIONS = tuple(_PASSES)
"""The names of the passes, in the order in which they run."""


@dataclass(frozen=True)
class Preparation:
    """A graph while it is prepared, and how it came about.

    Attributes
    ----------
    before
        The user's graph.
    graph
        The graph after; the same object where no pass found anything.
    params
        Its parameters and auxiliary states, and those that no graph reads.
    nodes
        Where the nodes of ``before`` are in ``graph``.
    shapes
        For every node of ``graph`` the shape of each output, where known; None where nothing is.
    made_from
        Parameter that is none of the user's -> the user's that its values come from.
    changes
        What became of nodes, pass after pass.
    lost
        What MXNet's fusion loses in ``before``; empty where the device is no CPU.
    """

    before: Graph
    graph: Graph
    params: Mapping[str, Parameter]
    nodes: NodeMap
    shapes: Sequence[NodeShapes] | None = None
    made_from: Mapping[str, Sequence[str]] = field(default_factory=dict)
    changes: tuple[PreparedNode, ...] = ()
    lost: Sequence[LostBranch] = ()

    def after(self, done: Prepared) -> Preparation:
        """Return what it is after one pass more."""
        edited = done.edited
        made_from = {
            name: sources for name, sources in self.made_from.items() if name in edited.graph.variables
        }
        for name, sources in edited.made_from.items():
            origins = [origin for source in sources for origin in self.made_from.get(source, (source,))]
            made_from[name] = tuple(dict.fromkeys(origins))
        return replace(
            self,
            graph=edited.graph,
            params=_params_after(self.graph, self.params, edited),
            nodes=self.nodes.then(edited.nodes),
            shapes=None if self.shapes is None else _shapes_after(self.shapes, edited),
            made_from=made_from,
            changes=self.changes + done.changes,
        )


def _params_after(before: Graph, params: Mapping[str, Parameter], edited: Edited) -> Mapping[str, Parameter]:
    """Return the parameters without those that are gone, new ones before the first that they were made of."""
    kept, gone = edited.graph.variables, before.variables
    if not edited.params and kept.keys() == gone.keys():
        return params
    follows: dict[str, list[str]] = {}
    for name in edited.params:
        if name not in params:
            first = next((source for source in edited.made_from.get(name, ()) if source in params), "")
            follows.setdefault(first, []).append(name)
    after: dict[str, Parameter] = {}
    for name, parameter in params.items():
        after.update({new: edited.params[new] for new in follows.get(name, ())})
        if name in kept or name not in gone:
            after[name] = edited.params.get(name, parameter)
    after.update({new: edited.params[new] for new in follows.get("", ())})
    return after


def _shapes_after(shapes: Sequence[NodeShapes], edited: Edited) -> Sequence[NodeShapes]:
    after = []
    for position, (node, origin) in enumerate(zip(edited.graph.nodes, edited.nodes.origins)):
        own = edited.shapes.get(position, shapes[origin])
        # A node that was put in may have more outputs: the terms of a sum are shaped as the sum is.
        after.append(own if len(own) == node.num_outputs else own[:1] * node.num_outputs)
    return after


def check_prepare(given: Any) -> tuple[str, ...]:
    """Return the passes asked for, in the order in which they run.

    Raises
    ------
    PolicyError
        When ``given`` is no sequence of their names.
    """
    valid = ", ".join(repr(name) for name in PREPARATIONS)
    names = items(given)
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
    target: Target | None = None,
    shapes: Sequence[NodeShapes] | None = None,
    low_inputs: Mapping[str, DType] | None = None,
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
    target
        What the model is converted for; by default the built-in target for the policy's dtype.
    shapes
        For every node the shape of each output, where known.
    low_inputs
        The inputs that will arrive in low precision.

    Raises
    ------
    PassError
        When a pass breaks the graph, or changes the names of inputs or outputs.

    Notes
    -----
    MXNet's fusion may go wrong because of what a pass did (:mod:`mxamp.targets.fusion_defect`): two equal
    activations of one Convolution, merged, leave it with a single one, and its other reader with the wrong
    value. ``keep_branches`` guards such places; where it is left out, that pass is taken back.
    """
    if target is None:
        target = Target.for_dtype(policy.target_dtype)
    lost = _lost(graph, target)
    losses = _losses(graph, target)
    is_guarded = KeepBranches.step in steps
    start = NodeMap.identity(len(graph.nodes))
    state = Preparation(graph, graph, params, start, shapes, lost=lost)
    finished: list[str] = []
    seen: dict[str, Graph | None] = {}  # by each pass; None where it was taken back
    for name in _in_order(steps):
        if name in seen and (seen[name] is None or seen[name] is state.graph):
            continue
        seen[name] = state.graph
        step = _PASSES[name]()
        if name == KeepBranches.step and not (lost if state.graph is graph else _lost(state.graph, target)):
            continue
        if not step.runs_for(target):
            continue
        done = step.run(
            state.graph, Surroundings(state.graph, state.params, policy, target, state.shapes, low_inputs)
        )
        finished.append(step.name)
        if done is None:
            continue
        after = state.after(done)
        with blaming(step.name, finished[:-1]):
            verify_graph(after.graph)
            _check_interface(state, after)
        if not is_guarded:
            losses_after = _losses(after.graph, target)
            if losses_after > losses:
                reason = "left as it is, for MXNet's fusion would go wrong without it"
                refused = [replace(change, into=None, reason=reason) for change in done.changes]
                state = replace(state, changes=(*state.changes, *refused))
                seen[name] = None
                continue
            losses = losses_after
        state = after
    return state


def _in_order(steps: Sequence[str]) -> Sequence[str]:
    """Return the passes as they run: what became equal under patterns is merged as well."""
    if MergeCommonSubexpressions.step not in steps:
        return steps
    count = sum(PREPARATIONS.index(name) <= PREPARATIONS.index(_LAST_PATTERN) for name in steps)
    return [*steps[:count], MergeCommonSubexpressions.step, *steps[count:]]


def _check_interface(before: Preparation, after: Preparation) -> None:
    """Check that the names of inputs and outputs are kept, and that every other variable has values."""
    inputs = [name for name in before.graph.variables if name not in before.params]
    if output_names(before.graph) != output_names(after.graph) or inputs != [
        name for name in after.graph.variables if name not in after.params
    ]:
        raise PassError("The names of the graph's inputs or outputs changed.")


def _lost(graph: Graph, target: Target) -> Sequence[LostBranch]:
    return lost_branches(graph) if target.device == "cpu" else ()


def _losses(graph: Graph, target: Target) -> int:
    """Return in how many places fusion goes wrong, or would without the casts that a conversion put there.

    A pass that was taken back is so again when what came of it is converted.
    """
    return len(_lost(_without_casts(graph), target))


def _without_casts(graph: Graph) -> Graph:
    """Return the graph in which what a cast reads is read in its place, and the cast reads nothing."""
    instead: dict[Entry, Entry] = {}
    for position, node in enumerate(graph.nodes):
        if node.op == AMP_CAST and node.inputs:
            instead[Entry(position)] = instead.get(node.inputs[0], node.inputs[0])
    if not instead:
        return graph
    nodes = [
        node._replace(
            inputs=() if node.op == AMP_CAST else tuple([instead.get(entry, entry) for entry in node.inputs])
        )
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes), heads=tuple([instead.get(head, head) for head in graph.heads]))
