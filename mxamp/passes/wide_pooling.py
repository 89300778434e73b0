"""Take a maximum over wide windows in two steps, where the backend has no kernel for such padding."""

from __future__ import annotations

from typing import Sequence

from mxamp.dtypes import DType
from mxamp.ops.attributes import CHANNELS_FIRST, integers, is_true
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State

_WIDEST = 9
"""Places of a window, of which as many lie before the middle as behind it, that a kernel pads for: four."""

_IMAGE = 2
"""Axes of places of an image."""


class WidePooling(NodeRewrite):
    """Replace max Pooling over windows of more than nine places by one over nine, and one over the rest.

    Before::

        x -> Pooling {kernel: (13, 13), pad: (6, 6), pool_type: max} -> y

    After::

        x -> Pooling {kernel: (9, 9), pad: (4, 4), pool_type: max}
          -> Pooling {kernel: (5, 5), pad: (2, 2), pool_type: max} -> y

    and so on for windows of more than 17.

    Refuses: strides; padding that is not half of the window, which is odd; other kinds than a maximum; what
    is no image, or has its channels last; other dtypes than float32; a node that a rule of the user's picks;
    targets that do not name the pass; the bodies of control flow. The node may be a graph output, for its
    name stays.

    Notes
    -----
    Why: without AVX-512 oneDNN's kernels of pooling pad up to four places, and beyond that its reference
    takes each value for itself: 512 channels of 19 x 19, 13x13, take 709 ms, and so 1.5; 11x11 549 and 1.5
    (AMD EPYC of family 23, float32, one thread). YOLOv4 and YOLOv3 with spatial pyramid pooling take maxima
    over 5, 9 and 13 places, which was 30 % of their time.

    The maximum over a window is that of the maxima over narrower windows that lie side by side in it; padding
    is minus infinity in both. Bit-exact. Linear in nodes.
    """

    step = "wide_pooling"
    operators = frozenset({"Pooling"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Take one maximum in steps."""
        node = state.graph.nodes[position]
        kernel, pad = (integers(node.attrs.get(key, "()")) or () for key in ("kernel", "pad"))
        if (
            len(kernel) != _IMAGE
            or max(kernel) <= _WIDEST
            or pad != tuple([size // 2 for size in kernel])
            or any(size % 2 == 0 for size in kernel)
            or set(integers(node.attrs.get("stride", "()")) or ()) - {1}
            or node.attrs.get("pool_type", "max") != "max"
            or is_true(node.attrs, "global_pool", default=False)
            or node.attrs.get("layout", "None") not in CHANNELS_FIRST
            or set(state.graph.uses[position]) - {0}
            or state.certain_dtypes[position][0] is not DType.FLOAT32
        ):
            return None
        source, shape = node.inputs[0], state.usual_shape(node.inputs[0])
        while max(kernel) > _WIDEST:
            first = [min(size, _WIDEST) for size in kernel]
            source = edit.part(position, "Pooling", "of_nine", source, like=shape, **_window(first))
            kernel = tuple([size - own + 1 for size, own in zip(kernel, first)])
        edit.replace(position, node._replace(attrs={**node.attrs, **_window(kernel)}, inputs=(source,)))
        return "maxima over narrower windows first, for which there are kernels"


def _window(kernel: Sequence[int]) -> dict[str, str]:
    """Return the attributes of a maximum over a window around each place."""
    pad = tuple([size // 2 for size in kernel])
    return {"kernel": str(tuple(kernel)), "pad": str(pad), "pool_type": "max"}
