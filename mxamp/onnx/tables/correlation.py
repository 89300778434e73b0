"""Correlation: how alike two images are, place by place, where one is displaced."""

from __future__ import annotations

from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tensor import Tensor


@mapping("Correlation", "Pad, and a Slice, Mul, ReduceMean, AveragePool for each displacement; Concat")
def _correlation(call: Call) -> Written:
    """Write a channel for each displacement (CorrelationForward in src/operator/correlation.cc)."""
    kernel, displaced = call.integer("kernel_size", 1), call.integer("max_displacement", 1)
    step, every = call.integer("stride1", 1), call.integer("stride2", 1)
    pad = call.integer("pad_size", 0)
    border = displaced + (kernel - 1) // 2
    sizes = [call.size(call.data, axis) + 2 * pad for axis in (2, 3)]
    # What the windows cover whose first corners are so far from the border as places are displaced.
    covered = [(-(-(size - 2 * border) // step) - 1) * step + kernel for size in sizes]
    edges = call.indices([0, 0, pad, pad] * 2)
    first, second = (
        call.emit("Pad", each, edges, call.scalar(0, each), mode="constant") if pad else each
        for each in call.inputs
    )

    def part(image: Tensor, top: int, left: int) -> Tensor:
        begins = [displaced + top, displaced + left]
        return call.slice(image, begins, [b + size for b, size in zip(begins, covered)], [2, 3])

    here = part(first, 0, 0)
    radius = displaced // every
    offsets = [number * every for number in range(-radius, radius + 1)]
    channels = []
    for top in offsets:
        for left in offsets:
            there = part(second, top, left)
            if call.flag("is_multiply", True):
                alike = call.emit("Mul", here, there)
            else:
                alike = call.emit("Abs", call.emit("Sub", here, there))
            mean = call.reduce("ReduceMean", alike, [1], keepdims=True)
            if kernel > 1 or step > 1:
                mean = call.emit("AveragePool", mean, kernel_shape=[kernel] * 2, strides=[step] * 2)
            channels.append(mean)
    return call.emit("Concat", *channels, axis=1)
