from __future__ import annotations

import builtins
import re

import numpy as np
import pytest

import mxamp.measuring.machine
from mxamp.convert import convert_model
from mxamp.dtypes import DType
from mxamp.errors import DataError
from mxamp.guard import Guard, machine
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter
from mxamp.report.guard import GuardReport, MeasuredRatio, guard_lines
from mxamp.targets import Target
from tests.building import Net, parameters

CPU = Target.for_dtype(DType.BFLOAT16)
SHAPES = {"data": (1, 4, 8, 8)}


def small() -> Model:
    net = Net()
    graph = net.graph(net.conv(net.var("data"), "c0"))
    return Model(graph, parameters(net.params), {})


@pytest.fixture
def with_bfloat16(monkeypatch):
    """Be on a CPU with bfloat16 instructions, whatever this one has."""
    monkeypatch.setattr(mxamp.measuring.machine, "has_bfloat16_instructions", lambda: True)


def test_without_shapes_nothing_is_measured_and_the_report_says_so():
    pytest.importorskip("mxnet", reason="it is asked for first")
    net = Net()
    graph = net.graph(net.conv(net.var("data"), "c0"))
    report = convert_model(graph, net.params, {}, "bfloat16", guard=True).report
    assert (report.guard.outcome, report.guard.warning) == ("not run", None)
    assert guard_lines(report.guard) == [
        "Not measured against float32: the shapes of the inputs are not known; give input_shapes."
    ]
    assert report.node("c0").compute == "bfloat16"


@pytest.mark.parametrize(
    ("shapes", "why"),
    [
        (None, "the shapes of the inputs are not known"),
        ({}, "the shape of the input 'data' is not known.*--input-shape data=0,4,0,0|data=.,4,.,."),
        ({"data": (0, 4, 8, 8)}, "the shape of the input 'data' is not known"),
    ],
    ids=["no shapes", "none of them", "no batch size"],
)
def test_it_says_which_shape_is_missing(shapes, why, with_bfloat16):
    pytest.importorskip("mxnet", reason="it is asked for first")
    assert re.search(why, machine.why_not_here(Guard(), small(), CPU, shapes))


def test_a_model_too_large_for_memory_is_not_loaded(monkeypatch, with_bfloat16):
    pytest.importorskip("mxnet", reason="it is asked for before memory is")

    class Huge(ArrayParameter):
        shape = (1 << 30, 4)

        def values(self):
            raise AssertionError("it was read")

    model = Model(small().graph, {"c0_weight": Huge(np.zeros(1, np.float32))}, {})
    monkeypatch.setattr(machine, "available_memory", lambda: 64 << 30)
    why = machine.why_not_here(Guard(data=np.zeros((1, 4, 8, 8))), model, CPU, SHAPES)
    assert why.startswith(
        "that would take 103.08 GB of memory (6 times the parameters), more than half of the"
    )
    monkeypatch.setattr(machine, "available_memory", lambda: 256 << 30)
    assert machine.why_not_here(Guard(data=np.zeros((1, 4, 8, 8))), model, CPU, SHAPES) is None


def test_float16_needs_a_gpu(monkeypatch):
    pytest.importorskip("mxnet", reason="asks MXNet for GPUs")
    from mxamp.runtime import device

    monkeypatch.setattr(device, "gpu_count", lambda: 0)
    why = machine.why_not_here(Guard(), small(), Target.for_dtype(DType.FLOAT16), SHAPES)
    assert why == "float16 models run on GPUs alone, and MXNet sees none here"


@pytest.mark.parametrize(("target", "runs"), [("cpu-bf16", False), ("cpu-bf16-emulated", True)])
def test_a_target_that_is_not_this_machine_is_not_measured_on_it(monkeypatch, target, runs):
    pytest.importorskip("mxnet", reason="it is asked for first")
    monkeypatch.setattr(mxamp.measuring.machine, "cpu_flags", lambda: {"avx2", "avx512bw"})
    why = machine.why_not_here(Guard(), small(), Target.builtin(target), SHAPES)
    assert (why is None) is runs
    assert runs or "does not have; target auto is the one for this machine" in why


@pytest.mark.parametrize("target", ["openvino-bf16", "onnx-arm-fp16", "onnx-cuda-fp16"])
def test_what_another_runtime_runs_is_not_measured_in_mxnet(target):
    given = Target.builtin(target)
    why = machine.why_not_here(Guard(), small(), given, SHAPES)
    assert (
        why == f"it would be in MXNet, and {target} is for {given.backend.label}; mxamp race measures there"
    )


def test_a_users_target_needs_what_the_one_it_is_based_on_needs(monkeypatch):
    pytest.importorskip("mxnet", reason="it is asked for first")
    monkeypatch.setattr(mxamp.measuring.machine, "has_bfloat16_instructions", lambda: False)
    mine = {"name": "mine", "based_on": "cpu-bf16", "description": "mine"}
    target = Target.from_document(mine, source="mine.json")
    why = machine.why_not_here(Guard(), small(), target, SHAPES)
    assert why.startswith("the target mine is for CPUs with bfloat16 instructions")
    anywhere = Target.from_document({**mine, "needs": []}, source="mine.json")
    assert machine.why_not_here(Guard(), small(), anywhere, SHAPES) is None


@pytest.mark.parametrize("told", [False, True])
def test_what_is_meant_for_amx_is_measured_where_amx_is_used(monkeypatch, told):
    pytest.importorskip("mxnet", reason="it is asked for first")
    monkeypatch.setattr(mxamp.measuring.machine, "has_bfloat16_instructions", lambda: True)
    monkeypatch.setattr(mxamp.measuring.machine, "asks_for_amx", lambda: told)
    why = machine.why_not_here(Guard(), small(), Target.builtin("cpu-bf16-amx"), SHAPES)
    assert (why is None) is told
    assert told or "told to use it by DNNL_MAX_CPU_ISA=AVX512_CORE_AMX, which is not so here" in why


@pytest.mark.parametrize("outcome", ["converted", "prepared"])
def test_what_would_help_is_said_where_low_precision_did_not_pay(outcome):
    ratio = MeasuredRatio(**dict.fromkeys(MeasuredRatio.__dataclass_fields__, 1.0))
    guard = GuardReport(outcome, "a reason", ratio, machine={"cpu": "a CPU", "advice": "Use AMX."})
    assert ("Use AMX." in guard_lines(guard)) is (outcome == "prepared")


def test_an_mxnet_that_cannot_be_imported_is_said(monkeypatch):
    pytest.importorskip("mxnet", reason="it is there, and breaks")
    real = builtins.__import__

    def without(name, *rest, **keywords):
        if name == "mxnet":
            raise ImportError("No module named 'mxnet'")
        return real(name, *rest, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    why = machine.why_not_here(Guard(), small(), CPU, SHAPES)
    assert why.startswith("This needs MXNet, which cannot be imported")


def test_a_model_without_inputs_is_not_measured():
    net = Net()
    graph = net.graph(net.op("exp", net.param("w", 2), name="e"))
    assert "no inputs" in machine.why_not_here(Guard(), Model(graph, parameters(net.params), {}), CPU, {})


def test_data_that_do_not_fit_are_an_error_and_no_reason(with_bfloat16):
    pytest.importorskip("mxnet", reason="it is asked for first")
    model = small()
    guard = Guard(data={"dat": np.zeros((1, 4, 8, 8), np.float32), "more": np.zeros(1, np.float32)})
    with pytest.raises(DataError, match="has no input 'dat'"):
        convert_model(model.graph, model.arg_params, {}, "bfloat16", guard=guard)
