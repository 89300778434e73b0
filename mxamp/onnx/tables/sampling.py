"""Images whose pixels are read at places that a network computes."""

from __future__ import annotations

import numpy as np

from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tensor import Tensor

_GRID_SAMPLE = 16
"""The first opset with GridSample."""


@mapping("BilinearSampler", "Transpose, GridSample", opset=_GRID_SAMPLE)
def _bilinear_sampler(call: Call) -> Written:
    return _sampled(call, call.data, call.inputs[1])


@mapping("GridGenerator", "MatMul with the places; Add, Div for a flow")
def _grid_generator(call: Call) -> Written:
    if call.text("transform_type") == "affine":
        return _affine_grid(call, call.data)
    # GridGeneratorForward in src/operator/grid_generator-inl.h: a flow is in pixels.
    height, width = call.size(call.data, 2), call.size(call.data, 3)
    columns, rows = np.meshgrid(np.arange(width), np.arange(height))
    halves = np.array([(width - 1) / 2, (height - 1) / 2]).reshape(1, 2, 1, 1)
    moved = call.emit("Add", call.data, call.array(np.stack([columns, rows])[None], call.data.dtype))
    scaled = call.emit("Div", moved, call.array(halves, call.data.dtype))
    return call.emit("Sub", scaled, call.scalar(1, scaled))


@mapping("SpatialTransformer", "MatMul with the places, Transpose, GridSample", opset=_GRID_SAMPLE)
def _spatial_transformer(call: Call) -> Written:
    return _sampled(call, call.data, _affine_grid(call, call.inputs[1]))


def _affine_grid(call: Call, transform: Tensor) -> Tensor:
    """Return where each pixel of a result is read, from -1 to 1: (samples, 2, height, width), x first."""
    height, width = call.sizes("target_shape")
    columns, rows = np.meshgrid(*(np.arange(size) * (2 / (size - 1)) - 1 for size in (width, height)))
    places = np.stack([columns.ravel(), rows.ravel(), np.ones(height * width)])
    matrix = call.reshape(transform, [-1, 2, 3])
    grid = call.emit("MatMul", matrix, call.array(places, transform.dtype))
    return call.reshape_to(grid, [*call.lengths(grid)[:2], height, width])


def _sampled(call: Call, data: Tensor, grid: Tensor) -> Tensor:
    """Return the pixels at the places of a grid; outside of the image they are zero."""
    # From opset 20 on it is "linear".
    mode = "linear" if call.opset >= 20 else "bilinear"
    grid = call.transpose(grid, [0, 2, 3, 1])
    return call.emit("GridSample", data, grid, mode=mode, padding_mode="zeros", align_corners=1)
