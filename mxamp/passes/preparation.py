"""What the passes that prepare a graph have in common: they keep every value, and say what they did."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from mxamp.dtypes import DType
from mxamp.errors import PassError
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops.attributes import CHANNELS_FIRST
from mxamp.passes.base import Pass
from mxamp.passes.edit import GraphEdit
from mxamp.passes.records import PreparedNode
from mxamp.passes.state import Done, State
from mxamp.targets import Target

_IMAGE = 4


class PreparationPass(Pass):
    """A pass over the user's graph that comes before anything is decided.

    Notes
    -----
    MXNet's fusion may go wrong because of what a pass did (:mod:`mxamp.targets.fusion_defect`): two equal
    activations of one Convolution, merged, leave it with a single one, and its other reader with the wrong
    value. ``keep_branches`` guards such places; where it is left out, that pass is taken back.
    """

    step = ""
    """What ``prepare`` calls the pass."""

    operators: frozenset[str] = frozenset()
    """The operators, by any of their names, without one of which there is nothing to do."""

    device = ""
    """The device whose backend gains by it; empty for all."""

    asks_target = False
    """Whether it runs only for targets that name it (:attr:`mxamp.targets.Target.rewrites`)."""

    keeps_branches = False
    """Whether it keeps MXNet's fusion from losing values, whatever other passes did."""

    def runs_for(self, target: Target) -> bool:
        """Return whether a target gains by the pass."""
        if self.asks_target and self.step not in target.rewrites:
            return False
        return self.device in ("", target.device)

    def run(self, state: State) -> Done | None:
        """Return what the pass made of the graph, None where there was nothing to do."""
        if self.operators and self.operators.isdisjoint([node.op for node in state.graph.nodes]):
            return None
        said = state.record(PreparedNode)
        if any(change.step == self.step and change.into is None for change in said):
            return None  # it was taken back, and would be again
        done = self.rewrite(state.graph, state)
        if done is None or state.keeps_branches or state.after(done).losses <= state.losses:
            return done
        reason = "left as it is, for MXNet's fusion would go wrong without it"
        return Done(None, tuple([replace(change, into=None, reason=reason) for change in done.records]))

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Do it: the state's graph holds one of :attr:`operators`."""
        raise NotImplementedError

    def changed(self, node: Node, reason: str, *, into: str | None = None) -> PreparedNode:
        """Say that a node was rewritten, in place or into another, and why."""
        return PreparedNode(node.name, node.op, self.step, node.name if into is None else into, reason)

    def ensures(self, before: State, after: State) -> None:
        """Check that the names of inputs and outputs are kept, and that every other variable has values."""
        super().ensures(before, after)
        if _inputs(before) != _inputs(after):
            raise PassError("The names of the graph's inputs changed.")


class NodeRewrite(PreparationPass):
    """A pass that rewrites nodes of its operators one at a time, each for itself."""

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Rewrite what can be."""
        edit = GraphEdit(graph, state.params)
        changes = [
            self.changed(node, reason)
            for position, node in enumerate(graph.nodes)
            if node.op in self.operators and not state.is_fixed(position)
            for reason in [self.rewrite_node(state, edit, position)]
            if reason is not None
        ]
        return Done(edit.finish(), tuple(changes)) if changes else None

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Rewrite a node and return why; None where it stays."""
        raise NotImplementedError


def own_attributes(node: Node) -> dict[str, str]:
    """Return the attributes that are the node's, whatever its operator is: ``__layout__`` and the like."""
    return {key: value for key, value in node.attrs.items() if key.startswith("__")}


def _inputs(state: State) -> list[str]:
    return [name for name in state.graph.variables if name not in state.params]


class ImageLayer(NamedTuple):
    """The usual shapes of a layer of images: of its data, its weight, and what it writes."""

    data: tuple[int, ...]
    weight: tuple[int, ...]
    written: tuple[int, ...]


def float32_image_layer(state: State, position: int) -> ImageLayer | None:
    """Return the shapes of a layer of float32 images, channels first; None for others and unknown ones."""
    node = state.graph.nodes[position]
    data, weight, written = map(state.usual_shape, (*node.inputs[:2], Entry(position)))
    if (
        data is None
        or weight is None
        or written is None
        or not len(data) == len(weight) == len(written) == _IMAGE
        or node.attrs.get("layout", "None") not in CHANNELS_FIRST
        or state.certain_dtypes[position][0] is not DType.FLOAT32
    ):
        return None
    return ImageLayer(data, weight, written)
