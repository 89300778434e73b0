"""Pooling of regions of interest."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping

__all__: list[str] = []


@mapping("_contrib_ROIAlign", "RoiAlign; batch indices clipped", opset=16)
def _roi_align(call: Call) -> Written:
    if call.flag("position_sensitive"):
        call.refuse("with position_sensitive=True it has no mapping.")
    data, rois = call.inputs
    height, width = call.sizes("pooled_size")
    # MXNet reads outside the array for an index that no image has, such as the -1 of padding.
    images = call.bounded_indices(call.emit("Gather", rois, call.indices(0), axis=1), call.size(data, 0))
    return call.emit(
        *("RoiAlign", data, call.cast(call.slice(rois, [1], [5], [1]), data.dtype), images),
        coordinate_transformation_mode="half_pixel" if call.flag("aligned") else "output_half_pixel",
        mode="avg",
        output_height=height,
        output_width=width,
        sampling_ratio=max(0, call.integer("sample_ratio", -1)),
        spatial_scale=call.number("spatial_scale"),
    )


@mapping("ROIPooling", "MaxRoiPool")
def _roi_pooling(call: Call) -> Written:
    data, rois = call.inputs
    return call.emit(
        *("MaxRoiPool", data, call.cast(rois, data.dtype)),
        pooled_shape=list(call.sizes("pooled_size")),
        spatial_scale=call.number("spatial_scale"),
    )


@mapping("_image_to_tensor", "Cast, Transpose, Div")
def _image_to_tensor(call: Call) -> Written:
    rank = call.rank(call.data)
    values = call.cast(call.data, DType.FLOAT32)
    turned = call.transpose(values, [*range(rank - 3), rank - 1, rank - 3, rank - 2])
    return call.emit("Div", turned, call.scalar(255, turned))


@mapping("_image_normalize", "Sub, Div")
def _image_normalize(call: Call) -> Written:
    mean, std = (call.numbers(key, default) for key, default in (("mean", [0]), ("std", [1])))
    parts = [call.array(list(values), call.data.dtype) for values in (mean, std)]
    mean_, std_ = (call.reshape(part, [len(values), 1, 1]) for part, values in zip(parts, (mean, std)))
    return call.emit("Div", call.emit("Sub", call.data, mean_), std_)
