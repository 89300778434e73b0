"""Random graphs run in MXNet after conversion, with the dtypes we infer, and agree with FP32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

mx = pytest.importorskip("mxnet", reason="converted graphs are bound and run")

from mxamp.dtypes import DType
from mxamp.graph.infer import infer_dtypes
from mxamp.runtime.symbol import symbol_from_graph
from mxamp.targets import Target
from tests.building import BF16, F16, convert, variables_of
from tests.property.strategies import SHAPE, Sample, kept_params, samples

DATA = np.random.default_rng(3).uniform(-1, 1, SHAPE).astype(np.float32)

TOLERANCE = 0.06
"""Of the largest value anywhere in the network: sixteen roundings of bfloat16, all in one direction."""


def run(symbol: Any, args: Any, auxs: Any) -> list[Any]:
    arrays = {name: DATA_ND if name == "data" else args[name] for name in symbol.list_arguments()}
    executor = symbol.bind(mx.cpu(), arrays, aux_states={n: auxs[n] for n in symbol.list_auxiliary_states()})
    return [output.astype("float32").asnumpy() for output in executor.forward()]


DATA_ND = mx.nd.array(DATA)


@given(sample=samples(continuous=True), fold=st.booleans())
def test_converted_graphs_run_and_agree_with_fp32(sample: Sample, fold: bool) -> None:
    symbol = symbol_from_graph(sample.graph)
    arrays = {name: mx.nd.array(value) for name, value in kept_params(sample).items()}
    with pytest.MonkeyPatch.context() as patch:
        # oneDNN's fusion loses an activation where the convolution is an output too; read at bind time.
        patch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
        expected = run(symbol, arrays, arrays)
        scale = max(float(np.abs(v).max()) for v in run(symbol.get_internals(), arrays, arrays))
    options = {"target": Target.for_dtype(BF16), "fold_batch_norm": fold}
    model = convert(sample.graph, kept_params(sample), BF16, **options)
    found = run(model.sym, model.args, model.auxs)
    for one, other in zip(expected, found):
        assert np.isfinite(other).all()
        assert np.abs(one - other).max() <= TOLERANCE * max(scale, 1.0)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@given(sample=samples())
def test_mxnet_infers_the_dtypes_we_infer(dtype: DType, sample: Sample) -> None:
    model = convert(sample.graph, kept_params(sample), dtype)
    variables = variables_of(model)
    internals = model.sym.get_internals()
    given_types = {
        name: np.dtype([("bfloat16", np.uint16)]) if kind is BF16 else kind.numpy
        for name, kind in variables.items()
        if name in internals.list_arguments()
    }
    _, found, _ = internals.infer_type(**given_types)
    expected = {
        f"{node.name}_output": kinds[0]
        for node, kinds in zip(model.graph.nodes, infer_dtypes(model.graph, variables))
        if not node.is_variable
    }
    for name, kind in zip(internals.list_outputs(), found):
        if name in expected:
            assert DType.from_numpy(kind) is expected[name], name
