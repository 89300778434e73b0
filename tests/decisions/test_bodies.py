"""Inside loops and branches costs decide as they do outside, by the shapes of one iteration."""

from __future__ import annotations

from typing import Any

import pytest

mx = pytest.importorskip("mxnet", reason="the loops are built with it")

import numpy as np

import mxamp
from mxamp.graph.shapes import infer_body_shapes
from mxamp.runtime.symbol import graph_from_symbol


def loop(width: int) -> Any:
    """Return a loop over rows of a sequence, in whose body a layer has as many outputs as inputs."""
    weight = mx.sym.var("w")

    def body(row: Any, state: Any) -> Any:
        out = mx.sym.FullyConnected(row, weight, num_hidden=width, no_bias=True, name="fc")
        return out, out + state

    return mx.sym.Group(
        list(mx.sym.contrib.foreach(body, mx.sym.var("data"), mx.sym.var("init"), name="loop"))
    )


def computes(width: int, rows: int, *, shapes: bool = True, **options: Any) -> str | None:
    given = {"data": (5, rows, width), "init": (rows, width)}
    model = mxamp.convert_model(
        loop(width),
        {"w": mx.nd.array(np.ones((width, width)))},
        {},
        "bfloat16",
        target="cpu-bf16-zen5",
        input_shapes=given if shapes else None,
        **options,
    )
    assert model.report is not None
    (layer,) = (node for node in model.report.nodes if node.op == "FullyConnected")
    return layer.compute


@pytest.mark.filterwarnings("ignore:Nothing was converted")
def test_a_layer_that_casts_would_slow_stays() -> None:
    assert computes(16, 1) == "float32"
    assert computes(1024, 64) == "bfloat16"


def test_an_order_holds_inside_as_well() -> None:
    assert computes(16, 1, low_precision="required") == "bfloat16"


@pytest.mark.filterwarnings("ignore:Nothing was converted")
def test_costs_decide_inside_where_they_must() -> None:
    assert computes(16, 1, low_precision="profitable") == "float32"


def test_without_shapes_the_fewest_casts_decide() -> None:
    assert computes(16, 1, shapes=False) == "bfloat16"


def test_with_numpy_shapes_costs_do_not_decide_inside() -> None:
    """A body does not say whose meaning its sizes have."""
    with mx.util.np_shape(True):
        assert computes(16, 1) == "bfloat16"


def test_a_body_has_the_shapes_of_one_iteration() -> None:
    (node,) = (node for node in graph_from_symbol(loop(16)).nodes if node.op == "_foreach")
    found = infer_body_shapes(node, 0, [(5, 2, 16), (2, 16), (16, 16)])
    names = [inner.name for inner in node.subgraphs[0].nodes]
    assert found[names.index("fc")] == ((2, 16),)
    assert infer_body_shapes(node, 0, [None, None, (16, 16)])[names.index("fc")] == (None,)
