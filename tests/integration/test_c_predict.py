"""A converted model runs in MXNet's C predict API, which has no Python and so no mxamp."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

import mxamp
from mxamp.compare.metrics import distance

ROOT = Path(__file__).resolve().parents[2]
FP32 = ROOT / "demo" / "cifar_resnet20_v1-digits"
_CPU = 1


def predict(prefix: Path, images: Any) -> Any:
    """Run a pair of files as a C program does: MXPredCreate, SetInput, Forward, GetOutput, Free."""
    library = ctypes.CDLL(mx.libinfo.find_lib_path()[0])
    library.MXGetLastError.restype = ctypes.c_char_p

    def call(name: str, *arguments: Any) -> None:
        assert getattr(library, name)(*arguments) == 0, library.MXGetLastError().decode()

    parameters = Path(f"{prefix}-0000.params").read_bytes()
    handle, shape, rank = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_uint32)(), ctypes.c_uint32()
    call(
        "MXPredCreate",
        ctypes.c_char_p(Path(f"{prefix}-symbol.json").read_bytes()),
        ctypes.c_char_p(parameters),
        ctypes.c_int(len(parameters)),
        ctypes.c_int(_CPU),
        ctypes.c_int(0),
        ctypes.c_uint32(1),
        (ctypes.c_char_p * 1)(b"data"),
        (ctypes.c_uint32 * 2)(0, images.ndim),
        (ctypes.c_uint32 * images.ndim)(*images.shape),
        ctypes.byref(handle),
    )
    try:
        floats = ctypes.POINTER(ctypes.c_float)
        call(
            "MXPredSetInput",
            handle,
            ctypes.c_char_p(b"data"),
            images.ctypes.data_as(floats),
            ctypes.c_uint32(images.size),
        )
        call("MXPredForward", handle)
        call("MXPredGetOutputShape", handle, ctypes.c_uint32(0), ctypes.byref(shape), ctypes.byref(rank))
        found = np.empty([shape[axis] for axis in range(rank.value)], np.float32)
        call(
            "MXPredGetOutput",
            handle,
            ctypes.c_uint32(0),
            found.ctypes.data_as(floats),
            ctypes.c_uint32(found.size),
        )
    finally:
        call("MXPredFree", handle)
    return found


def test_a_converted_model_runs_in_the_c_predict_api_with_the_bits_of_module(tmp_path: Path) -> None:
    with np.load(ROOT / "tours" / "digits.npz") as stored:
        pixels, labels = stored["pixels"][:16], stored["labels"][:16]
    images = ((pixels.astype(np.float32) / 255 - 0.31) / 0.36)[:, None].repeat(3, axis=1)
    images = np.ascontiguousarray(images, np.float32)
    model = mxamp.load(FP32)
    converted = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "bfloat16")
    converted.save(tmp_path / "digits-bf16")
    found = predict(tmp_path / "digits-bf16", images)
    module = mx.mod.Module.load(str(tmp_path / "digits-bf16"), 0, label_names=None)
    module.bind([("data", images.shape)], for_training=False)
    module.forward(mx.io.DataBatch([mx.nd.array(images)]), is_train=False)
    assert found.tobytes() == module.get_outputs()[0].asnumpy().tobytes()
    assert found.argmax(axis=1).tolist() == labels.tolist()
    # It is the converted model that ran: near FP32, and not the same.
    error = distance(predict(FP32, images), found).relative_l2
    assert 1e-4 < error < 2e-2
