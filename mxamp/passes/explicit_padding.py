"""Pad an image before a convolution that is slow where it pads for itself."""

from __future__ import annotations

import math
from functools import partial

from mxamp.graph.graph import Entry, Node
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.fold_padding import EXPLICIT
from mxamp.passes.preparation import NodeRewrite, float32_image_layer
from mxamp.passes.state import State
from mxamp.targets.image_layout import PLAIN, layer_layout

LEAST_PADDED = 1 << 21
"""Multiply-adds; fewer take as little as a Pad and bringing its result into another order."""


class ExplicitPadding(NodeRewrite):
    """Replace the padding of a Convolution that is a plain matrix product because of it by a Pad.

    Before::

        x -> Convolution {kernel: (11, 11), stride: (4, 4), pad: (2, 2)} -> y

    After::

        x -> Pad {pad_width: (0, 0, 0, 0, 2, 2, 2, 2)} -> Convolution {kernel: (11, 11), stride: (4, 4)} -> y

    Refuses: what the backend's kernels pad themselves, or would not take without padding either
    (:mod:`mxamp.targets.image_layout`); other data than images of float32; channels last; fewer than 2^21
    multiply-adds, or an unknown number; a node that a rule of the user's picks; targets that do not name the
    pass, as only those without AVX-512 do; the bodies of control flow.

    Notes
    -----
    Why: without AVX-512 oneDNN's convolutions add three places to either end of a row at most, depthwise ones
    four, and none where a window's row of more than seven places skips some. AlexNet's first layer takes 3.8
    ms, and so 1.9, and with the pooling behind it, which reads blocks then, 7.3 and 2.4; 128 channels of 56 x
    56, 3x3 and dilated by four, as in segmentation networks, take 19.5 and 10.9, a window of 9x9 over 3
    channels of 112 x 112 8.5 and 2.4 (AMD EPYC of family 23, float32, one thread).

    The same products are summed, in another order. An infinite weight times a zero is NaN either way. Linear
    in nodes.
    """

    step = EXPLICIT
    operators = frozenset({"Convolution"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Put a Pad in front of one layer."""
        node = state.graph.nodes[position]
        source = node.inputs[0]
        layer = float32_image_layer(state, position)
        if layer is None or math.prod(layer.written) * math.prod(layer.weight[1:]) < LEAST_PADDED:
            return None
        data, weight, written = layer
        padding = integers(node.attrs.get("pad", "")) or (0, 0)
        bare = {key: value for key, value in node.attrs.items() if key != "pad"}
        block = state.target.block
        order = partial(
            layer_layout, node.op, data=data, weight=weight, output=written, low=False, block=block
        )
        if not any(padding) or order(attributes=node.attrs) != PLAIN or order(attributes=bare) == PLAIN:
            return None
        padded = edit.once((source, padding), partial(_put_pad, edit, position, node, data, padding))
        edit.replace(position, node._replace(attrs=bare, inputs=(padded, *node.inputs[1:])))
        return "its image is padded before, for with so much padding of its own it is a plain matrix product"


def _put_pad(
    edit: GraphEdit, position: int, node: Node, data: tuple[int, ...], padding: tuple[int, ...]
) -> Entry:
    widths = ", ".join(f"{width}, {width}" for width in (0, 0, *padding))
    shape = (*data[:2], *[size + 2 * width for size, width in zip(data[2:], padding)])
    attrs = {"mode": "constant", "pad_width": f"({widths})", "constant_value": "0"}
    return edit.part(position, "Pad", "padded", node.inputs[0], like=shape, **attrs)
