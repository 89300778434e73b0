"""1x1 convolutions that spoil the heap with AMX stay float32 there, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from mxamp.decisions import LowPrecision
from mxamp.graph import Entry
from mxamp.measuring.machine import AMX_SETTING, cpu_flags
from mxamp.targets import Target, overrunning
from mxamp.targets.overrun import WHY_OVERRUNS
from tests.building import BF16, Net, plan_for

WITH_AMX, WITHOUT = Target.builtin("cpu-bf16-amx"), Target.builtin("cpu-bf16")


LAYER = Entry(2)
"""Behind its weight and its data."""


def layer(channels: int = 64, filters: int = 64, kernel: tuple[int, ...] = (1, 1), **attrs: Any) -> Net:
    net = Net()
    weight = net.param("weight", filters, channels // int(attrs.get("num_group", 1)), *kernel)
    data = net.var("data")
    net.op(
        "Convolution", data, weight, name="layer", kernel=kernel, num_filter=filters, no_bias=True, **attrs
    )
    return net


def found(net: Net, output: tuple[int, ...] | None, target: Target = WITH_AMX) -> bool:
    graph = net.graph(LAYER)
    shapes = [(net.params["weight"].shape,), ((1, 64, *output[2:]),) if output else (None,), (output,)]
    names = overrunning(graph, ["null", "null", "Convolution"], shapes, target)
    assert names in ({}, {"layer": WHY_OVERRUNS})
    return bool(names)


def test_three_tiles_overrun() -> None:
    seen = [pixels for pixels in range(1, 101) if found(layer(), (1, 64, 1, pixels))]
    assert seen == [21, 27, 33, 36, 39, 42, 45, 48]


@pytest.mark.parametrize(
    ("net", "output", "overruns"),
    [
        (layer(), (8, 64, 6, 6), True),
        (layer(kernel=(1,)), (1, 64, 48), True),
        (layer(kernel=(1, 1, 1)), (1, 64, 3, 4, 4), True),
        (layer(channels=32, filters=16), (1, 16, 8, 6), True),
        (layer(), None, False),
        (layer(channels=48), (1, 64, 6, 6), False),
        (layer(filters=24), (1, 24, 6, 6), False),
        (layer(kernel=(3, 3)), (1, 64, 6, 6), False),
        (layer(stride=(2, 2)), (1, 64, 6, 6), False),
        (layer(num_group=2), (1, 64, 6, 6), False),
    ],
)
def test_what_overruns_is_what_was_seen_to(net: Net, output: tuple[int, ...] | None, overruns: bool) -> None:
    assert found(net, output) == overruns
    assert not found(net, output, WITHOUT)


@pytest.mark.parametrize("low_precision", [None, LowPrecision.REQUIRED])
@pytest.mark.parametrize("side", [6, 7])
def test_it_stays_float32_whatever_is_wanted(side: int, low_precision: LowPrecision | None) -> None:
    net = layer(1024, 1024)
    graph = net.graph(LAYER)
    shapes = [((1024, 1024, 1, 1),), ((8, 1024, side, side),), ((8, 1024, side, side),)]
    options = {} if low_precision is None else {"low_precision": low_precision}
    decisions = plan_for(graph, net.params, BF16, target=WITH_AMX, shapes=shapes, **options).decisions
    made = decisions[LAYER.node]
    assert made is not None
    assert (made.compute is BF16) == (side == 7)
    assert (WHY_OVERRUNS in made.reason) == (side == 6)


RUN = """
import numpy as np, mxnet as mx, mxamp
from mxamp.runtime.amx import permit_amx
permit_amx()
data = mx.sym.Variable("data")
first = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=512, no_bias=True, name="first")
last = mx.sym.Convolution(first, kernel=(1, 1), num_filter=512, no_bias=True, name="last")
random = np.random.default_rng(0)
args = {
    "first_weight": mx.nd.array(random.normal(0, 0.01, (512, 512, 3, 3))),
    "last_weight": mx.nd.array(random.normal(0, 0.04, (512, 512, 1, 1))),
}
shape = (1, 512, 6, 6)
model = mxamp.convert_model(last, args, {}, "bfloat16", target="cpu-bf16-amx", input_shapes={"data": shape})
print({node.name: node.compute for node in model.report.nodes})
bound = model.sym.bind(mx.cpu(), args={**model.args, "data": mx.nd.ones(shape)}, grad_req="null")
for _ in range(6):
    print(bound.forward()[0].asnumpy().shape)
"""


def test_a_model_of_such_sizes_runs_with_amx() -> None:
    pytest.importorskip("mxnet", reason="MXNet computes")
    if "amx_bf16" not in (cpu_flags() or ()):
        pytest.skip("this CPU has no AMX")
    variable, value = AMX_SETTING
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN],
        env={**os.environ, variable: value, "MXNET_SUBGRAPH_BACKEND": "MKLDNN"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "{'first': 'bfloat16', 'last': 'float32'}" in done.stdout
    assert done.stdout.count("(1, 512, 6, 6)") == 6
