"""Which operators draw numbers, by the names that MXNet has."""

from __future__ import annotations

import re

import pytest

from mxamp.ops.drawn import draws_numbers


@pytest.mark.parametrize(
    "op",
    [
        *("_random_normal", "random_uniform", "_random_gamma_like", "_random_randint", "normal", "uniform"),
        *("_sample_normal", "sample_multinomial", "_sample_unique_zipfian", "_shuffle", "shuffle"),
        *("_npi_normal_n", "_npi_bernoulli", "_npi_choice", "_npi_multinomial", "_npi_gamma", "Custom"),
        *("_image_random_flip_left_right", "_npx__image_random_hue"),
    ],
)
def test_these_draw(op: str) -> None:
    assert draws_numbers(op, {})


@pytest.mark.parametrize(
    "op",
    [
        *("gamma", "_npx_gamma", "_image_normalize", "L2Normalization", "BilinearSampler", "UpSampling"),
        *("_random_pdf_normal", "random_pdf_uniform", "RNN", "Convolution", "_npi_norm", "_zeros"),
    ],
)
def test_these_do_not(op: str) -> None:
    assert not draws_numbers(op, {})


@pytest.mark.parametrize("op", ["Dropout", "_npx_dropout"])
def test_a_dropout_draws_where_it_is_told_to_drop_always(op: str) -> None:
    assert draws_numbers(op, {"p": "0.5", "mode": "always"})
    assert not draws_numbers(op, {"p": "0.5"})
    assert not draws_numbers(op, {"p": "0.5", "mode": "training"})


def test_every_operator_of_mxnet_that_needs_random_numbers_is_known() -> None:
    mx = pytest.importorskip("mxnet", reason="its operators are asked")
    names = [name for name in mx.operator.get_all_registered_operators() if not name.startswith("_backward")]
    told = re.compile(r"random_|sample_|shuffle|multinomial|bernoulli|choice|normal(_n)?$|uniform(_n)?$")
    drawn = [name for name in names if told.search(name) and "_pdf_" not in name]
    assert len(drawn) > 50
    assert not [name for name in drawn if not draws_numbers(name, {})]
