"""Let a convolution, or a pooling, pad for itself."""

from __future__ import annotations

from typing import NamedTuple, Sequence

from mxamp.graph.graph import Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, integers, is_true, real_number
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State
from mxamp.targets.image_layout import pads_by_itself

EXPLICIT = "explicit_padding"
"""What a target names whose layers add little padding by themselves."""

_BEFORE_PLACES = 2
"""Axes of a batch and of channels."""

_PLACES = 2
"""Axes of an image's places: of volumes a Pad brings a layer's order into plain order."""


class FoldPadding(PreparationPass):
    """Add the zeros of a Pad to the padding of the Convolutions that read it.

    Before::

        x -> Pad {mode: constant, pad_width: (0, 0, 0, 0, 1, 1, 1, 1)} -> Convolution {pad: (0, 0)} -> y

    After::

        x -> Convolution {pad: (1, 1)} -> y

    Likewise the zeros of an average pooling that counts them, and the values of the border, in the mode
    ``edge``, of a maximum pooling, where every window holds one of those that they repeat.

    Refuses: another constant than zero, and other modes; padding of batch or channels, or that differs
    between the two ends of an axis; where the Pad is a graph output, or anything but the data of a
    channels-first Convolution or Pooling reads it; poolings that pad already, whose windows stand out, or
    fit into the padding; what :class:`mxamp.passes.explicit_padding.ExplicitPadding` would put back, for
    targets that name that; a node that a rule of the user's picks; the bodies of control flow.

    Notes
    -----
    Why: Pad copies its input, on CPUs with one thread and in FP32 alone, so that in low precision two casts
    come with it. In Xception its 63 Pads take a fifth of the time in FP32, and with their casts a third in
    BF16.

    The same products are summed, and zeros besides, which an infinite weight makes NaN of behind a Pad, and
    not here. Poolings are the same, a mean up to the order of summation. Linear in nodes and uses.
    """

    step = "padding"
    operators = frozenset({"Pad", "pad"})

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with padding folded."""
        edit = GraphEdit(graph, state.params)
        changes = []
        for position, node in enumerate(graph.nodes):
            if FACTS.canonical(node.op) != "Pad" or state.is_fixed(position) or position in state.heads:
                continue
            mode = node.attrs.get("mode", "")
            edges = edges_of(node, mode) if mode in ("constant", "edge") else None
            readers = [use for places in graph.uses[position].values() for use in places]
            if edges is None or edges.before != edges.after or not readers:
                continue
            padded = {
                use.node: _padded(graph.nodes[use.node], edges.before, mode)
                for use in readers
                if use.input == 0
            }
            made = [layer for layer in padded.values() if layer is not None]
            if not all(pads_fast(state, layer) for layer in made):
                continue
            if len(padded) != len(readers) or any(state.is_fixed(use.node) for use in readers):
                continue
            layers = {reader: layer for reader, layer in padded.items() if layer is not None}
            if len(layers) != len(padded):
                continue
            edit.drop(position, node.inputs[0])
            for reader, layer in layers.items():
                edit.replace(reader, layer)
            into = graph.nodes[readers[0].node].name
            changes.append(self.changed(node, f"what it adds is padding of {into!r} now", into=into))
        return Done(edit.finish(), tuple(changes)) if changes else None


def pads_fast(state: State, node: Node) -> bool:
    """Return whether a node's own padding is not what makes it slow on the target."""
    groups, filters = (node.attrs.get(name, "") for name in ("num_group", "num_filter"))
    if node.op != "Convolution" or EXPLICIT not in state.target.rewrites:
        return True
    return pads_by_itself(node.attrs, is_depthwise=groups == filters)


class Edges(NamedTuple):
    """What a Pad puts around each axis behind the channels: zeros, or the border.

    Attributes
    ----------
    before, after
        How much at either end of each axis.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]


def edges_of(node: Node, mode: str) -> Edges | None:
    """Return what a Pad of zeros (``constant``) or the border (``edge``) adds; None where it is another."""
    widths = integers(node.attrs.get("pad_width", ""))
    is_other = mode == "constant" and real_number(node.attrs, "constant_value", 0.0) != 0
    if is_other or node.attrs.get("mode") != mode or widths is None or len(widths) not in (8, 10):
        return None
    before, after = widths[::2], widths[1::2]
    if any((*before[:_BEFORE_PLACES], *after[:_BEFORE_PLACES])) or min(widths) < 0:
        return None
    return Edges(before[_BEFORE_PLACES:], after[_BEFORE_PLACES:])


def _padded(node: Node, widths: tuple[int, ...], mode: str) -> Node | None:
    """Return a layer with more padding; None where the node is none that can take it."""
    op = FACTS.canonical(node.op)
    if op not in ("Convolution", "Pooling") or node.attrs.get("layout", "None") not in CHANNELS_FIRST:
        return None
    kernel = integers(node.attrs.get("kernel", ""))
    own = integers(node.attrs.get("pad", "()"))
    if kernel is None or own is None or len(kernel) != len(widths) or len(own) not in (0, len(widths)):
        return None
    if not (_pools(node, kernel, own, widths, mode) if op == "Pooling" else mode == "constant"):
        return None
    total = [width + more for width, more in zip(own or (0,) * len(widths), widths)]
    return node._replace(attrs={**node.attrs, "pad": f"({', '.join(map(str, total))})"})


def _pools(node: Node, kernel: Sequence[int], own: Sequence[int], widths: Sequence[int], mode: str) -> bool:
    """Return whether a pooling finds the same with padding of its own."""
    counts = {"edge": "max", "constant": "avg"}[mode]
    return (
        node.attrs.get("pool_type", "max") == counts
        and node.attrs.get("pooling_convention", "valid") == "valid"
        and not is_true(node.attrs, "global_pool", default=False)
        and (counts == "max" or is_true(node.attrs, "count_include_pad", default=True))
        and not any(own)
        and len(kernel) == _PLACES
        and all(width < size for width, size in zip(widths, kernel))
    )
