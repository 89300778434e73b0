"""Pooling of regions of interest."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping


@mapping("_contrib_ROIAlign", "RoiAlign, zeros where the batch index is negative", opset=16)
def _roi_align(call: Call) -> Written:
    """Write the pooling, and zeros for a region of no image, as the kernel for GPUs does.

    Networks with a feature pyramid sum the poolings of all levels, and give a region the index -1 on all
    levels but its own. MXNet's kernel for CPUs (ROIAlignForward in src/operator/contrib/roi_align.cc) leaves
    such a region's values as they were in memory, and sets a value of another region to 0.
    """
    if call.flag("position_sensitive"):
        call.refuse("with position_sensitive=True it has no mapping.")
    data, rois = call.inputs
    height, width = call.sizes("pooled_size")
    # Truncated, as MXNet does: -0.5 is the image 0.
    images = call.cast(call.emit("Gather", rois, call.indices(0), axis=1), DType.INT64)
    pooled = call.emit(
        *("RoiAlign", data, call.cast(call.slice(rois, [1], [5], [1]), data.dtype)),
        call.bounded_indices(images, call.size(data, 0)),
        coordinate_transformation_mode="half_pixel" if call.flag("aligned") else "output_half_pixel",
        mode="avg",
        output_height=height,
        output_width=width,
        sampling_ratio=max(0, call.integer("sample_ratio", -1)),
        spatial_scale=call.number("spatial_scale"),
    )
    of_none = call.emit("Less", images, call.indices(0))
    return call.emit("Where", call.unsqueeze(of_none, 1, 2, 3), call.scalar(0, pooled), pooled)


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
