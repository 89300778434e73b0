from __future__ import annotations

import io
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxamp.dtypes import DType
from mxamp.errors import ParamsError
from mxamp.params import parameter, postponed, stream, write_params
from mxamp.params.on_disk import open_parameters
from mxamp.params.parameter import ArrayParameter
from mxamp.params.postponed import CastLoss, PostponedCast
from mxamp.params.saturate import saturate
from mxamp.params.scaled import ScaledParameter
from mxamp.params.stream import stream_params
from mxamp.params.unmeasured import UnmeasuredParameter
from mxamp.params.writer import encode_params

LOW = (DType.FLOAT16, DType.BFLOAT16)
every_low = pytest.mark.parametrize("dtype", LOW, ids=str)
every_route = pytest.mark.parametrize("native", [True, False], ids=["native", "NumPy"])


@pytest.fixture
def route(native, monkeypatch):
    monkeypatch.setenv("MXAMP_NATIVE", "1" if native else "0")


def use_short_parts(monkeypatch, size):
    for module in (parameter, postponed, stream):
        monkeypatch.setattr(module, "PART", size)


def on_disk(path, values):
    write_params(path, {"w": values}, {})
    return open_parameters(path)[0]["w"]


def awkward(shape, seed=5):
    """Values of all magnitudes, with infinities, zeros and every kind of NaN."""
    bits = np.random.default_rng(seed).integers(0, 1 << 32, shape, np.uint64).astype(np.uint32)
    return bits.view(np.float32)


def assert_same_bits(found, expected):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))


SCALES = {
    "not scaled": None,
    "one factor a row": (6, 1, 1, 1),
    "one factor a row and column": (6, 5, 1, 1),
    "one factor": (1, 1, 1, 1),
}


@every_low
@every_route
@pytest.mark.parametrize("part", [1, 7, 45, 10_000], ids=lambda size: f"parts of {size}")
@pytest.mark.parametrize("factors", SCALES.values(), ids=SCALES)
@pytest.mark.usefixtures("route")
def test_a_cast_in_parts_has_the_bits_of_a_cast_in_memory(tmp_path, monkeypatch, dtype, part, factors):
    values = awkward((6, 5, 3, 3))
    use_short_parts(monkeypatch, part)
    found, held = on_disk(tmp_path / "m.params", values), ArrayParameter(values)
    if factors is not None:
        scale = np.random.default_rng(1).normal(size=factors)
        found, held = ScaledParameter(UnmeasuredParameter(found), scale), ScaledParameter(held, scale)
    cast = PostponedCast(found, dtype)
    expected = held.cast(dtype).values()
    assert_same_bits(cast.values(), expected)
    assert_same_bits(cast.part(11, 200), expected.reshape(-1)[11:200])
    file = io.BytesIO()
    stream_params(file, {"w": cast}, {})
    reference = io.BytesIO()
    encode_params(reference, {"w": expected}, {})
    assert file.getvalue() == reference.getvalue()


@every_low
def test_clamped_values_are_cast_in_parts_as_in_memory(tmp_path, monkeypatch, dtype):
    values = awkward((40, 30))
    use_short_parts(monkeypatch, 64)
    (found, disk_loss), (held, loss) = (
        saturate(value, dtype) for value in (on_disk(tmp_path / "m.params", values), ArrayParameter(values))
    )
    assert disk_loss == loss
    assert_same_bits(PostponedCast(found, dtype).values(), held.cast(dtype).values())


def test_scaled_values_are_the_same_in_parts(tmp_path, monkeypatch):
    values = np.random.default_rng(2).normal(size=(8, 5)).astype(np.float32)
    use_short_parts(monkeypatch, 7)
    scale = np.random.default_rng(3).normal(size=(8, 1))
    found = ScaledParameter(on_disk(tmp_path / "m.params", values), scale)
    parts = [part.copy() for part in found.parts()]
    np.testing.assert_array_equal(np.concatenate(parts), found.values().reshape(-1))


