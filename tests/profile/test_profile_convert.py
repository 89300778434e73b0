"""``profile=True`` from end to end, and what it says when it cannot be done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.cli.main import main
from mxamp.errors import DeviceError, PolicyError
from mxamp.messages.arguments import settings_of
from mxamp.profile import Profiling
from tests.building import Net

QUICK = Profiling(node_seconds=0.1, race_seconds=0.1)


def network(channels: int = 4) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return data -> conv -> BatchNorm -> relu -> conv -> + -> conv -> conv -> fc, with parameters."""
    net = Net()
    first = net.bn(net.conv(net.var("data"), "conv0"), "bn0")
    relu = net.op("Activation", first, name="relu0", act_type="relu")
    total = net.op("elemwise_add", net.conv(relu, "conv1"), relu, name="add0")
    total = net.conv(net.conv(total, "conv2"), "conv3")
    weight = net.param("fc_weight", 3, 4 * 8 * 8)
    graph = net.graph(net.op("FullyConnected", total, weight, name="fc", num_hidden=3, no_bias=True))
    auxs = {name: net.params.pop(name) for name in ("bn0_moving_mean", "bn0_moving_var")}
    return graph, net.params, auxs


SHAPES = {"data": (1, 4, 8, 8)}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mxamp" / "profile"


def test_a_model_is_measured_and_converted(own_cache: Path) -> None:
    pytest.importorskip("mxnet", reason="it runs the model")
    said: list[str] = []
    settings = Profiling(node_seconds=0.1, race_seconds=0.1, progress=said.append)
    graph, args, auxs = network()
    model = mxamp.convert_model(graph, args, auxs, "bfloat16", input_shapes=SHAPES, profile=settings)
    report = model.report
    assert report is not None
    assert report.time is not None
    assert report.time.measured_nodes == len(report.nodes) == 8
    assert report.time.float32_us > 0
    # On a CPU where bfloat16 is slower, float32 wins the race, and that is said.
    chosen = next(plan for plan in report.race if plan.is_chosen)
    assert all(warning.startswith("Nothing was converted") for warning in report.warnings)
    assert bool(report.warnings) == (not report.low_nodes) == (not chosen.low_nodes)
    # Conv, BatchNorm and relu are one kernel: its time is at the Convolution.
    assert report.node("conv0").float32_us
    assert report.node("relu0").float32_us == 0
    assert sum(plan.is_chosen for plan in report.race) == 1
    assert all(plan.median_ms and plan.estimated_ms and plan.rounds for plan in report.race)
    assert len(said) == 4
    again = mxamp.convert_model(graph, args, auxs, "bfloat16", input_shapes=SHAPES, profile=settings)
    assert again.report is not None
    assert again.report.race == report.race  # from the cache
    assert list(own_cache.glob("*.json"))
    data = np.random.default_rng(0).random((1, 4, 8, 8), np.float32)
    mxamp.compare_models((graph, args, auxs), model, data).check(3e-2)


def test_a_small_model_is_raced_in_every_placement() -> None:
    pytest.importorskip("mxnet", reason="it runs the model")
    said: list[str] = []
    settings = Profiling(node_seconds=0.1, race_seconds=0.1, progress=said.append)
    net = Net()
    graph = net.graph(net.op("exp", net.conv(net.op("exp", net.conv(net.var("data"), "a")), "b")))
    model = mxamp.convert_model(
        graph, net.params, {}, "bfloat16", target="cpu-bf16", input_shapes=SHAPES, profile=settings
    )
    assert said == ["4 plans against each other"]
    report = model.report
    assert report is not None
    assert [plan.low_nodes for plan in sorted(report.race, key=lambda plan: plan.low_nodes)] == [0, 1, 1, 2]
    assert sum(plan.is_chosen for plan in report.race) == 1
    assert all(plan.median_ms and plan.estimated_ms and plan.rounds for plan in report.race)


@pytest.mark.slow
def test_files_convert_with_the_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mxnet", reason="it runs the model")
    graph, args, auxs = network()
    prefix = str(tmp_path / "net")
    mxamp.model.Model.of(graph, args, auxs).save(prefix)
    out = str(tmp_path / "out")
    options = ["--input-shape", "data=1,4,8,8", "--profile", "--no-guard", "--verbose"]
    report = str(tmp_path / "why.json")
    status = main(["convert", prefix, "--dtype", "bfloat16", "-o", out, *options, "--report", report])
    assert status == 0
    printed = capsys.readouterr().out
    assert "measuring:  8 nodes timed" in printed
    assert "Plans run against each other here" in printed
    assert json.loads((tmp_path / "why.json").read_text("utf-8"))["race"]


def test_shapes_have_to_be_known() -> None:
    pytest.importorskip("mxnet", reason="without it, that is what is said")
    graph, args, auxs = network()
    with pytest.raises(PolicyError, match=r"the shapes of its inputs must be known.*Give input_shapes="):
        mxamp.convert_model(graph, args, auxs, "bfloat16", profile=True)


def test_an_input_whose_shape_is_not_known_is_named() -> None:
    pytest.importorskip("mxnet", reason="without it, that is what is said")
    graph, args, auxs = network()
    with pytest.raises(PolicyError, match="which that of 'data' is not"):
        mxamp.convert_model(graph, args, auxs, "bfloat16", input_shapes={"data": (0, 4, 8, 8)}, profile=True)


def test_a_gpu_that_is_not_here_is_no_place_to_measure() -> None:
    mx = pytest.importorskip("mxnet", reason="it looks for devices")
    if mx.context.num_gpus():
        pytest.skip("there is a GPU here")
    graph, args, auxs = network()
    with pytest.raises(
        DeviceError, match=r"the device of the target cuda-fp16\. There is no gpu.* leave profile"
    ):
        mxamp.convert_model(graph, args, auxs, "float16", input_shapes=SHAPES, profile=True)


def test_an_emulation_is_not_timed() -> None:
    graph, args, auxs = network()
    with pytest.raises(PolicyError, match="Leave one of the two out"):
        mxamp.convert_model(graph, args, auxs, "bfloat16", input_shapes=SHAPES, profile=True, emulate=True)


@pytest.mark.parametrize("given", [1, "yes", 10.0, {}], ids=repr)
def test_profile_is_a_flag_or_settings(given: Any) -> None:
    with pytest.raises(PolicyError, match=r"profile must be True, False or an mxamp\.profile\.Profiling"):
        settings_of(Profiling, given, "profile")


@pytest.mark.parametrize("given", [0, -1.0, True, float("inf"), float("nan"), "3"], ids=repr)
def test_settings_are_seconds(given: Any) -> None:
    with pytest.raises(PolicyError, match="race_seconds must be a number of seconds above 0"):
        Profiling(race_seconds=given)


@pytest.mark.slow
def test_a_block_is_measured_as_a_model_is() -> None:
    mx = pytest.importorskip("mxnet", reason="it runs the model")
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(4, 3, in_channels=3, activation="relu"), mx.gluon.nn.Dense(2))
    net.initialize()
    converted = mxamp.convert_block(net, "bfloat16", input_shapes=(1, 3, 8, 8), profile=QUICK)
    assert any(plan.is_chosen for plan in converted.report.race)
