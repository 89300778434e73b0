from __future__ import annotations

import gc
import math
import os
import pickle

import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.errors import ModelFileNotFoundError, ParamsError
from mxamp.params import parameter, positioned, write_params
from mxamp.params.on_disk import FileParameter, open_parameters
from mxamp.params.parameter import ArrayParameter
from mxamp.params.positioned import PositionedFile

FLOATS = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)
LOW = (DType.FLOAT16, DType.BFLOAT16)


@pytest.fixture
def short_parts(monkeypatch):
    """Make a part so short that small tensors have several."""
    monkeypatch.setattr(parameter, "PART", 7)


def on_disk(path, values, *, aux=False):
    groups = ({}, {"w": values}) if aux else ({"w": values}, {})
    write_params(path, *groups)
    args, auxs = open_parameters(path)
    return (auxs if aux else args)["w"]


def numbers(shape, dtype=DType.FLOAT32):
    return np.random.default_rng(3).normal(size=shape).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", DType, ids=str)
def test_values_are_what_was_written(tmp_path, dtype):
    values = np.arange(24).reshape(2, 3, 4).astype(dtype.numpy)
    found = on_disk(tmp_path / "m.params", values)
    assert isinstance(found, FileParameter)
    assert found.is_on_disk
    assert (found.shape, found.dtype) == ((2, 3, 4), dtype)
    np.testing.assert_array_equal(found.values(), values)
    np.testing.assert_array_equal(found.numpy(), values)


def test_auxiliary_states_are_told_apart_and_keep_the_order_of_the_file(tmp_path):
    write_params(
        tmp_path / "m.params", {"b": numbers(2), "a": numbers(3)}, {"z": numbers(1), "y": numbers(4)}
    )
    args, auxs = open_parameters(tmp_path / "m.params")
    assert [list(args), list(auxs)] == [["b", "a"], ["z", "y"]]


def test_parts_are_the_values_in_order(tmp_path, short_parts):
    values = numbers((5, 9))
    found = on_disk(tmp_path / "m.params", values)
    parts = [part.copy() for part in found.parts()]
    assert [part.size for part in parts] == [7] * 6 + [3]
    np.testing.assert_array_equal(np.concatenate(parts), values.reshape(-1))
    np.testing.assert_array_equal(found.part(8, 20), values.reshape(-1)[8:20])


def test_in_memory_there_is_one_part():
    values = numbers((5, 9))
    (part,) = ArrayParameter(values).parts()
    assert part is values


@pytest.mark.parametrize(
    "values",
    [
        np.array([1e30, -2.0, 3e-9, np.nan, np.inf] * 6, np.float32),
        np.full(20, 1e-9, np.float32),
        np.array([65504.0, 65519.9, -65520.0] * 8, np.float32),
        np.zeros(20, np.float32),
        np.array([0.0, 1e-9, 1.0] * 9, np.float32),
        np.array([1e300, 1e-320, 5.0] * 9),
        np.empty((0, 3), np.float32),
    ],
    ids=["everything", "underflows", "near the limit", "zeros", "a third underflows", "float64", "empty"],
)
@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_range_is_measured_as_in_memory(tmp_path, short_parts, values, dtype):
    found, held = on_disk(tmp_path / "m.params", values), ArrayParameter(values)
    assert found.range_loss(dtype) == held.range_loss(dtype)
    with np.errstate(invalid="ignore"):
        magnitudes = np.abs(values[np.isfinite(values)])
    assert found.magnitude_bound >= magnitudes.max(initial=0.0)


def test_integers_have_no_range_to_lose(tmp_path):
    assert on_disk(tmp_path / "m.params", np.arange(9)).range_loss(DType.FLOAT16) is None


def test_range_is_measured_once(tmp_path, monkeypatch):
    found = on_disk(tmp_path / "m.params", numbers(40))
    found.range_loss(DType.FLOAT16)
    monkeypatch.setattr(PositionedFile, "read_into", None)
    assert found.range_loss(DType.FLOAT16) is None


def test_the_file_is_closed_when_the_last_parameter_goes(tmp_path):
    write_params(tmp_path / "m.params", {"w": numbers(4), "v": numbers(4)}, {})
    args, _ = open_parameters(tmp_path / "m.params")
    opened = args["w"]._file._file
    del args["w"]
    gc.collect()
    assert not opened.closed
    del args["v"]
    gc.collect()
    assert opened.closed


def test_a_file_that_is_replaced_under_its_name_is_still_read(tmp_path):
    path, values = tmp_path / "m.params", numbers(10)
    found = on_disk(path, values)
    write_params(path, {"w": values + 1}, {})
    np.testing.assert_array_equal(found.values(), values)
    path.unlink()
    np.testing.assert_array_equal(found.values(), values)


@pytest.mark.parametrize("damage", ["truncated", "written to"])
def test_a_file_that_is_changed_in_place_is_an_error_that_says_so(tmp_path, damage):
    path = tmp_path / "m.params"
    found = on_disk(path, numbers(100))
    with open(path, "r+b") as file:
        if damage == "truncated":
            file.truncate(200)
        else:
            file.seek(150)
            file.write(b"other")
    os.utime(path, ns=(1, 1))
    with pytest.raises(ParamsError, match=r"m\.params was changed since it was opened.*Load the model again"):
        found.values()


def test_a_pickle_holds_the_values(tmp_path):
    values = numbers((3, 4))
    again = pickle.loads(pickle.dumps(on_disk(tmp_path / "m.params", values)))
    np.testing.assert_array_equal(again.values(), values)


def test_without_positioned_reads_the_bytes_are_the_same(tmp_path, monkeypatch):
    monkeypatch.delattr(positioned.os, "preadv", raising=False)
    values = numbers((30, 40))
    np.testing.assert_array_equal(on_disk(tmp_path / "m.params", values).values(), values)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelFileNotFoundError, match=r"There is no parameter file .*none\.params"):
        open_parameters(tmp_path / "none.params")


def test_a_tensor_of_no_values_is_read(tmp_path):
    found = on_disk(tmp_path / "m.params", np.empty((0, 4), np.float32))
    assert found.values().shape == (0, 4)
    assert list(found.parts()) == []
    assert found.magnitude_bound == 0.0


def test_values_cannot_be_written_to(tmp_path):
    with pytest.raises(ValueError, match="read-only"):
        on_disk(tmp_path / "m.params", numbers(4)).values()[0] = math.pi
