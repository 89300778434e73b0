"""What is said where the machine at hand contradicts the target."""

from __future__ import annotations

import json
import warnings
from typing import Any, Callable

import pytest

import mxamp
from mxamp.cli.main import main
from mxamp.errors import MxampWarning
from mxamp.graph.graph import Graph
from mxamp.html.measured import speed_figure
from mxamp.report.short import short_summary
from mxamp.targets import Target, machine_mismatch
from tests.building import Net, parameters

OLD = ("avx2", "avx512f", "avx512bw")
"""The flags of a CPU that has AVX-512 and no bfloat16 instructions."""

NEW = (*OLD, "avx512_bf16")
SHAPES = {"data": (1, 64, 56, 56)}


def layer() -> tuple[Graph, dict[str, Any]]:
    net = Net()
    weight = net.param("c0_weight", 64, 64, 3, 3)
    conv = net.op(
        "Convolution", net.var("data"), weight, name="c0", num_filter=64, kernel="(3, 3)", no_bias=True
    )
    return net.graph(conv), net.params


@pytest.mark.parametrize(
    ("flags", "vendor", "amx", "target", "here"),
    [
        pytest.param(OLD, "GenuineIntel", False, "cpu-bf16", "cpu-bf16-emulated", id="no instructions"),
        pytest.param(OLD, "GenuineIntel", False, "generic-bf16", None, id="generic"),
        pytest.param(OLD, "GenuineIntel", False, "cpu-bf16-emulated", None, id="emulated is right"),
        pytest.param(("avx2",), "GenuineIntel", False, "cpu-bf16-emulated", "cpu-bf16-avx2", id="AVX2"),
        pytest.param(("avx2",), "AuthenticAMD", False, "cpu-bf16", "cpu-bf16-avx2", id="AMD with AVX2"),
        pytest.param(("avx2",), "AuthenticAMD", False, "cpu-bf16-avx2", None, id="AVX2 as it is"),
        pytest.param(NEW, "AuthenticAMD", False, "cpu-bf16-avx2", None, id="more than AVX2"),
        pytest.param(NEW, "AuthenticAMD", False, "cpu-bf16", None, id="AMD"),
        pytest.param(NEW, "AuthenticAMD", False, "cpu-bf16-zen5", None, id="AMD of another family"),
        pytest.param(NEW, "GenuineIntel", False, "cpu-bf16-zen5", "cpu-bf16-intel", id="for a later AMD"),
        pytest.param(NEW, "GenuineIntel", False, "cpu-bf16", "cpu-bf16-intel", id="Intel is slower"),
        pytest.param(NEW, "GenuineIntel", False, "cpu-bf16-intel", None, id="Intel as it is"),
        pytest.param(
            (*NEW, "amx_bf16"), "GenuineIntel", False, "cpu-bf16-amx", "cpu-bf16-intel", id="AMX unused"
        ),
        pytest.param((*NEW, "amx_bf16"), "GenuineIntel", True, "cpu-bf16-amx", None, id="AMX"),
        pytest.param((*NEW, "amx_bf16"), "GenuineIntel", True, "cpu-bf16", None, id="faster than it says"),
        pytest.param(OLD, "GenuineIntel", False, "cuda-fp16", None, id="GPU"),
    ],
)
def test_a_machine_contradicts_a_target(
    a_cpu: Callable[..., None], flags: tuple[str, ...], vendor: str, amx: bool, target: str, here: str | None
) -> None:
    a_cpu(*flags, vendor=vendor, told_to_use_amx=amx)
    found = machine_mismatch(Target.builtin(target))
    assert (None if found is None else found.here.name) == here


def test_a_target_measured_here_does_not_contradict(a_cpu: Callable[..., None]) -> None:
    a_cpu(*NEW)
    own = {"name": "mine", "based_on": "cpu-bf16-intel", "description": "measured here"}
    assert machine_mismatch(Target.from_document(own, source="mine.json")) is None


def test_the_warning_says_by_how_much_and_what_to_do(a_cpu: Callable[..., None]) -> None:
    a_cpu(*OLD)
    graph, params = layer()
    with pytest.warns(MxampWarning, match=r"4 times as long as in float32.*--target auto"):
        model = mxamp.convert_model(graph, params, {}, "bfloat16")
    assert any(
        "for CPUs with bfloat16 instructions, which this one (A CPU)" in w for w in model.report.warnings
    )


def test_where_bfloat16_does_not_run_at_all_the_warning_says_so(a_cpu: Callable[..., None]) -> None:
    a_cpu("avx2")
    graph, params = layer()
    with pytest.warns(MxampWarning, match=r"cannot run the model here at all.*AVX-512.*--target auto"):
        model = mxamp.convert_model(graph, params, {}, "bfloat16", input_shapes=SHAPES)
    assert model.report.time is not None
    assert model.report.time_here is None  # it has none


