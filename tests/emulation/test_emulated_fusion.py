"""Emulated models run on CPUs, where oneDNN fuses, whatever machine they emulate."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mxnet", reason="runs models")

import mxamp
from mxamp.errors import LibraryError
from mxamp.runtime.executor import run_outputs
from mxamp.runtime.library import load_operators
from tests.building import Net


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    try:
        load_operators()
    except LibraryError as error:
        pytest.skip(f"the operator library cannot be built: {error}")


@pytest.mark.parametrize(
    "options",
    [{"target": "cuda-fp16"}, {"policy": "pure"}, {"prepare": ()}],
    ids=["gpu", "pure", "unprepared"],
)
def test_what_fusion_would_lose_is_kept_when_a_machine_is_emulated(options: dict[str, object]) -> None:
    net = Net()
    layer = net.fc(net.var("data"), "fc0")
    graph = net.graph(net.op("abs", layer, name="abs0"), layer, net.fc(layer, "fc1"))
    data = {"data": np.random.default_rng(1).uniform(-1, 1, (3, 4)).astype(np.float32)}
    kept = ["fc0", "abs0"]
    emulated = mxamp.emulate(graph, net.params, {}, "float16", exclude=kept, **options)
    size, value, _ = run_outputs(emulated, data)
    np.testing.assert_array_equal(size, np.abs(value))
    assert (value < 0).any()
