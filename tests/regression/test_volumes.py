"""Networks for video: what follows a three-dimensional convolution in bfloat16.

MXNet 1.9.1 raises "could not create a primitive descriptor for a reorder primitive" where an operator that
only renames axes hands a bfloat16 tensor, blocked by a 3-D convolution of 16 channels, to one that wants it
plain. So such an operator computes in float32 there, and only there.
"""

from __future__ import annotations

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

import mxamp
from mxamp.compare.metrics import distance
from mxamp.model import Model
from mxamp.runtime.executor import run_outputs

CLIP = (1, 16, 4, 8, 8)
IMAGE = (1, 16, 8, 8)
TOLERANCE = 2e-2


def conv(data, *, axes=3, name="conv"):
    return mx.sym.Convolution(
        data, kernel=(3,) * axes, pad=(1,) * axes, num_filter=32, no_bias=True, name=name
    )


def global_pool(data):
    return mx.sym.Pooling(data, kernel=(1, 1, 1), global_pool=True, pool_type="avg", name="pool")


def reshape(data):
    return mx.sym.Reshape(data, shape=(0, 0, -1), name="moved")


def converted(sym, shape):
    shapes, _, aux_shapes = sym.infer_shape(data=shape)
    random = np.random.default_rng(0)
    args = {
        name: random.normal(0, 0.1, size).astype(np.float32)
        for name, size in zip(sym.list_arguments(), shapes)
        if name != "data"
    }
    auxs = {name: np.ones(size, np.float32) for name, size in zip(sym.list_auxiliary_states(), aux_shapes)}
    return Model.of(sym, args, auxs), mxamp.convert_model(sym, args, auxs, "bfloat16")


def dtype_of(model, name):
    return model.report.node(name).compute


DATA = mx.sym.var("data")

GRAPHS = {
    "C3D: Reshape before a mean": mx.sym.mean(reshape(global_pool(conv(DATA))), axis=1),
    "I3D non-local: Reshape before batch_dot": mx.sym.batch_dot(
        reshape(conv(DATA)), reshape(conv(DATA, name="conv2")), transpose_a=True
    ),
    "Flatten": mx.sym.Flatten(conv(DATA), name="moved"),
    "expand_dims": mx.sym.expand_dims(conv(DATA), axis=1, name="moved"),
    "behind an activation": reshape(mx.sym.Activation(conv(DATA), act_type="relu")),
    "behind a sum": reshape(mx.sym.elemwise_add(conv(DATA), conv(DATA, name="conv2"))),
    "behind Concat": reshape(mx.sym.concat(conv(DATA), conv(DATA, name="conv2"), dim=1)),
    "before FullyConnected": mx.sym.FullyConnected(
        mx.sym.Flatten(conv(DATA), name="moved"), num_hidden=64, name="dense"
    ),
}


@pytest.mark.parametrize("case", GRAPHS)
@pytest.mark.parametrize("fusion", [True, False])
def test_renaming_the_axes_of_a_volume_runs_and_agrees(case, fusion):
    model, low = converted(GRAPHS[case], CLIP)
    data = {"data": np.random.default_rng(1).standard_normal(CLIP).astype(np.float32)}
    (expected,), (actual,) = run_outputs(model, data, fusion=False), run_outputs(low, data, fusion=fusion)
    assert distance(expected, actual).relative_l2 < TOLERANCE
    assert dtype_of(low, "conv") == "bfloat16"
    assert not mxamp.convert_model(low.sym, low.args, low.auxs, "bfloat16").report.casts


def test_renamed_axes_of_a_volume_are_float32_and_the_reason_says_so():
    _, low = converted(GRAPHS["C3D: Reshape before a mean"], CLIP)
    (node,) = [node for node in low.report.nodes if node.op == "Reshape"]
    assert node.compute == "float32"
    assert "three-dimensional" in node.reason


def test_renaming_the_axes_of_an_image_stays_low():
    _, low = converted(reshape(conv(DATA, axes=2)), IMAGE)
    assert dtype_of(low, "moved") == "bfloat16"


def test_five_axes_without_a_volume_stay_low():
    """Channel shuffle: an image is split into groups, and its five axes are swapped and joined."""
    split = mx.sym.Reshape(conv(DATA, axes=2), shape=(0, -4, 4, -1, -2), name="split")
    joined = mx.sym.Reshape(mx.sym.SwapAxis(split, dim1=1, dim2=2), shape=(0, -3, -2), name="joined")
    _, low = converted(conv(joined, axes=2, name="conv2"), IMAGE)
    assert dtype_of(low, "split") == dtype_of(low, "joined") == "bfloat16"


def test_joining_volumes_stays_low():
    _, low = converted(mx.sym.concat(conv(DATA), conv(DATA, name="conv2"), dim=1, name="joined"), CLIP)
    assert dtype_of(low, "joined") == "bfloat16"
