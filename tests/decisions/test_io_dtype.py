"""The dtype of the model's inputs and outputs, as the user asks for it."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.decisions import resolve_io_dtype
from mxamp.errors import PolicyError, UnknownNameError
from tests.building import BF16, F16, F32

INPUTS, OUTPUTS = ("data", "mask"), ("fc_output", "split_output0", "mask")


@pytest.mark.parametrize("requested", [None, "float32", F32, {}, {"data": "float32"}])
def test_fp32_is_what_nobody_asked_to_change(requested: Any) -> None:
    assert resolve_io_dtype(requested, F16, INPUTS, OUTPUTS) == ({}, {})


@pytest.mark.parametrize("requested", ["low", "float16", F16])
def test_low_is_everything(requested: Any) -> None:
    inputs, outputs = resolve_io_dtype(requested, F16, INPUTS, OUTPUTS)
    assert inputs == dict.fromkeys(INPUTS, F16)
    assert outputs == dict.fromkeys(OUTPUTS, F16)


def test_a_mapping_names_inputs_and_outputs_with_or_without_their_suffix() -> None:
    requested = {"data": "low", "fc": BF16, "split_output0": "bfloat16"}
    inputs, outputs = resolve_io_dtype(requested, BF16, INPUTS, OUTPUTS)
    assert inputs == {"data": BF16}
    assert outputs == {"fc_output": BF16, "split_output0": BF16}


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ("float61", "'float61' is not a dtype of MXNet.*Or 'low', which is float16 here"),
        ("bfloat16", "io_dtype is bfloat16, but a model converted to float16 has float32 or float16"),
        ("int8", "io_dtype is int8"),
        ({"data": "float64"}, r"io_dtype\['data'\] is float64"),
        ({"data": 3}, r"io_dtype\['data'\]"),
        (3, "io_dtype"),
        (["low"], "io_dtype"),
    ],
)
def test_a_dtype_that_cannot_be_is_refused(requested: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        resolve_io_dtype(requested, F16, INPUTS, OUTPUTS)


def test_an_unknown_name_suggests_and_lists_what_there_is() -> None:
    with pytest.raises(
        UnknownNameError, match=r"'dtaa'.*Did you mean 'data'.*Inputs: data, mask\. Outputs: fc_"
    ):
        resolve_io_dtype({"dtaa": "low"}, F16, INPUTS, OUTPUTS)