@every_route
@pytest.mark.parametrize(
    ("values", "dtype", "scaled", "loses"),
    [
        (np.ones(40), DType.FLOAT16, False, False),
        (np.r_[np.ones(39), 65520.0], DType.FLOAT16, False, True),
        (np.r_[np.ones(39), 65519.0], DType.FLOAT16, False, False),
        (np.r_[np.ones(39), 65520.0], DType.BFLOAT16, False, False),
        (np.r_[np.ones(39), 3.4e38], DType.BFLOAT16, False, True),
        (np.full(40, 1e-9), DType.FLOAT16, False, True),
        (np.full(40, 1e-9), DType.FLOAT16, True, False),
        (np.full(40, 1e-9), DType.BFLOAT16, False, False),
        (np.r_[np.full(10, 1e-9), np.ones(30)], DType.FLOAT16, False, False),
        (np.full(40, np.nan), DType.FLOAT16, False, True),  # looked at again, for who has NaN is told
    ],
    ids=[
        "ordinary",
        "overflow",
        "just below the limit",
        "large in bfloat16",
        "overflow of bfloat16",
        "underflow",
        "underflow once scaled",
        "small in bfloat16",
        "a quarter underflows",
        "NaN",
    ],
)
@pytest.mark.usefixtures("route")
def test_a_cast_in_parts_sees_what_is_out_of_range(tmp_path, monkeypatch, values, dtype, scaled, loses):
    use_short_parts(monkeypatch, 16)
    found = on_disk(tmp_path / "m.params", values.astype(np.float32))
    cast = PostponedCast(ScaledParameter(found, np.ones(1)) if scaled else found, dtype)
    assert cast.loses_range() is loses
    assert stream_params(io.BytesIO(), {"w": cast}, {}).may_have_lost is loses


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    part=st.integers(1, 50),
    kinds=st.lists(st.sampled_from(["memory", "disk", "cast"]), min_size=6, max_size=6),
)
@settings(max_examples=40, deadline=None)
def test_any_mixture_is_written_as_from_memory(tmp_path_factory, sizes, part, kinds):
    path = tmp_path_factory.mktemp("stream") / "m.params"
    arrays = {f"w{number}": awkward(size, number) for number, size in enumerate(sizes)}
    write_params(path, arrays, {})
    stored, _ = open_parameters(path)
    params, expected = {}, {}
    for (name, array), kind in zip(arrays.items(), kinds):
        if kind == "cast":
            params[name] = PostponedCast(stored[name], DType.FLOAT16)
            expected[name] = ArrayParameter(array).cast(DType.FLOAT16).values()
        else:
            params[name] = stored[name] if kind == "disk" else ArrayParameter(array)
            expected[name] = array
    found, reference = io.BytesIO(), io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        use_short_parts(patch, part)
        stream_params(found, params, {})
    encode_params(reference, expected, {})
    assert found.getvalue() == reference.getvalue()


def test_progress_rises_to_all_bytes(tmp_path, monkeypatch):
    use_short_parts(monkeypatch, 10)
    found = on_disk(tmp_path / "m.params", awkward(45))
    told = []
    stream_params(
        io.BytesIO(),
        {"a": PostponedCast(found, DType.FLOAT16), "b": found},
        {"c": ArrayParameter(np.ones(3, np.float32))},
        progress=lambda done, total: told.append((done, total)),
    )
    done = [count for count, _ in told]
    assert done == sorted(done)
    assert told[-1] == (45 * 6 + 12, 45 * 6 + 12)


def test_a_file_that_changes_meanwhile_is_an_error(tmp_path):
    found = on_disk(tmp_path / "m.params", awkward(45))
    with open(tmp_path / "m.params", "ab") as file:
        file.write(b"more")
    os.utime(tmp_path / "m.params", ns=(1, 1))
    with pytest.raises(ParamsError, match="was changed since it was opened"):
        stream_params(io.BytesIO(), {"w": PostponedCast(found, DType.FLOAT16)}, {})


def test_what_the_disk_refuses_is_told(tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stream, "SYNC_EVERY", 8)
    monkeypatch.setattr(stream.os, "fdatasync", fail)
    found = on_disk(tmp_path / "m.params", awkward(4500))
    with open(tmp_path / "out", "wb") as file, pytest.raises(OSError, match="No space left"):
        stream_params(file, {"w": PostponedCast(found, DType.FLOAT16)}, {})


def test_an_error_of_the_reader_leaves_no_thread(tmp_path, monkeypatch):
    use_short_parts(monkeypatch, 10)
    found = on_disk(tmp_path / "m.params", awkward(45))

    def fail(values, start, out, loss):
        raise KeyboardInterrupt

    cast = PostponedCast(found, DType.FLOAT16)
    monkeypatch.setattr(cast, "cast_part", fail)
    before = stream.threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        stream_params(io.BytesIO(), {"w": cast}, {})
    assert stream.threading.active_count() == before


def test_a_pickle_of_a_postponed_cast_holds_the_values(tmp_path):
    cast = PostponedCast(on_disk(tmp_path / "m.params", awkward(45)), DType.BFLOAT16)
    again = pickle.loads(pickle.dumps(cast))
    assert_same_bits(again.values(), cast.values())


def test_losses_add_up_over_parts(tmp_path):
    values = np.array([1e30, 0.0, -1e30, 1e-30, 2.0], np.float32)
    cast, loss = PostponedCast(on_disk(tmp_path / "m.params", values), DType.FLOAT16), CastLoss()
    for start, stop in ((0, 2), (2, 5)):
        cast.cast_part(cast.source_part(start, stop), start, np.empty(stop - start, np.float16), loss)
    assert loss == CastLoss(infinite=2, zero=2)
