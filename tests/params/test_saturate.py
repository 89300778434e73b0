"""Clamping a parameter to a dtype's range: which values, to what, and what is said about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mxamp.dtypes import DType
from mxamp.params.parameter import ArrayParameter
from mxamp.params.saturate import saturate, saturate_parameters
from mxamp.params.scaled import ScaledParameter
from tests.building import BF16, F16, F32

Array = np.ndarray[Any, Any]


def parameter(*values: float) -> ArrayParameter:
    return ArrayParameter(np.array(values, np.float32))


def test_values_beyond_the_range_become_the_largest_finite_one() -> None:
    clamped, lost = saturate(parameter(1, -1e6, 7e4, 65504, -2), F16)
    np.testing.assert_array_equal(clamped.cast(F16).numpy(), np.float16([1, -65504, 65504, 65504, -2]))
    assert lost is not None
    assert (lost.count, lost.largest, lost.limit) == (2, 1e6, 65504.0)
    assert (lost.infs, lost.nans) == (0, 0)


def test_what_only_rounds_to_the_largest_value_is_not_counted() -> None:
    """Half an ulp beyond the largest value is where infinity begins."""
    clamped, lost = saturate(parameter(65519), F16)
    assert lost is None
    assert clamped.cast(F16).numpy()[0] == 65504
    _, lost = saturate(parameter(65520), F16)
    assert lost is not None
    assert lost.count == 1


def test_infinity_and_nan_stay_and_are_mentioned() -> None:
    clamped, lost = saturate(parameter(np.inf, -np.inf, np.nan, 1e5), F16)
    np.testing.assert_array_equal(
        clamped.cast(F16).numpy().astype(np.float32), [np.inf, -np.inf, np.nan, 65504]
    )
    assert lost is not None
    assert (lost.count, lost.largest, lost.infs, lost.nans) == (1, 1e5, 2, 1)


def test_infinity_alone_is_mentioned_and_nothing_is_clamped() -> None:
    given_, lost = saturate(parameter(np.inf, 1), F16)
    assert lost is not None
    assert (lost.count, lost.largest, lost.infs) == (0, 0.0, 1)
    np.testing.assert_array_equal(given_.cast(F16).numpy(), np.float16([np.inf, 1]))


def test_a_parameter_that_fits_is_returned_itself() -> None:
    fits = parameter(1, 2)
    assert saturate(fits, F16) == (fits, None)


def test_in_its_own_dtype_a_parameter_is_not_clamped() -> None:
    """One that is stored in both dtypes keeps its values in float32."""
    clamped, _ = saturate(parameter(1e6), F16)
    assert clamped.cast(F32).numpy()[0] == 1e6


def test_nothing_of_the_callers_is_changed() -> None:
    values = np.array([1e6, np.inf], np.float32)
    saturate(ArrayParameter(values), F16)[0].cast(F16)
    np.testing.assert_array_equal(values, np.float32([1e6, np.inf]))


def test_float32s_largest_value_is_beyond_bfloat16() -> None:
    largest = float(np.finfo(np.float32).max)
    clamped, lost = saturate(parameter(largest, -largest, 1e38), BF16)
    stored = clamped.cast(BF16).numpy().astype(np.float64)
    assert np.isfinite(stored).all()
    assert stored[0] == -stored[1] == BF16.max_finite
    assert lost is not None
    assert lost.count == 2


def test_a_scaled_parameter_is_clamped_after_it_is_scaled() -> None:
    scaled = ScaledParameter(parameter(100, 100), np.array([1000.0, 0.001]))
    clamped, lost = saturate(scaled, F16)
    np.testing.assert_array_equal(clamped.cast(F16).numpy(), np.float16([65504, 0.1]))
    assert lost is not None
    assert (lost.count, lost.largest) == (1, 1e5)


def test_only_what_is_cast_is_looked_at() -> None:
    params = {"a": parameter(1e6), "b": parameter(1e6), "c": parameter(1)}
    fitting, lost = saturate_parameters(params, {"a": [F16], "c": [F16]})
    assert list(fitting) == ["a", "b", "c"]
    assert fitting["b"] is params["b"]
    assert fitting["c"] is params["c"]
    assert set(lost) == {"a"}


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@given(
    values=hnp.arrays(
        np.float32, st.integers(1, 20), elements=st.floats(width=32, allow_nan=True, allow_infinity=True)
    )
)
def test_nothing_finite_ever_becomes_infinite(dtype: DType, values: Array) -> None:
    clamped, lost = saturate(ArrayParameter(values), dtype)
    stored = clamped.cast(dtype).numpy().astype(np.float64)
    with np.errstate(all="ignore"):
        plain = values.astype(dtype.numpy).astype(np.float64)
    np.testing.assert_array_equal(np.isinf(stored), np.isinf(values))
    np.testing.assert_array_equal(np.isnan(stored), np.isnan(values))
    overflowed = np.isinf(plain) & np.isfinite(values)
    np.testing.assert_array_equal(stored[~overflowed], plain[~overflowed])
    assert (np.abs(stored[overflowed]) == dtype.max_finite).all()
    assert (lost.count if lost is not None else 0) == overflowed.sum()
