from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mxamp.dtypes import DType
from mxamp.errors import ParamsError
from mxamp.params import (
    Range,
    cast_array,
    magnitude_bound,
    magnitude_range,
    overflows,
    ranges,
    underflow_fraction,
    underflows_beyond,
)

FLOATS = [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64]

every_float = pytest.mark.parametrize("source", FLOATS, ids=str)
every_target = pytest.mark.parametrize("target", FLOATS, ids=str)

any_values = hnp.arrays(
    np.float64,
    st.integers(0, 30),
    elements=st.one_of(
        st.floats(),
        st.sampled_from(
            [0.0, -0.0, 65504.0, 65519.99, 65520.0, -65520.0, 2.0**-24, 2.0**-25, -(2.0**-25), 6e-8]
        ),
        st.floats(-8, 8).map(lambda exponent: 10.0**exponent),
    ),
)


def by_definition(array):
    wide = array.astype(np.float64)
    finite = np.abs(wide[np.isfinite(wide)])
    nonzero = finite[finite > 0]
    return Range(
        count=array.size,
        largest=float(finite.max(initial=0.0)),
        smallest=float(nonzero.min(initial=math.inf)),
        nans=int(np.isnan(wide).sum()),
        infs=int(np.isinf(wide).sum()),
    )


@every_float
@settings(deadline=None)
@given(values=any_values)
def test_the_range_is_that_of_the_definition(source, values):
    array = cast_array(values, source)
    assert magnitude_range(array) == by_definition(array)


@every_float
@every_target
@settings(deadline=None)
@given(values=any_values)
def test_overflow_is_predicted_as_the_cast_does_it(source, target, values):
    array = cast_array(values, source)
    new = np.isinf(cast_array(array, target).astype(np.float64)) & np.isfinite(array.astype(np.float64))
    assert overflows(array, target) == bool(new.any())


@every_float
@every_target
@settings(deadline=None)
@given(values=any_values)
def test_underflow_is_predicted_as_the_cast_does_it(source, target, values):
    array = cast_array(values, source)
    nonzero = array.astype(np.float64) != 0
    lost = nonzero & (cast_array(array, target).astype(np.float64) == 0)
    expected = lost.sum() / nonzero.sum() if nonzero.any() else 0.0
    assert underflow_fraction(array, target) == expected


def test_an_empty_array_has_no_magnitudes():
    assert magnitude_range(np.zeros((0, 3), np.float32)) == Range(0, 0.0, math.inf, 0, 0)
    assert not overflows(np.zeros(0, np.float32), DType.FLOAT16)
    assert underflow_fraction(np.zeros(0, np.float32), DType.FLOAT16) == 0.0


def test_zeros_alone_have_no_smallest_magnitude_and_lose_nothing():
    zeros = np.array([0.0, -0.0], np.float32)
    assert magnitude_range(zeros) == Range(2, 0.0, math.inf, 0, 0)
    assert underflow_fraction(zeros, DType.FLOAT16) == 0.0


def test_an_infinite_weight_does_not_count_as_overflow_but_a_large_one_beside_it_does():
    assert not overflows(np.array([np.inf, np.nan, 1], np.float32), DType.FLOAT16)
    assert overflows(np.array([np.inf, np.nan, -7e4], np.float32), DType.FLOAT16)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_exact_limits(sign):
    below, limit = np.nextafter(np.float32(65520), np.float32(0)), np.float32(65520)
    assert not overflows(np.array([sign * below]), DType.FLOAT16)
    assert overflows(np.array([sign * limit]), DType.FLOAT16)
    tie, above = np.float32(2.0**-25), np.nextafter(np.float32(2.0**-25), np.float32(1))
    assert underflow_fraction(np.array([sign * tie, sign * above, 0, 1]), DType.FLOAT16) == 1 / 3


def test_blocks_layout_and_byte_order_do_not_show(monkeypatch):
    values = np.random.default_rng(0).standard_normal((20, 30)).astype(np.float32)
    values[3, 4], values[7, 8], values[9] = np.nan, -np.inf, 1e-9
    expected = by_definition(values)
    monkeypatch.setattr(ranges, "BLOCK", 7)
    wide = np.zeros((40, 60), np.float32)
    wide[::2, ::2] = values
    for variant in (values, values.T, wide[::2, ::2], values.astype(">f4")):
        assert magnitude_range(variant) == expected
        assert underflow_fraction(variant, DType.FLOAT16) == 30 / 600
        assert not overflows(variant, DType.FLOAT16)


def test_a_scalar_has_a_range():
    assert magnitude_range(np.array(-2.5, np.float32)) == Range(1, 2.5, 2.5, 0, 0)
    assert overflows(np.array(1e5, np.float32), DType.FLOAT16)


def test_mxnets_structured_bfloat16_is_understood():
    values = np.array([1, -2.5], ml_dtypes.bfloat16).view(np.uint16).view([("bfloat16", np.uint16)])
    assert magnitude_range(values) == Range(2, 2.5, 1.0, 0, 0)


@pytest.mark.parametrize("measure", [overflows, underflow_fraction])
def test_integers_have_no_range(measure):
    with pytest.raises(ParamsError):
        measure(np.ones(3, np.int32), DType.FLOAT16)
    with pytest.raises(ParamsError):
        measure(np.ones(3, np.float32), DType.INT8)


def test_inputs_are_not_changed_and_may_be_read_only():
    values = np.array([1, 0, -1e-9, 1e9], np.float32)
    values.flags.writeable = False
    magnitude_range(values)
    overflows(values, DType.FLOAT16)
    assert underflow_fraction(values, DType.FLOAT16) == 1 / 3
    assert values.tolist() == np.array([1, 0, -1e-9, 1e9], np.float32).tolist()


@every_float
@every_target
@settings(deadline=None)
@given(values=any_values, share=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_stopping_early_gives_the_same_answer(source, target, values, share):
    array = cast_array(values, source)
    assert underflows_beyond(array, target, share) == (underflow_fraction(array, target) > share)


@every_float
@settings(deadline=None)
@given(values=any_values)
def test_no_finite_magnitude_exceeds_the_bound(source, values):
    array = cast_array(values, source)
    assert magnitude_bound(array) >= magnitude_range(array).largest


def test_the_bound_of_an_array_with_infinities_is_that_of_its_finite_values():
    assert magnitude_bound(np.array([np.inf, np.nan, -3], np.float32)) == 3


def test_the_bound_holds_where_blas_is_not_used():
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert magnitude_bound(values.T) >= 11
    assert magnitude_bound(np.zeros(0, np.float32)) >= 0
