"""Behind a squeeze of whatever is 1 no number of axes is taken from one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.graph import Entry
from mxamp.model import Model
from mxamp.passes.open_axes import open_axes
from tests.building import Net, parameters

pytestmark = pytest.mark.filterwarnings("ignore::mxamp.MxampWarning")


def names(net: Net, *heads: Entry) -> set[str]:
    graph = net.graph(*heads)
    return {graph.nodes[position].name for position in open_axes(graph)}


@pytest.mark.parametrize("axis", [None, "None"])
def test_what_comes_behind_is_open_until_something_says_its_axes(axis: str | None) -> None:
    net = Net()
    squeezed = net.op("squeeze", net.var("x"), name="s", **({} if axis is None else {"axis": axis}))
    summed = net.op("sum", squeezed, name="sum", axis=1)
    flat = net.op("Flatten", net.op("exp", squeezed, name="e"), name="flat")
    layer = net.op("FullyConnected", squeezed, net.param("w", 4, 4), name="fc", num_hidden=4)
    kept = net.op("FullyConnected", squeezed, net.param("v", 4, 4), name="rows", num_hidden=4, flatten=False)
    heads = (summed, net.op("exp", flat), net.op("exp", layer), kept, net.op("exp", net.var("y")))
    assert names(net, *heads) == {"s", "sum", "e", "rows"}


def test_a_squeeze_of_named_axes_says_how_many_are_left() -> None:
    net = Net()
    assert names(net, net.op("exp", net.op("squeeze", net.var("x"), axis="(1,)"))) == set()


@pytest.mark.parametrize("op", ["squeeze", "mean", "SwapAxis", "dot"])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_model_for_one_runs_for_more(op: str, batch: int) -> None:
    pytest.importorskip("mxnet", reason="models are run")
    from mxamp.runtime.executor import run_outputs

    net = Net()
    squeezed: Any = net.op("squeeze", net.op("exp", net.var("x")))
    if op == "mean":
        squeezed = net.op("mean", squeezed, axis=1)
    elif op == "SwapAxis":
        squeezed = net.op("SwapAxis", squeezed, dim1=0, dim2=1)
    elif op == "dot":
        squeezed = net.op("dot", squeezed, net.param("w", 40, 16))
    graph = net.graph(net.op("tanh", squeezed))
    shape = (5, 40) if op == "dot" else (64, 64)
    given = {"x": np.random.default_rng(0).standard_normal((batch, *shape)).astype(np.float32)}
    model = mxamp.convert_model(
        graph, net.params, {}, "bfloat16", target="cpu-bf16-avx2", input_shapes={"x": (1, *shape)}
    )
    (expected,) = run_outputs(Model(graph, parameters(net.params), {}), given, fusion=False)
    (found,) = run_outputs(model, given)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
