"""Take a maximum over wide windows in two steps, where the backend has no kernel or a slow one."""

from __future__ import annotations

from typing import Sequence

from mxamp.dtypes import DType
from mxamp.ops.attributes import CHANNELS_FIRST, integers, is_true
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State
from mxamp.targets.image_layout import WIDEST_BLOCK

_WIDEST = 9
"""Places of a window, of which as many lie before the middle as behind it, that a kernel pads for: four."""

_WORTH_IT = 5
"""Places of a window from which on two lines of them are fewer than there are in the square."""

_FEW = 4
"""Channels from which on there are kernels for plain order, with AVX-512."""

_IMAGE = 2
"""Axes of places of an image."""


class WidePooling(NodeRewrite):
    """Replace max Pooling over wide windows by one along each axis, or by one over nine places and the rest.

    Before::

        x -> Pooling {kernel: (13, 13), pad: (6, 6), pool_type: max} -> y

    After, where the backend has no kernel for the channels, or with AVX-512 whole blocks of them::

        x -> Pooling {kernel: (13, 1), pad: (6, 0), pool_type: max}
          -> Pooling {kernel: (1, 13), pad: (0, 6), pool_type: max} -> y

    and for all other channels::

        x -> Pooling {kernel: (9, 9), pad: (4, 4), pool_type: max}
          -> Pooling {kernel: (5, 5), pad: (2, 2), pool_type: max} -> y

    and so on for windows of more than 17.

    Refuses: windows of up to nine places, up to four where there is no kernel; strides; padding that is not
    half of the window, which is odd; other kinds than a maximum; what has its channels last; other dtypes
    than float32; a node that a rule of the user's picks; targets that do not name the pass; the bodies of
    control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: oneDNN's kernels of pooling pad up to four places, and beyond that its reference takes each value for
    itself, where channels lie in blocks of eight, of which there are no others without AVX-512. There 512
    channels of 19 x 19, 13x13, take 709 ms, and by nine and five 1.5 (AMD EPYC of family 23, float32, one
    thread); with AVX-512 40 of 40 x 40 306 ms and 1.1 (an Intel Xeon). YOLOv4 and YOLOv3 with spatial pyramid
    pooling take maxima over 5, 9 and 13 places, which was 30 % of their time.

    Whole blocks of 16 have a kernel for every padding, which looks at each place of the square: 512 channels
    of 19 x 19, 13x13, take 0.74 ms and along each axis 0.36. One to three channels have none, nor without
    AVX-512 have channels that fill no blocks: one of 96 x 96, 9x9, as in detectors of points, takes 3.3 ms
    and along each axis 1.2; with AVX-512 switched off twelve of 40 x 40 6.7 ms and 2.4.

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
            or max(kernel) < _WORTH_IT
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
        channels = None if shape is None else shape[1]
        has_kernel = channels is None or _has_kernel(channels, state.target.block)
        if has_kernel and max(kernel) <= _WIDEST:
            return None
        if not has_kernel or _is_of_widest_blocks(channels, state.target.block):
            if min(kernel) == 1:
                return None
            column = _window((kernel[0], 1))
            source = edit.part(position, "Pooling", "columns", source, like=shape, **column)
            kernel = (1, kernel[1])
        else:
            while max(kernel) > _WIDEST:
                first = [min(size, _WIDEST) for size in kernel]
                source = edit.part(position, "Pooling", "of_nine", source, like=shape, **_window(first))
                kernel = tuple([size - own + 1 for size, own in zip(kernel, first)])
        edit.replace(position, node._replace(attrs={**node.attrs, **_window(kernel)}, inputs=(source,)))
        return "maxima over narrower windows first"


def _has_kernel(channels: int, block: int) -> bool:
    """Return whether there is a kernel for so many channels, however narrow the windows are."""
    return channels >= _FEW if block == WIDEST_BLOCK else channels % block == 0


def _is_of_widest_blocks(channels: int | None, block: int) -> bool:
    """Return whether channels fill blocks for which there is a kernel however wide the windows are."""
    return channels is not None and block == WIDEST_BLOCK and channels % block == 0


def _window(kernel: Sequence[int]) -> dict[str, str]:
    """Return the attributes of a maximum over a window around each place."""
    pad = tuple([size // 2 for size in kernel])
    return {"kernel": str(tuple(kernel)), "pad": str(pad), "pool_type": "max"}
