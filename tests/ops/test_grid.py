"""Where rounding may be left out, leaving it out changes nothing; and scalars round as arrays do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.dtypes import EMULATED_ONLY, DType
from mxamp.ops import FACTS
from mxamp.ops.grid import keeps_grid, round_number, without_low_attributes
from mxamp.ops.reference import round_to

F16, BF16, F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32
FORMATS = (F16, BF16, *EMULATED_ONLY)
EACH_FORMAT = pytest.mark.parametrize("dtype", FORMATS, ids=str)


def keeps(op: str, inputs: list[DType | None], dtype: DType = F16, output: int = 0, **attrs: str) -> bool:
    facts = FACTS.get(op)
    assert facts is not None
    return keeps_grid(facts, attrs, inputs, dtype, output)


@EACH_FORMAT
@given(st.lists(st.floats(width=32), max_size=30))
def test_rounding_twice_is_rounding_once(dtype: DType, values: list[float]) -> None:
    once = round_to(np.array(values, np.float32), dtype.label)
    np.testing.assert_array_equal(round_to(once, dtype.label), once)


@EACH_FORMAT
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=30))
def test_operators_that_keep_the_grid_do(dtype: DType, values: list[float]) -> None:
    on_grid = round_to(np.array(values, np.float32), dtype.label)
    results = {
        "relu": np.maximum(on_grid, 0),
        "abs": np.abs(on_grid),
        "negative": -on_grid,
        "floor": np.floor(on_grid),
        "ceil": np.ceil(on_grid),
        "rint": np.rint(on_grid),
        "trunc": np.trunc(on_grid),
        "_maximum": np.maximum(on_grid, on_grid[::-1]),
        "Reshape": on_grid.reshape(1, -1),
        "Concat": np.concatenate([on_grid, on_grid]),
    }
    for op, result in results.items():
        assert keeps(op, [dtype, dtype], dtype)
        np.testing.assert_array_equal(round_to(result.astype(np.float32), dtype.label), result, err_msg=op)


@EACH_FORMAT
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_number_rounds_as_an_array_does(dtype: DType, value: float) -> None:
    expected = float(round_to(np.array([value], np.float32), dtype.label)[0])
    found = round_number(value, dtype)
    # float8_e4m3fn has no infinity; a number beyond its range is none of its values either way.
    assert found == expected or (math.isinf(found) and math.isnan(expected))


@pytest.mark.parametrize(
    "value", [0.0, -0.0, math.inf, -math.inf, 1.0, 65519.9, 65520.0, 2.0**-25, 5e-324, 464.0]
)
@EACH_FORMAT
def test_the_edges_of_a_range_round_right(dtype: DType, value: float) -> None:
    found = round_number(value, dtype)
    expected = float(round_to(np.array([value], np.float32), dtype.label)[0])
    assert found == expected or (math.isinf(found) and math.isnan(expected))


def test_a_float64_number_is_rounded_once() -> None:
    just_above_a_tie = 1.0 + 2.0**-11 + 2.0**-40  # float32 would round it to the tie, and that to 1
    assert round_number(just_above_a_tie, F16) == 1.0 + 2.0**-10


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Activation", {"act_type": "sigmoid"}),
        ("Pooling", {"pool_type": "avg"}),
        ("FullyConnected", {}),
        ("elemwise_add", {}),
        ("_mul_scalar", {"scalar": "2"}),
        ("Dropout", {"mode": "always"}),
        ("Pad", {"constant_value": "0.1"}),
        ("clip", {"a_min": "0", "a_max": "0.1"}),
        ("_maximum_scalar", {"scalar": "0.1"}),
        ("SequenceMask", {"value": "-1e30"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_new_values_does_not_keep_the_grid(op: str, attrs: dict[str, str]) -> None:
    assert not keeps(op, [F16, F16], **attrs)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Activation", {"act_type": "relu"}),
        ("Pooling", {"pool_type": "max"}),
        ("Pooling", {}),
        ("Dropout", {}),
        ("Pad", {"constant_value": "0.5"}),
        ("clip", {"a_min": "0", "a_max": "6.0"}),
        ("broadcast_greater", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_moves_or_chooses_values_keeps_the_grid(op: str, attrs: dict[str, str]) -> None:
    assert keeps(op, [F16, F16], **attrs)


def test_values_of_another_dtype_are_not_on_the_grid() -> None:
    assert not keeps("Concat", [F16, F32])
    assert not keeps("Concat", [F16, BF16])
    assert not keeps("Concat", [F16, None])


def test_positions_are_made_and_not_moved() -> None:
    assert keeps("topk", [F16], ret_typ="value")
    assert not keeps("topk", [F16], ret_typ="indices", dtype="float16")


def test_comparisons_are_exact_whatever_they_read() -> None:
    assert keeps("broadcast_equal", [F32, F32])


def test_low_attributes_become_float32() -> None:
    assert without_low_attributes("softmax", {"dtype": "float16", "axis": "1"}, [F16]) == {
        "dtype": "float32",
        "axis": "1",
    }
    assert without_low_attributes("_zeros_without_dtype", {"dtype": "2"}, []) == {"dtype": "0"}
    untouched = {"dtype": "float32", "scalar": "0.1"}
    assert without_low_attributes("softmax", untouched, [F16]) is untouched


def test_a_scalar_is_rounded_where_the_data_is_low() -> None:
    rounded = without_low_attributes("_mul_scalar", {"scalar": "0.1"}, [F16])
    assert float(rounded["scalar"]) == float(np.float16(0.1))
    wide, beyond, exact = {"scalar": "0.1"}, {"scalar": "-1e18"}, {"scalar": "255"}
    assert without_low_attributes("_mul_scalar", wide, [F32]) is wide
    assert without_low_attributes("_plus_scalar", beyond, [F16]) is beyond  # the result is rounded anyway
    assert without_low_attributes("_div_scalar", exact, [F16]) is exact
