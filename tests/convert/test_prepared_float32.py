"""``low_precision="none"``: the graph is prepared, and all of it stays float32."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.cli.main import main
from mxamp.errors import PolicyError
from mxamp.graph.graph import Graph
from mxamp.guard import Guard
from mxamp.measuring.race import Race
from mxamp.targets import Support, choose
from tests.building import Net, casts, dtypes_of

SHAPES = {"data": (2, 4, 9, 9)}
TARGETS = {"bfloat16": ("auto", None, "cpu-bf16", "cpu-bf16-amx", "cpu-bf16-avx2"), "float16": (None,)}


def network() -> tuple[Graph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return a layer with its norm, and what one spelling is for."""
    net = Net()
    value = net.op("relu", net.bn(net.conv(net.var("data"), "layer"), "norm"), name="relu0")
    value = net.op("_plus_scalar", value, name="masked", scalar=-1e39)
    graph = net.graph(net.op("softmax", value, name="probabilities"), net.op("exp", net.conv(value, "last")))
    rng = np.random.default_rng(0)
    values = {name: rng.uniform(0.5, 1.5, p.shape).astype("f4") for name, p in net.params.items()}
    auxs = {name: values.pop(name) for name in list(values) if "moving" in name}
    return graph, values, auxs


def quietly(*given: Any, **options: Any) -> mxamp.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return mxamp.convert_model(*given, low_precision="none", **options)


@pytest.mark.parametrize(
    ("dtype", "target"), [(dtype, target) for dtype, targets in TARGETS.items() for target in targets]
)
def test_all_stays_float32_and_the_graph_is_prepared(dtype: str, target: str | None) -> None:
    graph, args, auxs = network()
    model = quietly(graph, args, auxs, dtype, target=target)
    assert not casts(model.graph)
    assert {str(found) for outputs in dtypes_of(model).values() for found in outputs} == {"float32"}
    assert {str(parameter.dtype) for parameter in model.arg_params.values()} == {"float32"}
    assert "norm" not in {node.name for node in model.graph.nodes}
    assert {node.op for node in model.graph.nodes} >= {"Convolution", "Activation"}
    assert model.graph.operator_count < graph.operator_count
    reasons = {node.reason for node in model.report.nodes if node.name == "layer"}
    assert reasons == {"float32 was asked for, with its graph prepared"}
    assert not model.report.warnings


@pytest.mark.parametrize(("gpu", "device"), [(None, "cpu"), ((7, 5), "cuda-fp16-sm75"), ((9, 0), "cpu")])
def test_auto_is_this_machine_whatever_the_dtype(
    monkeypatch: pytest.MonkeyPatch, gpu: tuple[int, int] | None, device: str
) -> None:
    monkeypatch.setattr(choose, "compute_capability", lambda: gpu)
    for dtype in ("float16", "bfloat16"):
        report = quietly(*network(), dtype, target="auto").report
        assert report is not None
        assert report.target.startswith(device)


def test_masks_keep_the_value_that_float32_holds() -> None:
    graph, args, auxs = network()
    masked = [
        node.attrs for node in quietly(graph, args, auxs, "float16").graph.nodes if node.name == "masked"
    ]
    assert [float(attrs["scalar"]) for attrs in masked] == [-1e39]


def test_the_report_does_not_list_what_is_folded() -> None:
    text = " ".join(str(quietly(*network(), "bfloat16").report).split())
    assert "1 BatchNorm folded into the layers before." in text
    assert text.startswith("Nothing was converted to bfloat16 for the target cpu-bf16: float32 was asked for")
    assert "folded into the weights" not in text


def test_every_front_door_computes_what_float32_does(tmp_path: Path) -> None:
    mx = pytest.importorskip("mxnet", reason="runs the models")
    graph, args, auxs = network()
    mxamp.Model.of(graph, args, auxs).save(tmp_path / "net")
    sym, own, states = mx.model.load_checkpoint(str(tmp_path / "net"), 0)
    data = mx.nd.random.uniform(shape=SHAPES["data"])
    files = (str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params"))
    block = mx.gluon.SymbolBlock.imports(*files)
    expected = [output.asnumpy() for output in block(data)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        converted = mxamp.convert_block(block, "bfloat16", inputs=data, low_precision="none")
    said = ["convert", str(tmp_path / "net"), "--dtype", "bfloat16", "--low-precision", "none"]
    assert main([*said, "-o", str(tmp_path / "out"), "--quiet"]) == 0
    read = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "out-symbol.json"), ["data"], str(tmp_path / "out-0000.params")
    )
    of_symbol = quietly(sym, own, states, "bfloat16", input_shapes=SHAPES)
    bound = of_symbol.sym.bind(mx.cpu(), {**of_symbol[1], "data": data}, aux_states=of_symbol[2])
    for outputs in (converted(data), read(data), bound.forward()):
        for found, wanted in zip(outputs, expected):
            assert found.dtype == np.float32
            np.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-5, atol=1e-7)


def test_bodies_of_control_flow_stay_float32() -> None:
    mx = pytest.importorskip("mxnet", reason="builds a loop")

    def step(data: Any, states: Any) -> Any:
        layer = mx.sym.FullyConnected(data, num_hidden=4, name="step")
        return layer, [states[0] + layer]

    outputs, _ = mx.sym.contrib.foreach(step, mx.sym.var("data"), [mx.sym.zeros((2, 4))])
    args = {"step_weight": mx.nd.ones((4, 4)), "step_bias": mx.nd.ones((4,))}
    model = quietly(outputs, args, {}, "bfloat16")
    bodies = [body for node in model.graph.nodes for body in node.subgraphs]
    assert bodies
    assert not any(casts(body) for body in bodies)


def test_an_own_operator_that_runs_low_stays_float32_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from mxamp.targets import OperatorSupport, target

    monkeypatch.setitem(
        target.REGISTERED_SUPPORT, ("Convolution", "cpu-bf16"), OperatorSupport(Support.WORKS)
    )
    assert not casts(quietly(*network(), "bfloat16").graph)


def test_a_guard_races_the_prepared_graph_alone() -> None:
    pytest.importorskip("mxnet", reason="runs the models")

    def faster(models: Any, labels: Any, seconds: float) -> Race:
        assert len(models) == 2
        return Race(((2.0,) * 20, (1.0,) * 20))

    model = quietly(*network(), "bfloat16", input_shapes=SHAPES, guard=Guard(measure=faster))
    assert model.report.guard is not None
    assert (model.report.guard.outcome, model.report.warnings) == ("converted", ())
    assert model.report.guard.result == model.report.guard.prepared


def test_a_profile_has_nothing_to_place() -> None:
    pytest.importorskip("mxnet", reason="asks for shapes")
    graph, args, auxs = network()
    model = quietly(graph, args, auxs, "bfloat16", input_shapes=SHAPES, profile=True)
    assert model.graph == quietly(graph, args, auxs, "bfloat16", input_shapes=SHAPES).graph


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policy": "pure"}, "a pure policy"),
        ({"io_dtype": "low"}, "io_dtype"),
        ({"saturate": True}, "saturate=True"),
    ],
)
def test_what_is_about_low_precision_contradicts_it(given: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError, match=f"low_precision='none' keeps all .* and {said} is about what"):
        quietly(*network(), "bfloat16", **given)


def test_who_asks_for_float32_is_told_how() -> None:
    with pytest.raises(PolicyError, match=r"With low_precision='none' all of the model stays float32\.$"):
        mxamp.convert_model(*network(), "float32")
    with pytest.raises(PolicyError) as caught:
        mxamp.convert_model(*network(), np.ones((3, 50)))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
