"""Random convolutions and fully connected layers: what networks spend most of their time in."""

from __future__ import annotations

import math
from typing import Callable, Mapping

from mxamp.probe.kernels.draw import BLOCK, Draw
from mxamp.probe.kernels.kernel import PLAIN, Kernel, Operand, kernel

_SQUEEZED = 0.15
"""How many 1x1 convolutions read one place: those that excite, and classifiers behind a global pooling."""

_OBLONG = 0.15
"""How many windows are no squares."""


def _convolution(
    draw: Draw,
    family: str,
    *,
    window: tuple[int, int],
    c: int,
    filters: int,
    groups: int = 1,
    layout: str,
    tail: str,
    is_squeezed: bool = False,
) -> Kernel:
    n, s = draw.batch(), 1 if is_squeezed else draw.side(160 if c > 4 else 256)
    stride = 2 if draw.chance(0.25) and s > 7 else 1
    while s > 3 and (
        n * filters * c / groups * (s / stride) ** 2 * math.prod(window) > draw.most_multiply_adds
        or n * max(c, filters) * s * s > draw.most_elements
    ):
        s = max(3, s * 3 // 4)
    s = max(s, *window)
    dilate = 2 if window == (3, 3) and s > 8 and draw.chance(0.05) else 1
    is_padded = not (s > dilate * max(window) and draw.chance(0.2))
    bias = draw.chance(0.6)
    operands = [
        Operand((n, c, s, s)),
        Operand((filters, c // groups, *window), "weight"),
        *([Operand((filters,), "weight")] if bias else []),
    ]
    return kernel(
        family,
        "Convolution",
        operands,
        layout=layout,
        tail=tail,
        kernel=window,
        stride=(stride, stride),
        dilate=(dilate, dilate),
        pad=tuple(dilate * (side // 2) if is_padded else 0 for side in window),
        num_filter=filters,
        num_group=groups,
        no_bias=not bias,
    )


def _square(draw: Draw, *sides: int) -> tuple[int, int]:
    side = sides[draw.index(len(sides))]
    return side, side


def _oblong(draw: Draw, most: tuple[int, int]) -> tuple[int, int]:
    """Return a window as those that look along rows or columns have, and those of spectrograms."""
    if draw.chance(0.5):
        along = (3, 3, 5, 7)[draw.index(4)]
        return (1, along) if draw.chance(0.5) else (along, 1)
    return draw.size(2, most[0]), draw.size(2, most[1])


def _tail(draw: Draw) -> str:
    return str(draw.one_of("", "", "relu", "relu", "add", "add relu"))


def _pointwise(draw: Draw) -> Kernel:
    return _convolution(
        draw,
        "Convolution 1x1",
        window=(1, 1),
        c=draw.channels(),
        filters=draw.channels() if draw.chance(0.85) else draw.size(1, 32),
        layout=draw.layout(0.85),
        tail=_tail(draw),
        is_squeezed=draw.chance(_SQUEEZED),
    )


def _rows(draw: Draw) -> Kernel:
    rows, c, filters = draw.size(2, 64), BLOCK * draw.size(8, 256), BLOCK * draw.size(8, 256)
    while filters > BLOCK and c * filters > 4 * draw.most_elements:
        c, filters = max(BLOCK, c // 2), filters // 2
    return kernel(
        "Convolution 1x1 of rows",
        "Convolution",
        [
            Operand((1, c, rows, 1) if draw.chance(0.5) else (1, c, 1, rows)),
            Operand((filters, c, 1, 1), "weight"),
            Operand((filters,), "weight"),
        ],
        layout=draw.layout(0.5),
        tail=str(draw.one_of("", "relu")),
        kernel=(1, 1),
        num_filter=filters,
    )


def _spatial(draw: Draw) -> Kernel:
    return _convolution(
        draw,
        "Convolution",
        window=_oblong(draw, (11, 21)) if draw.chance(_OBLONG) else _square(draw, 3, 3, 3, 3, 5, 7, 9, 2),
        c=draw.channels(512),
        filters=draw.channels(512) if draw.chance(0.8) else draw.size(1, 32),
        layout=draw.layout(0.85),
        tail=_tail(draw),
    )


def _first(draw: Draw) -> Kernel:
    return _convolution(
        draw,
        "Convolution of few channels",
        window=_oblong(draw, (11, 41)) if draw.chance(_OBLONG) else _square(draw, 1, 3, 3, 5, 7, 9, 11),
        c=int(str(draw.one_of(1, 1, 2, 3, 3, 3, 4))),
        filters=draw.channels(256),
        layout=PLAIN,
        tail=str(draw.one_of("", "relu")),
    )


def _words(draw: Draw) -> Kernel:
    n, length, width, filters = draw.batch(), draw.size(8, 256), draw.size(16, 512), draw.channels(256)
    if draw.chance(0.4):  # vectors of words, and what looks for phrases, mostly have round sizes
        width, filters = 50 * draw.size(1, 8), 50 * draw.size(1, 6)
    size, bias = min(length, int(str(draw.one_of(1, 2, 3, 3, 4, 5, 7)))), draw.chance(0.8)
    while length > 2 * size and n * filters * length * width * size > draw.most_multiply_adds:
        length = max(2 * size, length * 3 // 4)
    return kernel(
        "Convolution of rows",
        "Convolution",
        [
            Operand((n, 1, length, width)),
            Operand((filters, 1, size, width), "weight"),
            *([Operand((filters,), "weight")] if bias else []),
        ],
        layout=PLAIN,
        tail=str(draw.one_of("", "relu", "relu")),
        kernel=(size, width),
        num_filter=filters,
        no_bias=not bias,
    )


def _depthwise(draw: Draw) -> Kernel:
    c = draw.channels()
    return _convolution(
        draw,
        "Convolution depthwise",
        window=_square(draw, 1, 3, 3, 3, 5, 5, 7),
        c=c,
        filters=c,
        groups=c,
        layout=draw.layout(0.85),
        tail=_tail(draw),
    )


def _grouped(draw: Draw) -> Kernel:
    groups, each = 2 ** draw.size(1, 5), 4 * draw.size(1, 16)
    return _convolution(
        draw,
        "Convolution grouped",
        window=_square(draw, 1, 3, 3),
        c=groups * each,
        filters=groups * each if draw.chance(0.7) else groups * 4 * draw.size(1, 16),
        groups=groups,
        layout=draw.layout(0.85),
        tail=_tail(draw),
    )


def _sequence(draw: Draw) -> Kernel:
    c, filters, size = draw.channels(512), draw.channels(512), int(str(draw.one_of(1, 3, 5, 7, 11)))
    n, s, bias = draw.batch(), max(size, draw.size(8, 512)), draw.chance(0.6)
    return kernel(
        "Convolution of sequences",
        "Convolution",
        [
            Operand((n, c, s)),
            Operand((filters, c, size), "weight"),
            *([Operand((filters,), "weight")] if bias else []),
        ],
        kernel=(size,),
        stride=(1,),
        pad=(size // 2,),
        num_filter=filters,
        no_bias=not bias,
    )


def _volume(draw: Draw) -> Kernel:
    c = 3 if draw.chance(0.2) else draw.channels(256)
    filters, depth, s, n = draw.channels(256), draw.size(2, 16), draw.size(4, 56), draw.batch()
    size = [(3, 3, 3), (1, 3, 3), (3, 1, 1), (1, 1, 1)][int(str(draw.one_of(0, 1, 2, 3)))]
    while s > 4 and n * filters * c * depth * s * s * math.prod(size) > draw.most_multiply_adds:
        s = max(4, s * 3 // 4)
    return kernel(
        "Convolution of volumes",
        "Convolution",
        [Operand((n, c, depth, s, s)), Operand((filters, c, *size), "weight")],
        kernel=size,
        stride=(1, 1, 1),
        pad=tuple(one // 2 for one in size),
        num_filter=filters,
        no_bias=True,
    )


def _deconvolution(draw: Draw) -> Kernel:
    size, stride, pad = [(4, 2, 1), (2, 2, 0), (3, 1, 1), (3, 2, 1), (4, 1, 0)][
        int(str(draw.one_of(0, 0, 1, 2, 3, 4)))
    ]
    c, filters = draw.channels(512), draw.channels(512) if draw.chance(0.7) else draw.size(1, 32)
    n, s = draw.batch(), draw.size(2, 64)
    while s > 2 and n * filters * c * (s * size) ** 2 > draw.most_multiply_adds:
        s = max(2, s * 3 // 4)
    return _upsampling("Deconvolution", draw, (n, c, s, s), filters, size, stride, pad)


def _one_place(draw: Draw) -> Kernel:
    c = int(str(draw.one_of(100, 100, 128))) if draw.chance(0.4) else draw.channels()
    filters, n, size = draw.channels(), draw.batch(), int(str(draw.one_of(2, 3, 4, 4, 4, 5, 7)))
    return _upsampling("Deconvolution of one place", draw, (n, c, 1, 1), filters, size, 1, 0)


def _upsampling(
    family: str, draw: Draw, data: tuple[int, ...], filters: int, size: int, stride: int, pad: int
) -> Kernel:
    bias = draw.chance(0.3)
    return kernel(
        family,
        "Deconvolution",
        [
            Operand(data),
            Operand((data[1], filters, size, size), "weight"),
            *([Operand((filters,), "weight")] if bias else []),
        ],
        layout=draw.layout() if math.prod(data[2:]) > 1 else PLAIN,
        kernel=(size, size),
        stride=(stride, stride),
        pad=(pad, pad),
        num_filter=filters,
        no_bias=not bias,
    )


def _dense(draw: Draw) -> Kernel:
    rows = 1 if draw.chance(0.4) else draw.size(2, 512)
    width = 16 * draw.size(1, 256) if draw.chance(0.6) else draw.size(4, 4096)
    units = 16 * draw.size(1, 256) if draw.chance(0.6) else draw.size(1, 4096)
    if draw.chance(0.15):  # the words of a vocabulary, told of a state
        width, units = draw.size(32, 1024), draw.size(4096, 65536)
    elif draw.chance(0.2):  # rows in whose time weights are most
        rows, width, units = draw.size(17, 64), BLOCK * draw.size(32, 256), BLOCK * draw.size(32, 256)
    return _product(draw, "FullyConnected", rows, width, units)


def _few_dense(draw: Draw) -> Kernel:
    rows, width, units = draw.size(2, 16), draw.size(16, 4096), draw.size(16, 4096)
    if draw.chance(0.6):
        width, units = BLOCK * draw.size(1, 256), BLOCK * draw.size(1, 256)
    elif draw.chance(0.25):
        width, units = draw.size(32, 1024), draw.size(4096, 65536)
    return _product(draw, "FullyConnected of few rows", rows, width, units)


def _product(draw: Draw, family: str, rows: int, width: int, units: int) -> Kernel:
    while units > 1 and (
        rows * width * units > draw.most_multiply_adds or width * units > 4 * draw.most_elements
    ):
        units //= 2
    bias = draw.chance(0.8)
    return kernel(
        family,
        "FullyConnected",
        [
            Operand((rows, width)),
            Operand((units, width), "weight"),
            *([Operand((units,), "weight")] if bias else []),
        ],
        tail=str(draw.one_of("", "", "relu")),
        num_hidden=units,
        no_bias=not bias,
        flatten=draw.chance(0.5),
    )


LAYERS: Mapping[str, tuple[float, Callable[[Draw], Kernel]]] = {
    "Convolution 1x1": (6, _pointwise),
    "Convolution 1x1 of rows": (1, _rows),
    "Convolution": (8, _spatial),
    "Convolution of few channels": (3, _first),
    "Convolution of rows": (1, _words),
    "Convolution depthwise": (4, _depthwise),
    "Convolution grouped": (3, _grouped),
    "Convolution of sequences": (2, _sequence),
    "Convolution of volumes": (2, _volume),
    "Deconvolution": (2.5, _deconvolution),
    "Deconvolution of one place": (0.5, _one_place),
    "FullyConnected": (4, _dense),
    "FullyConnected of few rows": (1.5, _few_dense),
}
"""Name -> how often it is drawn beside the others, and what draws it."""
