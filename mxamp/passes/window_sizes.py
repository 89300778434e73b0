"""How long the axes of places are that a window moves along, or a Pad makes longer."""

from __future__ import annotations

from typing import Hashable, Optional, Sequence, Tuple, Union

from mxamp.graph.graph import Node
from mxamp.ops.attributes import CHANNELS_FIRST, integers, is_true
from mxamp.passes.equal_shapes import for_each_place

Size = Union[int, Hashable]
"""A number, or what two axes have in common that are certainly equally long."""

Sizes = Tuple[Size, ...]

FoundSizes = Optional[Sequence[Optional[Size]]]
"""What a rule says: None for an axis of which it knows nothing, or for all."""


def convolved(node: Node, sizes: Sizes) -> FoundSizes:
    """Return the sizes of the axes of what a Convolution writes."""
    filters = integers(node.attrs.get("num_filter", ""))
    if filters is None or len(filters) != 1 or node.attrs.get("layout", "None") not in CHANNELS_FIRST:
        return None
    return [sizes[0], filters[0], *_windowed(node, sizes[2:])]


def _windowed(node: Node, places: Sizes) -> Sequence[Size | None]:
    """Return how long axes are that a window moved along."""
    axes = len(places)
    kernel = for_each_place(node, "kernel", axes, 0)
    strides = for_each_place(node, "stride", axes, 1)
    pads = for_each_place(node, "pad", axes, 0)
    dilations = for_each_place(node, "dilate", axes, 1)
    if not kernel or 0 in kernel or strides is None or pads is None or dilations is None:
        return [None] * axes
    found: list[Size | None] = []
    for size, window, stride, pad, dilation in zip(places, kernel, strides, pads, dilations):
        if isinstance(size, int):
            found.append((size + 2 * pad - dilation * (window - 1) - 1) // stride + 1)
        else:
            found.append(size if (window, stride, pad) == (1, 1, 0) else None)
    return found


def pooled(node: Node, sizes: Sizes) -> FoundSizes:
    """Return the sizes of the axes of what a Pooling writes."""
    if node.attrs.get("layout", "None") not in CHANNELS_FIRST:
        return None
    places = sizes[2:]
    if is_true(node.attrs, "global_pool", default=False):
        return [*sizes[:2], *[1] * len(places)]
    if node.attrs.get("pooling_convention", "valid") == "valid":
        return [*sizes[:2], *_windowed(node, places)]
    # Others have a place more for what a window does not fill, but windows of one place leave nothing over.
    kernel, strides, pads = (
        for_each_place(node, name, len(places), default) or (0,) * len(places)
        for name, default in (("kernel", 0), ("stride", 1), ("pad", 0))
    )
    kept = [
        size if (window, pad) == (1, 0) and (stride == 1 or size == 1) else None
        for size, window, stride, pad in zip(places, kernel, strides, pads)
    ]
    return [*sizes[:2], *kept]


def deconvolved(node: Node, sizes: Sizes) -> FoundSizes:
    """Return the sizes of the axes of what a Deconvolution writes."""
    filters = integers(node.attrs.get("num_filter", ""))
    if filters is None or len(filters) != 1 or node.attrs.get("layout", "None") not in CHANNELS_FIRST:
        return None
    places = sizes[2:]
    kernel = for_each_place(node, "kernel", len(places), 0)
    strides = for_each_place(node, "stride", len(places), 1)
    pads = for_each_place(node, "pad", len(places), 0)
    dilations = for_each_place(node, "dilate", len(places), 1)
    more = for_each_place(node, "adj", len(places), 0)
    found: Sequence[Size | None] = [None] * len(places)
    is_said = not integers(node.attrs.get("target_shape", "()")) and bool(kernel) and 0 not in (kernel or ())
    if is_said and kernel and strides and pads is not None and dilations is not None and more is not None:
        found = [_spread(*each) for each in zip(places, kernel, strides, pads, dilations, more)]
    return [sizes[0], filters[0], *found]


def _spread(place: Size, window: int, stride: int, pad: int, dilation: int, more: int) -> Size | None:
    """Return how long an axis is that each place of another writes a window to."""
    if isinstance(place, int):
        return (place - 1) * stride + dilation * (window - 1) + 1 - 2 * pad + more
    return place if (window, stride, pad, more) == (1, 1, 0, 0) else None


def padded(node: Node, sizes: Sizes) -> FoundSizes:
    """Return the sizes of the axes of what a Pad writes."""
    widths = integers(node.attrs.get("pad_width", "")) or ()
    if len(widths) != 2 * len(sizes):
        return None
    both = [before + after for before, after in zip(widths[::2], widths[1::2])]
    return [
        size if not more else size + more if isinstance(size, int) else None
        for size, more in zip(sizes, both)
    ]
