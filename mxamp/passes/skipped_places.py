"""Leave out what a 1x1 convolution skips before it, where that cannot."""

from __future__ import annotations

import math
from functools import partial

from mxamp.graph.graph import Entry, Node
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, float32_image_layer
from mxamp.passes.state import State
from mxamp.targets.image_layout import stride_fits
from mxamp.targets.layout import layout_writer

_LEAST_FILTERS = 64
"""Fewer gain little more than a Pooling takes (32: 0.88 to 1.27)."""


class SkippedPlaces(NodeRewrite):
    """Let a Pooling of one place leave out what a 1x1 Convolution of a stride skips.

    Before::

        x -> Convolution {kernel: (1, 1), stride: (2, 2)} -> y

    After::

        x -> Pooling {kernel: (1, 1), stride: (2, 2), pool_type: avg} -> Convolution {kernel: (1, 1)} -> y

    Refuses: where the stride leaves no place over, for the backend's kernels leave out the others themselves
    then; padding, groups, other data than images of float32 in blocks of channels, channels last, and fewer
    than 64 filters; a node that a rule of the user's picks; targets that do not name the pass; the bodies of
    control flow.

    Notes
    -----
    Why: oneDNN's 1x1 kernels bring together the places that a stride leaves, but only where the image's size
    is the result's times the stride. For an odd one another kernel is taken. 256 channels of 15 x 15 to 1,024
    take 1.04 ms, and so 0.40, 384 of 75 x 75 to 640 11.3 and 7.8; of 35 random layers from 64 filters on, of
    7 to 95 places a side, none takes longer, and together they take 1 / 1.80 in the geometric mean, with the
    layer that writes the image counted in (AMD EPYC of family 23, float32, one thread).

    Bit-exact but for the order in which products are summed, and the sign of a zero. Linear in nodes.
    """

    step = "skipped_places"
    operators = frozenset({"Convolution"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Put a Pooling in front of one layer."""
        node = state.graph.nodes[position]
        source = node.inputs[0]
        layer = float32_image_layer(state, position)
        if layer is None:
            return None
        data, weight, written = layer
        strides = integers(node.attrs.get("stride", "")) or (1, 1)
        if (
            math.prod(weight[2:]) != 1
            or weight[1] != data[1]
            or max(strides) == 1
            or any(integers(node.attrs.get("pad", "")) or ())
            or stride_fits(strides, data[2:], written[2:])
            or weight[0] < _LEAST_FILTERS
            or any(size % state.target.block for size in weight[:2])
            or layout_writer(state.graph, source.node) is None
        ):
            return None
        left = edit.once((source, strides), partial(_put_pooling, edit, position, node, data, written))
        attrs = {key: value for key, value in node.attrs.items() if key != "stride"}
        edit.replace(position, node._replace(attrs=attrs, inputs=(left, *node.inputs[1:])))
        return "a Pooling before it leaves out what its stride skips, for with places left over it cannot"


def _put_pooling(
    edit: GraphEdit, position: int, node: Node, data: tuple[int, ...], written: tuple[int, ...]
) -> Entry:
    attrs = {"kernel": "(1, 1)", "stride": node.attrs["stride"], "pool_type": "avg"}
    return edit.part(position, "Pooling", "left", node.inputs[0], like=(*data[:2], *written[2:]), **attrs)
