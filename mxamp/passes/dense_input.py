"""Keep MXNet's fusion from a FullyConnected that runs only once."""

from __future__ import annotations

from mxamp.graph.graph import Entry, Graph, Node, Use
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true
from mxamp.ops.roles import ValueKind
from mxamp.passes.edit import GraphEdit
from mxamp.passes.keep_branches import put_reshape
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State

_DENSE = frozenset({"FullyConnected", "_npx_fully_connected"})
_CONVOLUTIONS = frozenset({"Convolution", "_npx_convolution"})

_BLOCK, _DEPTHWISE_BLOCK = 16, 8
"""The channels of a block in oneDNN's layouts for AVX-512. With no whole one the fault was never seen, nor
was it without AVX-512."""

_SAME_PLACE = frozenset({"Dropout", "_copy", "BlockGrad", "Cast", "amp_cast"})
"""What moves values without a new order."""

_NEW_PLACE = frozenset({"Pooling", "Deconvolution", "FullyConnected", "RNN", "_contrib_AdaptiveAvgPooling2D"})
"""What computes another tensor, whatever its input's layout."""

_NONE: frozenset[int] = frozenset()


class SeparateDenseInput(PreparationPass):
    """Put a Reshape to the same shape between a Convolution that leaves one pixel and a FullyConnected.

    Before::

        Convolution {kernel: (7, 7), num_filter: 512} -> (1, 512, 1, 1) [-> BatchNorm] -> FullyConnected

    After::

        Convolution -> (1, 512, 1, 1) [-> BatchNorm] -> Reshape {shape: (-2,)} -> FullyConnected

    Also through operators that leave every value where it is (activations, products, casts), and where the
    FullyConnected does not flatten.

    Refuses: where the channels are no multiple of 16, of 8 in a depthwise Convolution; where the
    FullyConnected's weight says that there is more than one pixel; where something gives the tensor another
    shape or computes a new one, as Reshape, Concat and Pooling do; one-dimensional convolutions, which are
    not oneDNN's; the bodies of control flow.
    Runs for targets that are CPUs alone.

    Notes
    -----
    Why: MXNet 1.9.1 fuses the FullyConnected with nothing, into an operator of its own that keeps its state.
    From the second forward pass of an executor on it raises ``Check failed: !IsMKLDNNData()``, in float32 as
    in bfloat16, where its data is one pixel in blocks of channels (CPUs with AVX-512). InsightFace's networks
    end so. A Reshape brings the data into plain order, which the FullyConnected did itself.

    What is asked is a little more than where MXNet fails: which operators between them hide the fault
    depends on its plan for memory. Known from executing, see the tests.

    Bit-exact. Linear in nodes and inputs.
    """

    step = "dense_input"
    operators = _DENSE
    device = "cpu"

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph that runs more than once."""
        faulty = _faulty(graph, state)
        if not faulty:
            return None
        edit = GraphEdit(graph, state.params)
        changes = []
        for position in sorted(faulty):
            node, source = graph.nodes[position], graph.nodes[position].inputs[0]
            put_in = put_reshape(edit, f"{node.name}_data", source, before=position)
            edit.connect(Use(position, 0), put_in)
            name = edit.node(put_in).name
            reason = (
                f"reads its data through {name!r}, or else MXNet's fusion raises in the second forward pass"
            )
            changes.append(self.changed(node, reason))
        return Done(edit.finish(), tuple(changes))


def _faulty(graph: Graph, state: State) -> frozenset[int]:
    """Return every FullyConnected that may fail."""
    channels: list[frozenset[int]] = []
    found = set()
    for position, node in enumerate(graph.nodes):
        channels.append(_channels(node, channels))
        if node.op in _DENSE and len(node.inputs) > 1:
            before = channels[node.inputs[0].node]
            if before and _reads_one_pixel(node, before, state):
                found.add(position)
    return frozenset(found)


def _channels(node: Node, channels: list[frozenset[int]]) -> frozenset[int]:
    """Return the channels, in whole blocks, of the convolutions whose layout a node's result may have."""
    if not node.inputs:
        return _NONE
    if node.op in _CONVOLUTIONS:
        count = integers(node.attrs.get("num_filter", ""))
        kernel = integers(node.attrs.get("kernel", ""))
        block = _DEPTHWISE_BLOCK if integers(node.attrs.get("num_group", "1")) == count else _BLOCK
        is_blocked = count and len(count) == 1 and count[0] % block == 0
        return frozenset(count or ()) if is_blocked and kernel and len(kernel) > 1 else _NONE
    op = FACTS.canonical(node.op)
    facts = FACTS.of(node.op, node.attrs)
    is_moved = facts is not None and facts.kind is ValueKind.MOVE and op not in _SAME_PLACE
    if is_moved or op in _NEW_PLACE:
        return _NONE
    return _NONE.union(*[channels[entry.node] for entry in node.inputs])


def _reads_one_pixel(node: Node, channels: frozenset[int], state: State) -> bool:
    """Whether the weight fits data of one pixel, or its shape is not known."""
    weight = state.shape(Entry(*node.inputs[1]))
    if weight is None or len(weight) != 2:
        return True
    return weight[1] in (channels if is_true(node.attrs, "flatten", default=True) else {1})