def test_a_target_measured_with_avx512_contradicts_a_cpu_without(a_cpu: Callable[..., None]) -> None:
    own = {"name": "mine", "based_on": "cpu-bf16", "needs": [], "description": "measured elsewhere"}
    a_cpu("avx2")
    found = machine_mismatch(Target.from_document(own, source="mine.json"))
    assert found is not None
    assert "CPUs that compute in bfloat16, unlike this one (A CPU)" in found.warning


def test_without_avx512_auto_prepares_the_model_and_says_why_it_is_float32(
    a_cpu: Callable[..., None],
) -> None:
    a_cpu("avx2")
    graph, params = layer()
    with pytest.warns(MxampWarning, match=r"have no AVX-512, without which MXNet computes in no bfloat16"):
        model = mxamp.convert_model(graph, params, {}, "bfloat16", target="auto", input_shapes=SHAPES)
    report = model.report
    assert report.target == "cpu-bf16-avx2"
    assert report.nothing_low == "no operator runs in bfloat16 on cpu-bf16-avx2"
    assert report.time is not None
    assert report.time.mixed_us == report.time.float32_us


def test_every_way_of_converting_says_it(a_cpu: Callable[..., None]) -> None:
    a_cpu(*OLD)
    with pytest.warns(MxampWarning, match="--target auto"):
        mxamp.convert_symbol(layer()[0], "bfloat16")
    mx = pytest.importorskip("mxnet")
    net = mx.gluon.nn.Conv2D(8, 3, in_channels=4)
    net.initialize()
    with pytest.warns(MxampWarning, match="--target auto"):
        mxamp.convert_block(net, target_dtype="bfloat16")


def test_what_is_emulated_or_meant_for_this_machine_says_nothing(a_cpu: Callable[..., None]) -> None:
    a_cpu(*NEW, vendor="AuthenticAMD")
    graph, params = layer()
    with warnings.catch_warnings():
        warnings.simplefilter("error", MxampWarning)
        mxamp.convert_model(graph, params, {}, "bfloat16")
    a_cpu(*OLD)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MxampWarning)
        mxamp.emulate(graph, params, {}, "bfloat16")


def test_estimates_name_the_machine_they_are_for(a_cpu: Callable[..., None]) -> None:
    pytest.importorskip("mxnet", reason="asks for shapes")
    a_cpu(*OLD)
    graph, params = layer()
    with pytest.warns(MxampWarning, match="--target auto"):
        report = mxamp.convert_model(graph, params, {}, "bfloat16", input_shapes=SHAPES).report
    assert report.time.machine == "AMD EPYC, 1 thread"
    assert report.time.mixed_us < report.time.float32_us
    # The same model on a machine like this one.
    assert report.time_here.machine.startswith("an Intel Xeon without bfloat16 instructions")
    assert report.time_here.mixed_us > 3.9 * report.time_here.float32_us
    text = " ".join(str(report).split())
    assert "by costs of AMD EPYC, 1 thread" in text
    assert "Not here: float32" in text
    speed = dict(short_summary(report))["speed"]
    assert "estimated for AMD EPYC, 1 thread, not measured" in speed
    assert "for an Intel Xeon without bfloat16 instructions, 1 thread, as here: 0.2" in speed
    assert speed_figure(report, {}).detail == "estimated for AMD EPYC, 1 thread, not measured"
    assert mxamp.Report.from_json(report.to_json()) == report


def test_what_was_measured_here_is_not_contradicted(a_cpu: Callable[..., None]) -> None:
    pytest.importorskip("mxnet", reason="the guard asks for it")
    from mxamp.measuring.race import Race

    a_cpu(*OLD)
    graph, params = layer()
    guard = mxamp.guard.Guard(measure=lambda models, labels, seconds: Race(((2.0,) * 20, (1.0,) * 20)))
    report = mxamp.convert_model(graph, params, {}, "bfloat16", input_shapes=SHAPES, guard=guard).report
    assert (report.guard.outcome, report.warnings, report.time_here) == ("converted", (), None)


def test_the_command_line_says_it_on_standard_error_and_in_the_json(
    a_cpu: Callable[..., None],
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    a_cpu(*OLD)
    monkeypatch.chdir(tmp_path)
    graph, params = layer()
    mxamp.Model(graph, parameters(params), {}).save("net")
    assert main(["convert", "net", "--dtype", "bfloat16", "-o", "out", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith(
        "mxamp: warning: The target cpu-bf16 is for CPUs with bfloat16 instructions"
    )
    (warning,) = json.loads(printed.out)["report"]["warnings"]
    assert "ResNet-50 takes 4 times as long as in float32" in warning
    assert "--target auto" in warning
