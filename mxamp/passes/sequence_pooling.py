"""Let sequences in plain order be pooled in blocks of channels, as images of a single row."""

from __future__ import annotations

import math

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, integers, is_true
from mxamp.params.parameter import ArrayParameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.images import depthwise
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.sequences import AS_IMAGE, AS_SEQUENCE, image_shape, window_of_image
from mxamp.passes.state import State
from mxamp.targets.layout import JOIN_LAYOUTS, KEEP_LAYOUT, WRITE_BLOCKS, WRITE_OVER, writes_plain

_SEQUENCE = 1
"""Axes of places."""

_LEAST = 1 << 12
"""Values in all windows, from which on the form was measured to be faster."""

_LOOK_BACK = 32
"""How many nodes are looked at for a layer."""


class RewriteSequencePooling(NodeRewrite):
    """Bring a sequence into blocks of channels before it is pooled, where it lies in plain order.

    Before::

        x (N, C, L) -> Pooling {kernel: (3,)} -> y

    After::

        x -> Reshape {shape: (0, 0, 1, -1)} -> Convolution {num_group: C}(ones) -> Pooling {kernel: (1, 3)}
          -> Reshape {shape: (0, 0, -1)} -> y

    Refuses: what a convolution may have left in blocks; channels that are not known, or fill no blocks; other
    pooling than maxima and means; global pooling; fewer than 2^12 values in all windows; unknown shapes; a
    node that is a graph output; numpy's shape semantics; other dtypes than float32; a node that a rule of the
    user's picks; targets that do not name the pass; the bodies of control flow.

    Notes
    -----
    Why: oneDNN pools plain order value by value, 10 to 25 ns each, and has kernels for blocks. A depthwise
    layer of ones is the fastest way into these, and has them of images alone: 4 sequences of 128 channels and
    300 steps, maxima of 3, take 3.9 ms and so 0.4, means of 9 of 128 times 2,000 3.4 and 0.6 (an Intel Xeon,
    float32, one thread; with its AVX-512 off 3.9 and 0.8, 3.4 and 0.3). InceptionTime has four such.

    Bit-exact: each value is multiplied by one and added to nothing, but the sign of a zero may differ. Linear
    in nodes.
    """

    step = "sequence_pooling"
    operators = frozenset({"Pooling", "_npx_pooling"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one Pooling."""
        graph, node = state.graph, state.graph.nodes[position]
        source = node.inputs[0]
        if state.places.get(source.node) != _SEQUENCE:
            return None
        read, written = state.shape(source), state.shape(Entry(position))
        sizes = state.axis_sizes.of(source)
        channels = None if sizes is None else sizes[1]
        if (
            read is None
            or written is None
            or not isinstance(channels, int)
            or channels != read[1]
            or channels % state.target.block
            or position in state.heads
            or graph.has_numpy_shapes
            or state.dtypes[position][0] is not DType.FLOAT32
            or not _is_of_windows(node)
            or math.prod(written) * math.prod(integers(node.attrs["kernel"]) or ()) < _LEAST
            or not _lies_plain(graph, source.node)
        ):
            return None
        row = image_shape(read)
        image = edit.part(position, "Reshape", "image", source, like=row, **AS_IMAGE)
        ones = edit.once(
            channels,
            lambda: edit.add_parameter(
                f"{node.name}_ones", ArrayParameter(np.ones((channels, 1, 1, 1), np.float32)), before=position
            ),
        )
        layer = depthwise(f"{node.name}_blocks", image, ones, channels)
        blocks = edit.insert(layer, before=position, shapes=(row,))
        attrs = window_of_image(node.attrs)
        whole = node._replace(name=f"{node.name}_pooled", attrs=attrs, inputs=(blocks,))
        result = edit.insert(whole, before=position, shapes=(image_shape(written),))
        edit.replace(position, Node("Reshape", node.name, AS_SEQUENCE, (result,)))
        return "a depthwise Convolution with ones brings it into blocks of channels, which pool faster"


def _is_of_windows(node: Node) -> bool:
    return (
        node.attrs.get("pool_type", "max") in ("max", "avg")
        and not is_true(node.attrs, "global_pool", default=False)
        and node.attrs.get("layout", "None") in CHANNELS_FIRST
        and len(integers(node.attrs.get("kernel", "")) or ()) == _SEQUENCE
    )


def _lies_plain(graph: Graph, position: int) -> bool:
    """Return whether a sequence certainly lies in plain order.

    BatchNorm writes that, unless it is behind a layer, into which it is folded.
    """
    ahead, seen = [position], {position}
    while ahead:
        node = graph.nodes[ahead.pop()]
        op = FACTS.canonical(node.op)
        if op in WRITE_BLOCKS:
            is_depthwise = node.attrs.get("num_group", "1") == node.attrs.get("num_filter")
            if not (writes_plain(node) or is_depthwise):
                return False
            continue
        if op == "BatchNorm" and FACTS.canonical(graph.nodes[node.inputs[0].node].op) not in WRITE_BLOCKS:
            continue
        if op not in KEEP_LAYOUT and op not in WRITE_OVER:
            continue
        for source, _ in node.inputs[-1:] if op in JOIN_LAYOUTS else node.inputs:
            if source not in seen:
                seen.add(source)
                ahead.append(source)
        if len(seen) > _LOOK_BACK:
            return False
    return True
