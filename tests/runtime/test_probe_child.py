"""The probe's process with MXNet itself: three operators, a chain, and the target that comes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mxnet", reason="the probe measures MXNet")

import mxamp
from mxamp.dtypes import DType
from mxamp.errors import DeviceError
from mxamp.measuring.machine import has_bfloat16_instructions
from mxamp.probe import ProbeSettings, run_probe
from mxamp.probe.jobs import CHECK, Unit
from mxamp.probe.workers import Settings, Worker, probe_environment
from mxamp.targets import Support, Target
from tests.building import Net, parameters

ONLY = ("Flatten", "_npx_sigmoid", "hard_sigmoid")


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the target that a probe of three operators writes."""
    output = tmp_path_factory.mktemp("probe") / "three.json"
    run_probe(output, ProbeSettings(DType.BFLOAT16, "cpu", 1, workers=1, rounds=2, only=ONLY))
    return output


def test_what_mxnet_does_is_in_the_target(probed: Path) -> None:
    target = Target.load(probed)
    found = {op: entry.support for op, entry in target.operators.items()}
    # Which of the two is a matter of times, and of what else the machine does.
    assert found.pop("Flatten") in (Support.WORKS, Support.SLOW)
    assert found == {"_npx_sigmoid": Support.BIASED, "hard_sigmoid": Support.UNSUPPORTED}
    assert target.operators["_npx_sigmoid"].note == "mean error -0.5 ulp"
    assert target.operators["hard_sigmoid"].note.startswith("MXNet raises: ")
    assert target.measured_on["mxnet"] == "1.9.1"


@pytest.mark.skipif(not has_bfloat16_instructions(), reason="oneDNN chooses other layouts on this CPU")
def test_layouts_of_volumes_that_cannot_be_read_are_found(probed: Path) -> None:
    target = Target.load(probed)
    assert not target.operators["Flatten"].volumes
    assert target.operators["_npx_sigmoid"].volumes


def test_a_conversion_follows_the_target(probed: Path) -> None:
    net = Net()
    flat = net.op(
        "Flatten", net.op("_npx_sigmoid", net.conv(net.var("data"), "conv"), name="gate"), name="flat"
    )
    graph = net.graph(flat)
    arrays = parameters(net.params)
    report = mxamp.convert_model(graph, arrays, {}, "bfloat16", target=str(probed), prepare=()).report
    assert report is not None
    reasons = {node.name: node.reason for node in report.nodes}
    assert "does not round to nearest in bfloat16 on three: mean error -0.5 ulp" in reasons["gate"]
    assert "has not been seen to run in bfloat16 on three" in reasons["conv"]


def test_what_the_backend_swallows_is_read_from_it() -> None:
    worker = Worker(Settings("bfloat16", "cpu"), probe_environment(1, check_heap=False))
    try:
        fused = worker.do(Unit("fused: Conv3x3+BN+add+relu", CHECK)).jobs
        apart = worker.do(Unit("fused: Conv read twice", CHECK)).jobs
    finally:
        worker.close()
    assert all(job["swallowed_float32"] == job["swallowed_low"] == [[0, 1, 2, 3]] for job in fused)
    assert all(job["swallowed_float32"] == [] for job in apart)


@pytest.mark.parametrize(
    ("dtype", "ctx", "said"),
    [
        pytest.param("float16", "cpu", "no FP16 convolution .* on CPUs", id="float16 on a CPU"),
        pytest.param("bfloat16", "gpu(99)", r"There is no gpu\(99\)", id="no such GPU"),
    ],
)
def test_a_device_that_cannot_be_probed_says_why_and_what_to_do(
    tmp_path: Path, dtype: str, ctx: str, said: str
) -> None:
    with pytest.raises(DeviceError, match=said):
        run_probe(tmp_path / "t.json", ProbeSettings(DType.parse(dtype), ctx, 1))
    assert not list(tmp_path.iterdir())


def test_values_that_the_low_dtype_holds_are_what_is_compared() -> None:
    """Otherwise the rounding of the inputs would be charged to the operator."""
    from mxamp.probe.values import draw, rounded

    values = rounded(draw("normal", (64,), np.random.default_rng(0)), DType.BFLOAT16)
    np.testing.assert_array_equal(values, rounded(values, DType.BFLOAT16))
