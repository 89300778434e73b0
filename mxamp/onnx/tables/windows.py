"""Windows of an image as columns, and columns added up to an image."""

from __future__ import annotations

import itertools
import math

from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tables.layers import padded


@mapping("im2col", "Pad, a Slice for each place of a window, Concat, Reshape")
def _im2col(call: Call) -> Written:
    """Write a row for each channel and place of a window (im2col in src/operator/nn/im2col.h)."""
    image, kernel = call.data, call.sizes("kernel")
    count = len(kernel)
    ones, axes = [1] * count, list(range(2, 2 + count))
    stride, dilate = call.sizes("stride", ones), call.sizes("dilate", ones)
    pad = call.sizes("pad", [0] * count)
    whole = [call.size(image, axis) + 2 * more for axis, more in zip(axes, pad)]
    steps = [
        (size - hole * (window - 1) - 1) // step
        for size, window, hole, step in zip(whole, kernel, dilate, stride)
    ]
    if any(pad):
        image = padded(call, [width for each in (0, 0, *pad) for width in (each, each)])
    places = []
    for place in itertools.product(*map(range, kernel)):
        begins = [number * hole for number, hole in zip(place, dilate)]
        ends = [begin + last * step + 1 for begin, last, step in zip(begins, steps, stride)]
        places.append(call.unsqueeze(call.slice(image, begins, ends, axes, stride), 2))
    batch, channels = call.lengths(call.data)[0], call.size(call.data, 1)
    columns = call.emit("Concat", *places, axis=2)
    return call.reshape_to(columns, [batch, channels * len(places), math.prod(last + 1 for last in steps)])


@mapping("col2im", "Col2Im", opset=18)
def _col2im(call: Call) -> Written:
    count = len(call.sizes("kernel"))
    ones = [1] * count
    return call.emit(
        "Col2Im",
        *(call.data, call.indices(call.sizes("output_size")), call.indices(call.sizes("kernel"))),
        dilations=call.sizes("dilate", ones),
        pads=call.sizes("pad", [0] * count) * 2,
        strides=call.sizes("stride", ones),
    )
