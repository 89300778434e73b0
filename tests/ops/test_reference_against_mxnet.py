"""MXNet's cast operators against their twins: where they agree, and where MXNet 1.9.1 deviates."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.ops import reference
from mxamp.ops.casts import multicast_dtypes
from tests.machines import needs_bfloat16

mx = pytest.importorskip("mxnet", reason="MXNet's operators are compared with their twins")

F16, BF16, F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32
FLOATS = (F32, F16, BF16)
PAIRS = [(source, target) for source in FLOATS for target in FLOATS if source is not target]
PAIR_IDS = [f"{source}-{target}" for source, target in PAIRS]


def float32_patterns() -> np.ndarray:
    """Return ordinary values, every exponent, every kind of tie, and subnormals of all formats; no NaN."""
    random = np.random.default_rng(20)
    patterns = random.integers(0, 2**32, 50_000, dtype=np.uint32)
    exponents = np.arange(255, dtype=np.uint32) << 23
    # A tie is a significand that ends in one and zeros where the format's ends.
    ties = [exponents | significand for significand in (0, 1, 0x1000, 0x3000, 0x8000, 0x1_8000, 0x7F_FFFF)]
    every = np.concatenate([patterns, *ties, *(tie | np.uint32(1 << 31) for tie in ties)]).view(np.float32)
    return every[~np.isnan(every)]


def values_of(dtype: DType) -> np.ndarray:
    return reference.amp_cast(float32_patterns(), dtype)


def to_mxnet(array: np.ndarray) -> Any:
    if array.dtype == ml_dtypes.bfloat16:
        # Cast truncates, and here it has nothing to cut off.
        return mx.nd.Cast(mx.nd.array(array.astype(np.float32)), dtype="bfloat16")
    return mx.nd.array(array, dtype=array.dtype)


def to_numpy(array: Any) -> np.ndarray:
    found = array.asnumpy()
    return found.view(ml_dtypes.bfloat16) if found.dtype.names else found


def bits(array: np.ndarray) -> np.ndarray:
    return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.itemsize])


def subnormal(values: np.ndarray) -> np.ndarray:
    return (values != 0) & (np.abs(values) < np.finfo(np.float32).tiny)


@needs_bfloat16
@pytest.mark.parametrize(("source", "target"), PAIRS, ids=PAIR_IDS)
def test_amp_cast_agrees_but_for_subnormals(source: DType, target: DType) -> None:
    data = values_of(source)
    cast, expected = (
        to_numpy(mx.nd.amp_cast(to_mxnet(data), dtype=target.label)),
        reference.amp_cast(data, target),
    )
    assert cast.dtype == expected.dtype
    different = bits(cast) != bits(expected)
    if (source, target) == (F32, BF16):
        # With avx512_bf16, the processor takes subnormal float32 inputs for zeros of their sign.
        np.testing.assert_array_equal(cast[different].astype(np.float32), 0)
        assert subnormal(data[different]).all()
    else:
        assert not different.any()


@needs_bfloat16
@pytest.mark.parametrize("cast_narrow", [False, True], ids=["wide", "narrow"])
def test_amp_multicast_agrees_but_for_subnormals(cast_narrow: bool) -> None:
    data = (values_of(F32), values_of(BF16), np.arange(5, dtype=np.int32))
    cast = mx.nd.amp_multicast(*map(to_mxnet, data), num_outputs=3, cast_narrow=cast_narrow)
    targets = multicast_dtypes(
        {"cast_narrow": str(cast_narrow)}, [DType.from_numpy(array.dtype) for array in data]
    )
    expected = [reference.amp_cast(array, target) for array, target in zip(data, targets)]
    for found, want, original in zip(map(to_numpy, cast), expected, data):
        assert found.dtype == want.dtype
        different = bits(found) != bits(want)
        np.testing.assert_array_equal(found[different].astype(np.float32), 0)
        assert subnormal(original[different].astype(np.float32)).all()


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=PAIR_IDS)
def test_nan_survives_amp_cast_with_its_sign(source: DType, target: DType) -> None:
    data = reference.amp_cast(np.array([np.nan, -np.nan], np.float32), source)
    cast = to_numpy(mx.nd.amp_cast(to_mxnet(data), dtype=target.label)).astype(np.float32)
    assert np.isnan(cast).all()
    np.testing.assert_array_equal(np.signbit(cast), np.signbit(data.astype(np.float32)))


@pytest.mark.parametrize("label", ["int8", "uint8", "int32"])
def test_amp_cast_and_amp_multicast_let_integers_pass(label: str) -> None:
    data = mx.nd.Cast(mx.nd.array([0, 1, 100]), dtype=label)
    for passed in passed_through(data):
        assert np.dtype(passed.dtype) == np.dtype(label)
        np.testing.assert_array_equal(passed.asnumpy(), data.asnumpy())


def passed_through(data: Any) -> tuple[Any, ...]:
    beside = mx.nd.ones(3)
    return (
        mx.nd.amp_cast(data, dtype="float16"),
        mx.nd.amp_multicast(data, beside, num_outputs=2)[0],
        mx.nd.amp_multicast(beside, data, num_outputs=2, cast_narrow=True)[1],
    )


# Where MXNet 1.9.1 deviates


@pytest.mark.parametrize("source", [F32, F16], ids=str)
def test_cast_to_bfloat16_truncates(source: DType) -> None:
    data = values_of(source)
    cast = to_numpy(mx.nd.Cast(to_mxnet(data), dtype="bfloat16"))
    wide = data.astype(np.float32)
    truncated = (wide.view(np.uint32) >> 16).astype(np.uint16)
    np.testing.assert_array_equal(bits(cast), truncated)
    assert (bits(cast) != bits(reference.amp_cast(data, BF16))).any()


def test_cast_to_bfloat16_makes_some_nan_infinite() -> None:
    nan = np.array([0x7F80_0001], np.uint32).view(np.float32)
    assert np.isinf(to_numpy(mx.nd.Cast(mx.nd.array(nan), dtype="bfloat16")).astype(np.float32))
    assert np.isnan(reference.amp_cast(nan, BF16).astype(np.float32))


def test_amp_cast_to_integers_rounds_but_from_float16() -> None:
    data = np.array([2.7, -2.7, 3.5, 300.2], np.float32)
    cast = {
        dtype: mx.nd.amp_cast(to_mxnet(reference.amp_cast(data, dtype)), dtype="int8") for dtype in FLOATS
    }
    np.testing.assert_array_equal(cast[F32].asnumpy(), [3, -3, 4, 127])
    np.testing.assert_array_equal(cast[BF16].asnumpy(), [3, -3, 4, 127])
    np.testing.assert_array_equal(cast[F16].asnumpy()[:3], [2, -2, 3])
    np.testing.assert_array_equal(reference.amp_cast(data[:3], "int8"), [2, -2, 3])


@pytest.mark.parametrize("dimensions", [7, 8])
def test_amp_casts_of_seven_dimensions_raise_but_with_float16(dimensions: int) -> None:
    data = mx.nd.ones((1,) * dimensions)
    assert mx.nd.amp_cast(data, dtype="float16").shape == data.shape
    with pytest.raises(mx.MXNetError, match=f"MKLDNN doesn't support {dimensions} dimensions"):
        mx.nd.amp_cast(data, dtype="bfloat16").asnumpy()
    with pytest.raises(mx.MXNetError, match=f"MKLDNN doesn't support {dimensions} dimensions"):
        mx.nd.amp_multicast(data, data, num_outputs=2)[0].asnumpy()
    assert reference.amp_cast(data.asnumpy(), BF16).shape == data.shape


def test_amp_cast_without_dimensions_raises() -> None:
    with mx.util.np_shape(True):
        data = mx.nd.ones(())
        with pytest.raises(mx.MXNetError, match="MKLDNN doesn't support 0 dimensions"):
            mx.nd.amp_cast(data, dtype="bfloat16").asnumpy()
    assert reference.amp_cast(np.ones((), np.float32), BF16).shape == ()


@pytest.mark.parametrize("label", ["float64", "int64", "bool"])
def test_what_onednn_does_not_know_passes_in_type_and_raises_in_value(label: str) -> None:
    data = mx.nd.Cast(mx.nd.array([0, 1, 1]), dtype=label)
    for passed in passed_through(data):
        assert np.dtype(passed.dtype) == np.dtype(label)
        with pytest.raises(mx.MXNetError, match="unknown type for MKLDNN"):
            passed.asnumpy()
    assert reference.amp_cast(data.asnumpy(), F16).dtype == label


@pytest.mark.parametrize("target", ["float64", "int64"])
def test_amp_cast_from_float32_has_no_such_target(target: str) -> None:
    with pytest.raises(mx.MXNetError, match="unknown type for MKLDNN"):
        mx.nd.amp_cast(mx.nd.ones(3), dtype=target).asnumpy()
    assert reference.amp_cast(np.ones(3, np.float32), target).dtype == target


def test_amp_multicast_of_float16_raises() -> None:
    low = mx.nd.ones(3, dtype="float16")
    with pytest.raises(mx.MXNetError, match="unknown type for MKLDNN"):
        mx.nd.amp_multicast(low, mx.nd.ones(3), num_outputs=2)[0].asnumpy()
    wide = reference.amp_cast(low.asnumpy(), F32)
    np.testing.assert_array_equal(wide, np.ones(3, np.float32))
