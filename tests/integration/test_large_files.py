"""A parameter file converts in the memory of its parts, whatever its size; in a process of its own."""

from __future__ import annotations

import numpy as np
import pytest

import mxamp
from mxamp.dtypes import DType
from mxamp.model import load, model_paths
from mxamp.params import open_params
from tools.benchmark_files import convert_in_child
from tools.large_model import write_large_model

SIZE = 300_000_000
MORE_MEMORY = 60_000_000
"""Bytes that converting the large file may take beyond what converting a small one takes.

Two parts of 8 MiB are read ahead, one of 4 MiB is written, and NumPy holds a few temporaries.
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    write_large_model(str(folder / "large"), SIZE)
    write_large_model(str(folder / "small"), 1_000_000)
    yield folder
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.slow
def test_memory_does_not_grow_with_an_onnx_file_beyond_two_gigabytes(tmp_path):
    pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
    peaks = []
    for name, size in (("small", 1_000_000), ("large", 2_400_000_000)):
        write_large_model(str(tmp_path / name), size)
        output = tmp_path / f"{name}.onnx"
        found = convert_in_child(
            [str(tmp_path / name), "-o", str(output), "--input-shape", "data=1,3,14,14", "--quiet"],
            command="export",
            threads=1,
        )
        assert not found.imported_mxnet
        peaks.append(found.peak_bytes)
    data = output.with_name("large.onnx.data")
    assert data.stat().st_size == pytest.approx(size, rel=0.05)
    assert output.stat().st_size < 2_000_000
    data.unlink()
    assert peaks[1] - peaks[0] < MORE_MEMORY


def peak(models, name, *arguments):
    found = convert_in_child(
        [str(models / name), "-o", str(models / "out"), "--force", *arguments], threads=1
    )
    assert not found.imported_mxnet
    return found.peak_bytes


@pytest.mark.parametrize("native", [True, False], ids=["native", "NumPy"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_memory_does_not_grow_with_the_file(models, monkeypatch, dtype, native):
    monkeypatch.setenv("MXAMP_NATIVE", "1" if native else "0")
    small = peak(models, "small", "--dtype", dtype)
    large = peak(models, "large", "--dtype", dtype)
    assert large - small < MORE_MEMORY
    converted = load(models / "out")
    assert converted.arg_params["fc1_weight"].dtype is DType.parse(dtype)
    assert "block1_bn_gamma" not in converted.arg_params  # folded
    size = model_paths(models / "out")[1].stat().st_size
    assert size == pytest.approx(SIZE / 2, rel=0.05)


def test_memory_does_not_grow_where_range_is_lost_and_all_is_measured(models):
    params = model_paths(models / "large")[1]
    with open_params(params) as file:
        header = file.index.tensors["arg:fc1_weight"]
    last = header.offset + header.nbytes - 4
    before = np.fromfile(params, np.float32, 1, offset=last)
    try:
        with open(params, "r+b") as file:
            file.seek(last)
            file.write(np.float32(1e6).tobytes())
        small = peak(models, "small", "--dtype", "float16")
        large = peak(models, "large", "--dtype", "float16")
        assert large - small < MORE_MEMORY
        converted = load(models / "out")
        assert converted.arg_params["fc1_weight"].dtype is DType.FLOAT32
        assert converted.arg_params["block1_conv_weight"].dtype is DType.FLOAT16
    finally:
        with open(params, "r+b") as file:
            file.seek(last)
            file.write(before.tobytes())


def test_the_python_interface_streams_too(models):
    model = load(models / "small")
    converted = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "bfloat16")
    told = []
    converted.save(models / "python", progress=lambda done, total: told.append(done / total))
    assert told[-1] == 1.0
    peak(models, "small", "--dtype", "bfloat16")
    for ours, theirs in zip(model_paths(models / "python"), model_paths(models / "out")):
        assert ours.read_bytes() == theirs.read_bytes()
