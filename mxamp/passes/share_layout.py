"""Bring a convolution's result into plain order once for all that need it so."""

from __future__ import annotations

from typing import AbstractSet

from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State
from mxamp.targets.layout import READ_BLOCKS

_MOST_AXES = 3
"""Of a kernel."""

_POINTWISE = frozenset({"Activation", "LeakyReLU", "_copy"})
"""Those that compute value by value, in whatever order they are."""

_REORDERS = frozenset({"Flatten", "Reshape", "SwapAxis", "expand_dims", "reshape_like", "transpose"})
"""Write another order anyway."""


class ShareLayout(PreparationPass):
    """Put a Reshape to the shape that is there between a Convolution and what reads plain tensors.

    Before::

        Convolution -> hard_sigmoid -> elemwise_mul -> y
                    ------------------^

    After::

        Convolution -> Reshape {shape: (0, 0, 0, 0)} -> hard_sigmoid -> elemwise_mul -> y
                                                     ------------------^

    Also behind a BatchNorm that reads a Convolution. Operators with oneDNN kernels go on reading the layer,
    but for activations of which plain tensors are wanted: the sigmoid of a swish, x times sigmoid(x), reads
    what was brought into plain order, and its result is in it.

    Refuses: where fewer than two inputs of operators without oneDNN kernels read the layer; where the layer
    is a graph output; where channels are not the second axis; where a rule of the user's picks one of the
    readers; the bodies of control flow.

    Notes
    -----
    Why: a Convolution writes blocks of channels, and MXNet copies them into plain order for every operator
    that does not know blocks, for each of its inputs anew. Reshape does so once. The hard swishes of
    MobileNetV3 read twice: its large form is 1.39 times as fast as in FP32 with the pass and 1.23 times
    without, its small form 1.49 and 1.27 times (batch 1, CPU with avx512_bf16). Where images are large the
    copy takes longer than the layer: 96 channels of 112 x 112 from channels last 3.7 ms (an Intel Xeon,
    float32, one thread). Swishes made two: an EfficientNet takes 26.6 ms instead of 36.1.

    Bit-exact. Linear in nodes and uses. Only for CPUs.
    """

    step = "share_layout"
    operators = frozenset({"Convolution"})
    device = "cpu"

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with shared layouts."""
        wanting = _wanting_plain(graph, state)
        shared = {
            position: shape
            for position, node in enumerate(graph.nodes)
            if node.op in ("Convolution", "BatchNorm")
            and _has_plain_readers(graph, position, state, wanting)
            and position not in state.heads
            for shape in [_plain_shape(graph, node)]
            if shape is not None
        }
        if not shared:
            return None
        edit = GraphEdit(graph, state.params)
        changes = []
        for position, shape in shared.items():
            node, source = graph.nodes[position], Entry(position)
            plain = edit.insert(
                Node("Reshape", f"{node.name}_plain", {"shape": shape}, (source,)), after=position
            )
            for use in graph.uses_of(source):
                if use.node in wanting:
                    edit.connect(use, plain)
            reason = f"{edit.node(plain).name!r} reorders it once for all that read plain tensors"
            changes.append(self.changed(node, reason))
        return Done(edit.finish(), tuple(changes))


def _wanting_plain(graph: Graph, state: State) -> frozenset[int]:
    """Return the nodes that read plain tensors, or whose result nobody reads otherwise."""
    found: set[int] = set()
    for position in reversed(range(len(graph.nodes))):
        node = graph.nodes[position]
        readers = [use.node for places in graph.uses[position].values() for use in places]
        hands_on = FACTS.canonical(node.op) in _POINTWISE and len(node.inputs) == 1
        if _reads_plain(node) or (
            hands_on
            and bool(readers)
            and position not in state.heads
            and all(reader in found for reader in readers)
        ):
            found.add(position)
    return frozenset(found)


def _has_plain_readers(graph: Graph, position: int, state: State, wanting: AbstractSet[int]) -> bool:
    """Whether two or more inputs need the plain order, all of operators that may be changed."""
    uses = graph.uses[position].get(0, ())
    if len(uses) < 2:
        return False
    readers = [use.node for use in uses if use.node in wanting]
    return len(readers) > 1 and not any(state.is_fixed(reader) for reader in readers)


def _plain_shape(graph: Graph, node: Node) -> str | None:
    """Return the shape as it is, as Reshape writes it, of a Convolution or a BatchNorm of one; else None."""
    if node.op == "BatchNorm":
        node = graph.nodes[node.inputs[0].node] if node.inputs else node
    kernel = integers(node.attrs.get("kernel", ""))
    is_first = node.attrs.get("layout", "None") in CHANNELS_FIRST
    if node.op != "Convolution" or kernel is None or not 0 < len(kernel) <= _MOST_AXES or not is_first:
        return None
    return str((0,) * (2 + len(kernel)))


def _reads_plain(node: Node) -> bool:
    op = FACTS.canonical(node.op)
    return op not in READ_BLOCKS and op not in _REORDERS
