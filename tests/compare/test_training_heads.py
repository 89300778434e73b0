"""Models that end in a training head run without their labels, whatever shape those have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

import mxamp
from mxamp.compare.inputs import prepare_inputs
from mxamp.guard import Guard
from mxamp.model import Model
from mxamp.profile.run import sample_data
from mxamp.runtime.shapes import infer_shapes

SHAPE = (4, 3, 8, 8)


def features() -> Any:
    return mx.sym.Convolution(mx.sym.var("data"), num_filter=5, kernel=(3, 3), name="conv")


def classes() -> Any:
    return mx.sym.FullyConnected(features(), num_hidden=6, name="fc")


def two_heads() -> Any:
    shared = classes()
    kind = mx.sym.SoftmaxOutput(shared, name="kind")
    return mx.sym.Group([kind, mx.sym.LinearRegressionOutput(shared, name="size")])


HEADS = {
    "SoftmaxOutput": (lambda: mx.sym.SoftmaxOutput(classes(), name="head"), [(4,)]),
    "SoftmaxOutput of pixels": (
        lambda: mx.sym.SoftmaxOutput(features(), multi_output=True, name="head"),
        [(4, 36)],
    ),
    "SoftmaxOutput of rows": (
        lambda: mx.sym.SoftmaxOutput(mx.sym.reshape(classes(), shape=(-1, 2)), name="head"),
        [(12,)],
    ),
    "LinearRegressionOutput": (lambda: mx.sym.LinearRegressionOutput(classes(), name="head"), [(4, 6)]),
    "LogisticRegressionOutput": (lambda: mx.sym.LogisticRegressionOutput(classes(), name="head"), [(4, 6)]),
    "MAERegressionOutput": (lambda: mx.sym.MAERegressionOutput(classes(), name="head"), [(4, 6)]),
    "SVMOutput": (lambda: mx.sym.SVMOutput(classes(), name="head"), [(4,)]),
    "two heads": (two_heads, [(4,), (4, 6)]),
}


def model_of(sym: Any) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    shapes, _, _ = sym.infer_shape(data=SHAPE)
    known = dict(zip(sym.list_arguments(), shapes))
    generator = np.random.default_rng(0)
    args = {
        name: mx.nd.array(generator.standard_normal(shape) / 4)
        for name, shape in known.items()
        if name != "data" and not name.endswith("_label")
    }
    return sym, args, {}


@pytest.mark.parametrize("head", HEADS)
def test_labels_have_the_shapes_that_mxnet_infers(head: str) -> None:
    build, shapes = HEADS[head]
    found = prepare_inputs(Model.of(*model_of(build())), np.ones(SHAPE, np.float32))
    labels = [values for name, values in found.arrays.items() if name.endswith("_label")]
    assert [values.shape for values in labels] == shapes
    assert not any(values.any() for values in labels)
    assert "fed zeros" in found.notes[0]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.filterwarnings("ignore:guard", "ignore:Nothing was converted")
def test_what_runs_models_takes_those_with_training_heads(head: str) -> None:
    triple = model_of(HEADS[head][0]())
    low = mxamp.convert_model(*triple, "bfloat16", low_precision="required", input_shapes={"data": SHAPE})
    assert low.report.low_nodes
    # The labels of rows are more than samples, so they cannot be cut into batches.
    size = None if head == "SoftmaxOutput of rows" else 2
    fidelity = mxamp.compare_models(triple, low, np.ones(SHAPE, np.float32), batch_size=size, layers=False)
    assert fidelity.samples == (1 if size is None else 4)
    guarded = mxamp.convert_model(
        *triple,
        "bfloat16",
        low_precision="required",
        input_shapes={"data": SHAPE},
        target="auto",  # the guard measures nothing for other machines
        guard=Guard(seconds=0.2),
    )
    assert guarded.report.guard.result is not None, guarded.report.guard.reason


@pytest.mark.parametrize("head", HEADS)
def test_a_profile_has_data_for_models_with_training_heads(head: str) -> None:
    build, expected = HEADS[head]
    model = Model.of(*model_of(build()))
    inputs = [name for name in model.graph.variables if name not in model.arg_params]
    shapes = infer_shapes(model.graph, {"data": SHAPE}, model.arg_params)
    found = sample_data(model, inputs, shapes)
    assert [found[name].shape for name in inputs] == [SHAPE, *expected]
