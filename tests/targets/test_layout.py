"""What a node finds its data in is what oneDNN says, behind operators that write over what they read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Callable, Mapping, NamedTuple, Sequence

import pytest

from mxamp.decisions.workload import written_layouts
from mxamp.graph import Entry, Graph
from mxamp.graph.symbol_writer import write_symbol
from mxamp.measuring.machine import cpu_flags
from mxamp.targets.image_layout import BLOCKS, CHANNELS_LAST, PLAIN
from mxamp.targets.layout import WRITE_OVER
from tests.building import Net

CHANNELS, SIDE = 32, 8

RUN = """
import json
import sys

import mxnet as mx

for number, (text, shapes) in enumerate(json.loads(sys.argv[1])):
    symbol = mx.sym.load_json(text)
    arrays = {name: mx.nd.full(shapes[name], 0.5) for name in symbol.list_arguments()}
    bound = symbol.bind(mx.cpu(), args=arrays, grad_req="null")
    print("graph", number, flush=True)
    for _ in range(2):
        for output in bound.forward(is_train=False):
            output.wait_to_read()
    sys.stdout.flush()
"""

Case = Callable[[Net, Entry], Entry]


class Built(NamedTuple):
    """A graph, the position of the node that a case is about, and the shapes of variables."""

    graph: Graph
    position: int
    shapes: Mapping[str, tuple[int, ...]]


def over(op: str) -> Case:
    """Return what puts an operator behind an image, which is the first that it reads."""

    def put(net: Net, image: Entry) -> Entry:
        others: list[Entry] = []
        if op == "LayerNorm":
            others = [net.param("gamma", SIDE), net.param("beta", SIDE)]
        elif op.startswith("broadcast_"):
            others = [net.param("other", 1, CHANNELS, 1, 1)]
        elif op.startswith("elemwise_") or op in ("_maximum", "_minimum"):
            others = [net.param("other", 1, CHANNELS, SIDE, SIDE)]
        attrs = {"scalar": "2"} if op.endswith("_scalar") else {}
        return net.op(op, image, *others, name="over", **attrs)

    return put


def second(net: Net, image: Entry) -> Entry:
    """Put an operator behind an image that it reads in the second place."""
    return net.op("elemwise_mul", net.param("other", 1, CHANNELS, SIDE, SIDE), image, name="over")


def gated(net: Net, image: Entry) -> Entry:
    """Multiply an image by what is made of it, as a swish does."""
    return net.op("elemwise_mul", image, net.op("hard_sigmoid", image), name="over")


def gate_first(net: Net, image: Entry) -> Entry:
    """Multiply what is made of an image, and is plain, by the image."""
    return net.op("elemwise_mul", net.op("hard_sigmoid", image), image, name="over")


def unbounded(net: Net, image: Entry) -> Entry:
    """Put a clip that is no relu behind an image; MXNet writes it elsewhere."""
    return net.op("clip", image, name="over", a_min="-1.0", a_max="1.0")


CASES: dict[str, tuple[Case, int]] = {
    **{op: (over(op), CHANNELS_LAST) for op in sorted(WRITE_OVER)},
    "second": (second, CHANNELS_LAST),
    "gated": (gated, CHANNELS_LAST),
    "gate first": (gate_first, PLAIN),
    "clip": (unbounded, PLAIN),
}


def graph_of(case: Case, *, read_again: bool = False, is_output: bool = False) -> Built:
    """Return a graph in which a case reads what a layer wrote."""
    net = Net()
    weight = net.param("weight", CHANNELS, 16, 1, 1)
    layer = net.op(
        *("Convolution", net.var("data"), weight),
        **{"name": "layer", "num_filter": CHANNELS, "kernel": "(1, 1)", "no_bias": "True"},
    )
    image = net.op("Pooling", layer, name="image", kernel="(1, 1)", pool_type="avg")
    made = case(net, image)
    # What keeps its order shows it: the outputs of a graph are always plain.
    heads = [net.op("Pooling", made, name="shown", kernel="(1, 1)", pool_type="max")]
    if read_again:
        heads.append(
            net.op("Pooling", image, name="again", global_pool=True, pool_type="sum", kernel="(1, 1)")
        )
    if is_output:
        heads.append(image)
    shapes = {"data": (1, 16, SIDE, SIDE), **{name: values.shape for name, values in net.params.items()}}
    return Built(net.graph(*heads), made.node, shapes)


def said(built: Built) -> int:
    image = (1, CHANNELS, SIDE, SIDE)
    known = [(built.shapes.get(node.name, image),) for node in built.graph.nodes]
    layout = written_layouts(built.graph, known)[built.position]
    return PLAIN if layout is None else layout.float32


def test_orders_are_those_that_onednn_finds() -> None:
    pytest.importorskip("mxnet", reason="its oneDNN says it")
    if "avx512bw" not in cpu_flags():
        pytest.skip("what is said is of CPUs with AVX-512")
    twice = over("_mul_scalar")
    built = {
        **{name: (graph_of(case), order) for name, (case, order) in CASES.items()},
        "read again": (graph_of(twice, read_again=True), PLAIN),
        "an output": (graph_of(twice, is_output=True), PLAIN),
    }
    expected = {name: order for name, (_, order) in built.items()}
    found = orders_found([graph for graph, _ in built.values()])
    assert dict(zip(built, found)) == expected
    assert {name: said(graph) for name, (graph, _) in built.items()} == expected


def orders_found(graphs: Sequence[Built]) -> Sequence[int]:
    """Return in which order the pooling that shows it found its image, graph by graph."""
    asked = [(write_symbol(built.graph), built.shapes) for built in graphs]
    own = {
        "DNNL_VERBOSE": "1",
        "MXNET_ENGINE_TYPE": "NaiveEngine",
        "MXNET_SUBGRAPH_BACKEND": "MKLDNN",
        "OMP_NUM_THREADS": "1",
    }
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN, json.dumps(asked)],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr.strip()[-500:]
    found: dict[int, str] = {}
    number = -1
    for line in process.stdout.splitlines():
        if line.startswith("graph "):
            number = int(line.split()[1])
        elif ",pooling" in line and "alg:pooling_max" in line:
            found[number] = line.split("src_f32::blocked:")[1].split(":")[0]
    orders = {"acdb": CHANNELS_LAST, "aBcd16b": BLOCKS, "abcd": PLAIN}
    return [orders[found[number]] for number in range(len(graphs))]
