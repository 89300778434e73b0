"""What a target's document says of layers that a BatchNorm folds into."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.dtypes import DType
from mxamp.probe.document import make_document
from mxamp.probe.jobs import TIME, Unit
from mxamp.probe.known import FOLD_INTO
from mxamp.probe.workers import Answer

MACHINE = {"mxnet": "1.9.1", "cpu": "a CPU", "threads": 1}


def timed(*microseconds: float) -> Answer:
    return Answer([{"dims": [n], "us": {"float32": us, "low": us}} for n, us in enumerate(microseconds)])


def document(answers: dict[Unit, Answer]) -> dict[str, Any]:
    return make_document(
        {}, answers, name="mine", description="", machine=MACHINE, dtype=DType.BFLOAT16, device="cpu"
    )


@pytest.mark.parametrize("op", sorted(FOLD_INTO))
@pytest.mark.parametrize(
    ("with_bias", "folds"),
    [
        pytest.param((11.0, 22.0, 200.0), True, id="a cheap bias"),
        pytest.param((11.0, 80.0, 200.0), False, id="a slow bias"),
    ],
)
def test_a_layer_that_a_bias_makes_slow_is_not_folded_into(
    op: str, with_bias: tuple[float, ...], folds: bool
) -> None:
    without_case, biased_case = FOLD_INTO[op]
    answers = {Unit(without_case, TIME): timed(10.0, 20.0, 40.0), Unit(biased_case, TIME): timed(*with_bias)}
    assert (op in document(answers)["fold_into"]) is folds


def test_a_batch_norm_folds_into_a_convolution_whatever_a_bias_costs_alone() -> None:
    answers = {
        Unit("Convolution 3x3", TIME): timed(10.0, 20.0),
        Unit("Convolution 3x3 bias", TIME): timed(100.0, 200.0),
    }
    assert document(answers)["fold_into"] == ["Convolution", *FOLD_INTO]


def test_layers_that_were_not_timed_are_folded_into() -> None:
    assert document({})["fold_into"] == ["Convolution", "Deconvolution", "FullyConnected"]
