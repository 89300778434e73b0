"""What MXNet's fusion loses on account of folding or casts is kept: run as deployed, and without fusion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="the defect is MXNet's, and is looked for by execution")

import mxamp
from mxamp.conversion import PREPARATIONS
from mxamp.policy import Policy
from mxamp.runtime.symbol import graph_from_symbol
from mxamp.targets.fusion_defect import lost_branches

PURE = Policy.pure("bfloat16")


def dense(name: str = "y") -> Any:
    return mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=16, name=name)


def gated(act_type: str) -> Any:
    """Return x * sigmoid(x) and its kind, as it is written behind a layer."""
    y = dense()
    return mx.sym.elemwise_mul(y, mx.sym.Activation(y, act_type=act_type, name="gate"), name="gated")


def norms() -> Any:
    """Return a BatchNorm that is folded, and one that MXNet would then fuse as if it were over channels."""
    data = mx.sym.var("data")
    y = mx.sym.Convolution(data, num_filter=6, kernel=(3, 3), pad=(1, 1), no_bias=True, name="y")
    folded = mx.sym.BatchNorm(y, fix_gamma=False, name="folded")
    return mx.sym.BatchNorm(folded, fix_gamma=False, axis=-1, name="norm")


def arrays(symbol: Any, shape: tuple[int, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    shapes, _, aux_shapes = symbol.infer_shape(data=shape)
    random = np.random.default_rng(0)

    def values(name: str, own: tuple[int, ...]) -> Any:
        return mx.nd.array(random.uniform(0.5 if name.endswith(("gamma", "var")) else -1, 1, own))

    args = {name: values(name, own) for name, own in zip(symbol.list_arguments(), shapes)}
    return args, {name: values(name, own) for name, own in zip(symbol.list_auxiliary_states(), aux_shapes)}


def error_as_deployed(model: mxamp.Model, symbol: Any, args: Any, auxs: Any, patch: Any) -> float:
    """Return the relative L2 error of the model, fused, against FP32 without fusion."""
    patch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
    expected = symbol.bind(mx.cpu(), args, aux_states=auxs).forward()[0].asnumpy()
    patch.setenv("MXNET_SUBGRAPH_BACKEND", "MKLDNN")
    data = {"data": args["data"]}
    found = model.sym.bind(mx.cpu(), {**model.args, **data}, aux_states=model.auxs).forward()[0].asnumpy()
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("prepare", [PREPARATIONS, ()], ids=["prepared", "unprepared"])
@pytest.mark.parametrize("policy", [None, PURE], ids=["default", "pure"])
@pytest.mark.parametrize("act_type", ["sigmoid", "tanh", "softrelu", "relu"])
def test_a_layer_that_is_multiplied_by_its_activation_is_right_with_casts(
    act_type: str, policy: Policy | None, prepare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    symbol = gated(act_type)
    assert not lost_branches(graph_from_symbol(symbol))
    args, auxs = arrays(symbol, (4, 32))
    parameters = {name: value for name, value in args.items() if name != "data"}
    model = mxamp.convert_model(symbol, parameters, auxs, "bfloat16", policy=policy, prepare=prepare)
    assert not lost_branches(model.graph)
    assert error_as_deployed(model, symbol, args, auxs, monkeypatch) < 0.02


def test_the_report_says_why_there_is_a_reshape_and_converting_again_changes_nothing() -> None:
    symbol = gated("sigmoid")
    args, _ = arrays(symbol, (4, 32))
    del args["data"]
    model = mxamp.convert_model(symbol, args, {}, "bfloat16", policy=PURE)
    assert [node.op for node in model.graph.nodes].count("Reshape") == 1
    (gate,) = [node for node in model.report.nodes if node.name == "gate"]
    assert "so that MXNet's fusion does not lose what else reads 'y'" in gate.reason
    again = mxamp.convert_model(model.graph, model.args, model.auxs, "bfloat16", policy=PURE)
    assert again.graph.nodes == model.graph.nodes


def test_a_norm_that_follows_a_folded_one_is_not_fused_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    symbol = norms()
    args, auxs = arrays(symbol, (1, 3, 6, 6))
    parameters = {name: value for name, value in args.items() if name != "data"}
    model = mxamp.convert_model(symbol, parameters, auxs, "bfloat16")
    assert "folded_gamma" not in model.args
    assert error_as_deployed(model, symbol, args, auxs, monkeypatch) < 0.02


@pytest.mark.parametrize("reader", ["exp", "activation first"])
def test_where_nothing_is_lost_nothing_is_put_in(reader: str) -> None:
    y = dense()
    gate = mx.sym.Activation(y, act_type="sigmoid", name="gate") if reader != "exp" else mx.sym.exp(y)
    symbol = mx.sym.elemwise_mul(gate, y, name="gated")
    args, _ = arrays(symbol, (4, 32))
    del args["data"]
    model = mxamp.convert_model(symbol, args, {}, "bfloat16", policy=PURE)
    assert "Reshape" not in [node.op for node in model.graph.nodes]


def test_what_was_lost_before_stays_with_the_pass_that_is_for_it() -> None:
    """``prepare=[]`` asks for the graph as it is, and the warning says what is wrong with it."""
    y = dense()
    symbol = mx.sym.Group([y, mx.sym.Activation(y, act_type="relu", name="relu")])
    assert lost_branches(graph_from_symbol(symbol))
    args, _ = arrays(symbol, (4, 32))
    del args["data"]
    with pytest.warns(mxamp.errors.MxampWarning, match="computes the float32 model wrongly"):
        model = mxamp.convert_model(symbol, args, {}, "bfloat16", prepare=[])
    assert "Reshape" not in [node.op for node in model.graph.nodes]
