"""What MXNet stores, and what exists in emulation only."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.dtypes import EMULATED_ONLY, LOW_PRECISION, DType
from mxamp.errors import TargetError
from mxamp.params.ranges import overflow_limit

EACH = pytest.mark.parametrize("dtype", EMULATED_ONLY, ids=str)


def test_iteration_lists_what_mxnet_stores() -> None:
    assert not set(DType) & set(EMULATED_ONLY)
    assert not LOW_PRECISION & set(EMULATED_ONLY)
    assert {member.label for member in EMULATED_ONLY} == {"tfloat32", "float8_e4m3fn", "float8_e5m2"}


@EACH
def test_what_is_only_emulated_is_one_object(dtype: DType) -> None:
    assert isinstance(dtype, DType)
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype
    assert DType.parse(dtype.label, emulated=True) is dtype
    assert dtype.is_low_precision
    assert dtype.is_float


@EACH
def test_no_file_holds_it(dtype: DType) -> None:
    with pytest.raises(TargetError, match="is not a dtype code of MXNet"):
        DType.from_code(dtype.value)
    for spelling in (dtype, dtype.label, dtype.label.upper()):
        with pytest.raises(TargetError, match=r"exists in emulation only.*mxamp\.emulate.*--emulate"):
            DType.parse(spelling)


def test_arrays_of_float8_are_not_mxnets() -> None:
    with pytest.raises(TargetError, match="is not a dtype of MXNet"):
        DType.from_numpy(ml_dtypes.float8_e5m2)


@pytest.mark.parametrize("dtype", [*sorted(LOW_PRECISION, key=str), *EMULATED_ONLY], ids=str)
def test_the_overflow_limit_is_where_rounding_overflows(dtype: DType) -> None:
    from mxamp.ops.reference import round_to

    limit = np.float32(overflow_limit(dtype))
    below = np.nextafter(limit, np.float32(0))
    rounded = round_to(np.array([below, limit], np.float32), dtype.label)
    assert np.isfinite(rounded).tolist() == [True, False]


@given(st.integers(-(2**31), 2**31))
def test_only_mxnets_codes_are_codes(code: int) -> None:
    if code in {member.value for member in DType}:
        assert DType.from_code(code).value == code
    else:
        with pytest.raises(TargetError):
            DType.from_code(code)


@pytest.mark.parametrize(
    ("alias", "label"),
    [("bf16", "bfloat16"), ("fp16", "float16"), ("FP32", "float32"), ("tf32", "tfloat32")],
)
def test_short_names_are_read_and_never_written(alias: str, label: str) -> None:
    assert DType.parse(alias, emulated=True).label == label


def test_short_names_are_no_names_of_files() -> None:
    with pytest.raises(TargetError, match="'bf16' is not a dtype of MXNet"):
        DType.parse("bf16", aliases=False)


@pytest.mark.parametrize("name", ["fp8", "f16", "bf"])
def test_names_that_say_too_little_stay_errors(name: str) -> None:
    with pytest.raises(TargetError, match="is not a dtype of MXNet"):
        DType.parse(name)
