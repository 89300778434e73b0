"""A softmax behind a rewritten mask gives what FP32 gave with the original, whatever the mask and the dtype.

The graphs are evaluated with NumPy, one rounding an operator. In FP32 the results must be equal to the bit;
in the low dtype the weights of masked elements must be exactly zero, those of rows that are masked throughout
exactly uniform, and the others within its rounding.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mxamp.dtypes import DType
from mxamp.graph import Entry, Graph
from mxamp.passes import RewriteMasks, RewrittenMask, run_passes
from mxamp.policy import Color, Policy
from tests.building import BF16, F16, F32, Net, capable, convert, state_for
from tests.passes.evaluation import Array, evaluate

LEAST = float(np.finfo(np.float32).min)
ROUNDING = {F16: 2.0**-9, BF16: 2.0**-6}
"""Relative error of a weight: a difference, an exponential, a sum and a quotient, each rounded once."""
ROWS, COLUMNS = 4, 6


def chosen(net: Net, value: float) -> Entry:
    scores = net.var("x")
    least = net.op("_mul_scalar", net.op("ones_like", scores), scalar=value)
    return net.op("where", net.var("m"), scores, least)


def added(net: Net, value: float) -> Entry:
    off = net.op("_equal_scalar", net.var("m"), scalar=0)
    return net.op("broadcast_add", net.var("x"), net.op("_mul_scalar", off, scalar=value))


def added_unknown(net: Net, value: float) -> Entry:
    off = net.op("_rminus_scalar", net.var("m"), scalar=1)
    return net.op("broadcast_add", net.var("x"), net.op("_mul_scalar", off, scalar=value))


def subtracted_unknown(net: Net, value: float) -> Entry:
    off = net.op("_rminus_scalar", net.var("m"), scalar=1)
    return net.op("broadcast_sub", net.var("x"), net.op("_mul_scalar", off, scalar=-value))


def chosen_and_biased(net: Net, value: float) -> Entry:
    return net.op("broadcast_add", chosen(net, value), net.var("bias"))


FORMS = {
    form.__name__: form for form in (chosen, added, added_unknown, subtracted_unknown, chosen_and_biased)
}


def original(form: str, value: float) -> Graph:
    net = Net()
    return net.graph(net.op("softmax", FORMS[form](net, value), name="weights"))


def scores_of(dtype: DType, largest: float) -> st.SearchStrategy[Array]:
    """Return scores that the dtype holds, so that only what the mask does can differ."""
    elements = st.floats(-largest, largest, width=32)
    return hnp.arrays(np.float32, (ROWS, COLUMNS), elements=elements).map(
        lambda scores: scores.astype(dtype.numpy).astype(np.float32)
    )


def check(found: Array, expected: Array, mask: Array, dtype: DType) -> None:
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    assert np.isfinite(found).all()
    some = (mask != 0).any(axis=-1)
    assert (found[some][mask[some] == 0] == 0).all()
    none = found[~some]
    assert (none == none[:, :1]).all()
    # An exponential of a rounded difference is off by the rounding of what it is raised to.
    np.testing.assert_allclose(found, expected, rtol=0, atol=16 * ROUNDING[dtype])


CASES = pytest.mark.parametrize("form", FORMS)
DTYPES = pytest.mark.parametrize(
    ("dtype", "value"),
    [(F16, -1e18), (F16, LEAST), (BF16, LEAST)],
    ids=["f16 1e18", "f16 least", "bf16 least"],
)
MASKS = hnp.arrays(np.float32, (ROWS, COLUMNS), elements=st.sampled_from([0.0, 1.0]))
FULL = np.zeros((ROWS, COLUMNS), np.float32)
EXTREME = np.tile(np.array([-3e4, 3e4, 20, -20, 0, 16], np.float32), (ROWS, 1))
"""Scores around which a sum with -65504 rounds apart, or overflows."""


@CASES
@DTYPES
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_in_float32_the_weights_are_the_same_to_the_bit(
    form: str, dtype: DType, value: float, data: st.DataObject
) -> None:
    """So a softmax or a sum that stays FP32 behind the rewritten mask computes what it always did."""
    values = {
        "x": data.draw(scores_of(F32, 3e4)),
        "m": data.draw(MASKS),
        "bias": data.draw(scores_of(F32, 1e3)),
    }
    before = original(form, value)
    done = run_passes([RewriteMasks()], state_for(before, {}, dtype))
    after, masks = done.graph, done.record(RewrittenMask)
    assert abs(masks[0].after or 0) == dtype.max_finite
    np.testing.assert_array_equal(evaluate(after, values), evaluate(before, values))


@CASES
@DTYPES
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_in_low_precision_masked_elements_weigh_nothing(
    form: str, dtype: DType, value: float, data: st.DataObject
) -> None:
    mask = data.draw(MASKS)
    mask[0] = 0
    check_converted(form, dtype, value, data.draw(scores_of(dtype, 16)), mask)


@CASES
@DTYPES
@pytest.mark.parametrize(
    "mask", [FULL, np.eye(ROWS, COLUMNS, dtype=np.float32)], ids=["all masked", "all but one"]
)
def test_extreme_scores_do_not_show_through_a_mask(
    form: str, dtype: DType, value: float, mask: Array
) -> None:
    check_converted(form, dtype, value, EXTREME, mask)


def check_converted(form: str, dtype: DType, value: float, scores: Array, mask: Array) -> None:
    """Compare a conversion with FP32, with the softmax in FP32 and with everything low."""
    before = original(form, value)
    values = {"x": scores, "m": mask, "bias": np.ones((ROWS, COLUMNS), np.float32)}
    expected = evaluate(before, values)
    for colors in ({}, {"softmax": Color.RED}, {"broadcast_add": Color.RED, "softmax": Color.GREEN}):
        policy = Policy.default(dtype)
        operators = ["broadcast_add", "broadcast_sub", "where", "softmax", "clip", "ones_like"]
        policy = policy.with_operators(Color.GREEN, operators, "everything low")
        for op, color in colors.items():
            policy = policy.with_operators(color, [op], "a mixture")
        model = convert(before, {}, dtype, policy=policy, target=capable(dtype))
        assert model.report is not None
        assert model.report.low_nodes > 0
        check(evaluate(model.graph, values), expected, mask, dtype)


def test_the_original_would_have_made_nan() -> None:
    """What the pass prevents: -1e18 is minus infinity in float16, and a row of it has no softmax."""
    net = Net()
    scores = net.op("amp_cast", net.var("x"), dtype="float16")
    least = net.op("_mul_scalar", net.op("ones_like", scores), scalar=-1e18)
    masked = net.op("where", net.var("m"), scores, least)
    weights = evaluate(net.graph(net.op("softmax", masked)), {"x": EXTREME, "m": FULL})
    assert np.isnan(weights.astype(np.float32)).all()
