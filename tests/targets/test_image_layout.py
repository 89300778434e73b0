"""In which order a layer keeps images is what oneDNN says that it runs, and what costs look at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from mxamp.decisions.workload import model_work
from mxamp.graph import Graph
from mxamp.measuring.machine import cpu_flags
from mxamp.targets import Work
from mxamp.targets.image_layout import BLOCKS, CHANNELS_LAST, PLAIN, WIDEST_BLOCK, layer_layout
from mxamp.targets.kernel_terms import amounts_and_traits
from tests.building import Net

LAYERS = """
import json
import sys

import mxnet as mx

for number, (low, data, filters, kernel, stride, pad, groups) in enumerate(json.loads(sys.argv[1])):
    array = mx.nd.zeros(data)
    weight = mx.nd.zeros((filters, data[1] // groups, kernel, kernel))
    if low:
        array, weight = (mx.nd.amp_cast(one, dtype="bfloat16") for one in (array, weight))
    layer = mx.sym.Convolution(
        mx.sym.var("data"), mx.sym.var("weight"), kernel=(kernel, kernel), stride=(stride, stride),
        pad=(pad, pad), num_filter=filters, num_group=groups, no_bias=True,
    )
    # Behind it stands what keeps its order: the outputs of a graph are always plain.
    layer = mx.sym.Pooling(layer, kernel=(1, 1), pool_type="max")
    bound = layer.bind(mx.cpu(), args={"data": array, "weight": weight}, grad_req="null")
    print("layer", number, flush=True)
    bound.forward(is_train=False)
    bound.outputs[0].wait_to_read()
    sys.stdout.flush()
"""

SHAPES = [
    # (batch, channels, side, filters, kernel, stride, groups)
    *[(1, 64, 14, filters, 1, 1, 1) for filters in (8, 16, 20, 48, 64, 80, 96, 128, 160, 176, 240, 256)],
    *[(1, 128, 28, filters, 1, 1, 1) for filters in (288, 304, 416, 448, 512, 768, 1024)],
    *[(1, 256, 7, filters, 1, 1, 1) for filters in (64, 320, 512, 2048)],
    *[(1, 256, 28, filters, 1, 2, 1) for filters in (128, 512)],
    *[(1, 64, 8, filters, 3, 1, 1) for filters in (8, 24, 48, 64, 144, 160, 208)],
    *[(1, 32, 28, filters, 3, 1, 1) for filters in (48, 144, 432, 512)],
    *[(8, 64, 14, 64, 5, 2, 1), (1, 3, 32, 64, 7, 2, 1), (1, 1, 28, 16, 5, 1, 1), (1, 2, 28, 32, 3, 1, 1)],
    *[(1, 64, 14, 64, 3, 1, 64), (1, 72, 14, 72, 3, 1, 72), (1, 20, 14, 20, 3, 1, 20)],
    *[(1, 128, 14, 128, 3, 1, 32), (1, 128, 14, 256, 3, 1, 2), (2, 24, 14, 48, 1, 1, 1)],
]


WITH_MUCH_PADDING = [
    *[(1, 3, 40, 16, kernel, stride, 1) for kernel in (5, 7, 8, 9, 11) for stride in (1, 2, 4)],
    *[(1, 16, 40, 16, kernel, stride, 16) for kernel in (7, 9, 11) for stride in (1, 2)],
    *[(1, 16, 40, 16, kernel, 1, groups) for kernel in (7, 9) for groups in (1, 2)],
]
"""Half a window of it; without AVX-512 that decides as well."""


def order_of(implementation: str) -> int:
    """Return the order that oneDNN's implementations of convolutions read and write."""
    if implementation.startswith("br"):
        return CHANNELS_LAST
    return BLOCKS if implementation.startswith("jit") else PLAIN


@pytest.mark.parametrize(
    ("low", "block"),
    [(False, 16), (True, 16), (False, 8)],
    ids=["float32", "bfloat16", "float32 without AVX-512"],
)
def test_orders_are_those_that_onednn_says_it_takes(low: bool, block: int) -> None:
    pytest.importorskip("mxnet", reason="its oneDNN says it")
    if block == WIDEST_BLOCK and "avx512bw" not in cpu_flags():
        pytest.skip("what is said is of CPUs with AVX-512")
    if low and "avx512_bf16" not in cpu_flags():
        pytest.skip("bfloat16 is emulated here, by other implementations")
    if low and "amx_bf16" in cpu_flags():
        pytest.skip("with AMX other implementations run")
    asked = [
        (low, (n, c, side, side), filters, kernel, stride, kernel // 2, groups)
        for n, c, side, filters, kernel, stride, groups in [
            *SHAPES,
            *(WITH_MUCH_PADDING if block < WIDEST_BLOCK else []),
        ]
    ]
    # An engine of threads would print in the middle of a line.
    own = {"DNNL_VERBOSE": "1", "MXNET_ENGINE_TYPE": "NaiveEngine", "OMP_NUM_THREADS": "1"}
    if block < WIDEST_BLOCK:
        own["DNNL_MAX_CPU_ISA"] = "AVX2"
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LAYERS, json.dumps(asked)],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=True,
    )
    ran: dict[int, str] = {}
    number = -1
    for line in process.stdout.splitlines():
        if line.startswith("layer "):
            number = int(line.split()[1])
        elif line.startswith("dnnl_verbose,exec,cpu,convolution,"):
            ran[number] = line.split(",")[4]
    assert sorted(ran) == list(range(len(asked)))
    wrong = []
    for number, (_, data, filters, kernel, stride, pad, groups) in enumerate(asked):
        side = (data[2] + 2 * pad - kernel) // stride + 1
        attributes = {"stride": f"({stride}, {stride})", "pad": f"({pad}, {pad})", "num_group": str(groups)}
        attributes["kernel"] = f"({kernel}, {kernel})"
        weight, output = (filters, data[1] // groups, kernel, kernel), (data[0], filters, side, side)
        said = layer_layout("Convolution", attributes, data, weight, output, low=low, block=block)
        if said != order_of(ran[number]):
            wrong.append((data, filters, kernel, stride, groups, said, ran[number]))
    # Of two ways that promise nearly the same, what caches hold decides; that differs from CPU to CPU.
    assert len(wrong) <= (len(asked) // 20 if block == WIDEST_BLOCK else 0), wrong


@pytest.mark.parametrize(
    ("data", "weight", "groups", "order"),
    [
        pytest.param((1, 64, 14, 14), (64, 64, 4, 4), 1, BLOCKS, id="blocks"),
        pytest.param((1, 64, 14, 14), (64, 3, 4, 4), 1, PLAIN, id="filters of no blocks"),
        pytest.param(
            (1, 3, 14, 14), (3, 16, 4, 4), 1, PLAIN, id="few channels are read by convolutions alone"
        ),
        pytest.param((1, 64, 14, 14), (64, 16, 4, 4), 4, BLOCKS, id="groups"),
        pytest.param((1, 64, 14, 14), (64, 1, 4, 4), 64, BLOCKS, id="depthwise"),
        pytest.param((1, 12, 14, 14), (12, 1, 4, 4), 12, PLAIN, id="depthwise, no blocks"),
    ],
)
def test_without_avx512_deconvolutions_read_blocks_of_eight(
    data: tuple[int, ...], weight: tuple[int, ...], groups: int, order: int
) -> None:
    output = (1, weight[1] * groups, 28, 28)
    attributes = {"num_group": str(groups), "stride": "(2, 2)", "pad": "(1, 1)"}
    said = layer_layout("Deconvolution", attributes, data, weight, output, low=False, block=8)
    assert said == order


def works(filters: int, op: str = "Convolution", **attrs: Any) -> list[Work]:
    """Return what two layers do, the second of which is a depthwise convolution."""
    net = Net()
    weight = net.param("weight", *((64, filters, 2, 2) if op == "Deconvolution" else (filters, 64, 1, 1)))
    own = net.param("own", filters, 1, 3, 3)
    first = net.op(op, net.var("data"), weight, name="first", num_filter=filters, no_bias=True, **attrs)
    second = net.op(
        "Convolution", first, own, name="second", kernel=(3, 3), pad=(1, 1), num_filter=filters,
        num_group=filters, no_bias=True,
    )  # fmt: skip
    graph: Graph = net.graph(second)
    side = 28 if op == "Deconvolution" else 14
    shapes = {
        "data": (1, 64, 14, 14), "weight": weight_shape(net, "weight"), "own": weight_shape(net, "own"),
        "first": (1, filters, side, side), "second": (1, filters, side, side),
    }  # fmt: skip
    found = model_work(graph, [(shapes[node.name],) for node in graph.nodes])
    return [work for work in found if work is not None]


def weight_shape(net: Net, name: str) -> tuple[int, ...]:
    return tuple(net.params[name].shape)


def test_data_arrive_in_the_order_of_the_layer_that_wrote_them() -> None:
    first, second = works(64, kernel=(1, 1))
    assert first.arrives_in == (PLAIN, PLAIN)
    assert second.arrives_in == (CHANNELS_LAST, CHANNELS_LAST)
    assert works(512, kernel=(1, 1))[1].arrives_in == (BLOCKS, CHANNELS_LAST)
    assert works(20, kernel=(1, 1))[1].arrives_in == (PLAIN, PLAIN)
    assert works(64, "Deconvolution", kernel=(2, 2), stride=(2, 2))[1].arrives_in == (BLOCKS, BLOCKS)


def test_what_comes_in_another_order_is_an_amount() -> None:
    same, other = works(64, kernel=(1, 1))[1], works(64, "Deconvolution", kernel=(2, 2), stride=(2, 2))[1]
    for low, itemsize in ((False, 4), (True, 2)):
        amounts, traits = amounts_and_traits("Convolution", same, low=low)
        assert amounts["relaid"] == 0
        assert traits["arrives_in"] == traits["runs_in"] == CHANNELS_LAST
        amounts, traits = amounts_and_traits("Convolution", other, low=low)
        assert amounts["relaid"] == itemsize * 64 * 28 * 28
        assert (traits["arrives_in"], traits["runs_in"]) == (BLOCKS, CHANNELS_LAST)


def test_plain_order_is_no_other_one() -> None:
    first = works(64, kernel=(1, 1))[0]
    amounts, traits = amounts_and_traits("Convolution", first, low=False)
    assert amounts["relaid"] == 0
    assert (traits["arrives_in"], traits["runs_in"]) == (PLAIN, CHANNELS_LAST)


def image(channels: int, side: int, order: int) -> Work:
    shape = (1, channels, side, side)
    return Work(0, 2, inputs=(shape,), output=shape, is_blocked=True, arrives_in=(order, order))


@pytest.mark.parametrize(
    ("op", "channels", "side", "order", "apart"),
    [
        ("exp", 256, 14, CHANNELS_LAST, 256),
        ("exp", 1024, 14, CHANNELS_LAST, 512),
        ("amp_cast", 192, 10, CHANNELS_LAST, 64),
        pytest.param("exp", 96, 14, CHANNELS_LAST, 0, id="near each other"),
        pytest.param("exp", 256, 16, CHANNELS_LAST, 0, id="eight places at once"),
        pytest.param("exp", 256, 7, CHANNELS_LAST, 0, id="one place at once"),
        pytest.param("exp", 256, 14, BLOCKS, 0, id="blocks"),
        pytest.param("Pooling", 256, 14, CHANNELS_LAST, 0, id="keeps the order"),
    ],
)
def test_four_places_at_once_are_gathered_from_few_sets_of_a_cache(
    op: str, channels: int, side: int, order: int, apart: int
) -> None:
    amounts, _ = amounts_and_traits(op, image(channels, side, order), low=False)
    assert amounts["gathered"] == apart * channels * side * side
