"""What reads a sparse input stays FP32: MXNet casts dense tensors alone, and a cast would make it dense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="makes sparse symbols and runs them")

import mxamp
from mxamp.errors import LibraryError
from mxamp.runtime.library import load_operators

S = mx.sym
ROWS, FEATURES, UNITS = 4, 20, 8
RANDOM = np.random.default_rng(0)
ARGS = {
    "weight": RANDOM.normal(size=(FEATURES, UNITS)).astype(np.float32),
    "fc_weight": RANDOM.normal(size=(3, UNITS)).astype(np.float32),
    "fc_bias": np.zeros(3, np.float32),
}


def linear(data: Any) -> Any:
    """Return a sparse linear model, as in MXNet's examples, with a dense layer behind it."""
    product = S.Activation(S.sparse.dot(data, S.var("weight"), name="dot"), act_type="relu", name="relu")
    return S.FullyConnected(product, num_hidden=3, name="fc")


FORMS = {
    "csr": lambda: linear(S.var("data", stype="csr")),
    "csr behind an operator": lambda: linear(S.sparse.abs(S.var("data", stype="csr"), name="abs")),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("policy", [None, "pure"], ids=["mixed", "pure"])
@pytest.mark.parametrize("form", FORMS)
def test_what_reads_it_is_float32_and_no_cast_is_put_before_it(
    form: str, policy: str | None, dtype: str
) -> None:
    options = {"policy": policy, "low_precision": "required"}
    model = mxamp.convert_model(FORMS[form](), ARGS, {}, dtype, **options)
    assert model.report is not None
    assert model.report.node("dot").compute == "float32"
    assert "the input 'data' is sparse" in model.report.node("dot").reason
    assert model.report.node("fc").compute == dtype
    assert all(cast.entry not in ("data", "abs") for cast in model.report.casts)


def test_a_dense_input_is_none_of_that() -> None:
    model = mxamp.convert_model(linear(S.var("data")), ARGS, {}, "float16")
    assert model.report is not None
    assert model.report.node("dot").compute == "float16"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("form", FORMS)
def test_emulated_it_runs_on_sparse_data(form: str, dtype: str) -> None:
    try:
        load_operators()
    except LibraryError as error:
        pytest.skip(f"the operator library cannot be built: {error}")
    dense = np.where(RANDOM.random((ROWS, FEATURES)) < 0.2, 1.5, 0.0).astype(np.float32)
    emulated = mxamp.emulate(FORMS[form](), ARGS, {}, dtype)
    arrays = {**emulated.args, "data": mx.nd.sparse.csr_matrix(dense)}
    (found,) = emulated.sym.bind(mx.cpu(), arrays, grad_req="null").forward()
    exact = np.maximum(dense @ ARGS["weight"], 0) @ ARGS["fc_weight"].T
    assert np.linalg.norm(found.asnumpy() - exact) < 1e-2 * np.linalg.norm(exact)
