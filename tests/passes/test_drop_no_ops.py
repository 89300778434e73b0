"""What does nothing in inference goes, casts that lead back go; what rounds, or names an output, stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.dtypes import DType
from mxamp.graph import Entry, Graph
from mxamp.passes import DropNoOps
from mxamp.passes.drop_no_ops import EXACT
from mxamp.policy import Policy
from tests.building import BF16, Net, convert, parameters, reconvert
from tests.passes.executing import outputs
from tests.passes.preparing import operators, prepared

NO_OPS = {
    "Dropout": {"p": "0.5"},
    "_npx_dropout": {"p": "0.5", "mode": "training"},
    "_copy": {},
    "identity": {},
    "_np_copy": {},
    "BlockGrad": {},
    "stop_gradient": {},
    "_contrib_gradientmultiplier": {"scalar": "0.1"},
    "Pad": {"mode": "edge", "pad_width": "(0, 0, 0, 0, 0, 0, 0, 0)"},
}


@pytest.mark.parametrize("op", NO_OPS)
def test_what_does_nothing_is_dropped(op: str) -> None:
    net = Net()
    layer = net.fc(net.var("data"), "fc")
    middle = net.op(op, layer, name="nothing", outputs=2 if "ropout" in op else 1, **NO_OPS[op])
    graph = net.graph(net.op("exp", middle, name="exp"), net.op("tanh", middle, name="tanh"))
    after, done = prepared(DropNoOps, graph, net.params)
    assert operators(after)[1:] == ["exp = exp(fc)", "tanh = tanh(fc)"]
    (change,) = done.changes
    assert (change.node, change.op, change.into) == ("nothing", op, "fc")


def test_a_slice_to_the_end_of_any_number_of_axes_goes() -> None:
    net = Net()
    cut = net.op("slice_axis", net.var("data"), name="nothing", axis=2, begin=0, end=None)
    after, _ = prepared(DropNoOps, net.graph(net.op("exp", cut, name="exp")))
    assert operators(after) == ["exp = exp(data)"]


OF_A_LAYER = {
    "slice_axis": ("slice_axis", {"axis": 1, "begin": 0, "end": 4}),
    "slice_axis to the end": ("slice_axis", {"axis": -1, "begin": 0, "end": None}),
    "slice": ("slice", {"begin": (None, 0), "end": (None, 4)}),
    "slice with steps": ("slice", {"begin": (0, 0), "end": (None, None), "step": (1, 1)}),
    "Concat": ("concat", {"dim": 1, "num_args": 1}),
    "add_n": ("ElementWiseSum", {"num_args": 1}),
    "tile": ("tile", {"reps": (1, 1)}),
    "a sum": ("_plus_scalar", {"scalar": 0}),
    "a difference": ("_MinusScalar", {"scalar": "0.0"}),
    "a product": ("_mul_scalar", {"scalar": "1.0"}),
    "a quotient": ("_DivScalar", {"scalar": 1}),
    "a power": ("_PowerScalar", {"scalar": 1.0}),
    "a maximum": ("Pooling", {"kernel": (1, 1)}),
    "a mean": ("Pooling", {"kernel": (1, 1), "stride": (1, 1), "pad": (0, 0), "pool_type": "avg"}),
}
"""Behind a layer of four channels."""


@pytest.mark.parametrize("case", OF_A_LAYER)
def test_what_hands_on_all_of_a_layer_is_dropped(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, attrs = OF_A_LAYER[case]
    net = Net()
    middle = net.op(op, net.conv(net.var("data"), "layer"), name="nothing", **attrs)
    graph = net.graph(net.op("exp", middle, name="exp"))
    known = [((4, 4, 1, 1) if node.name in net.params else (2, 4, 5, 3),) for node in graph.nodes]
    after, done = prepared(DropNoOps, graph, net.params, shapes=known)
    assert operators(after)[1:] == ["exp = exp(layer)"]
    assert [(change.node, change.into) for change in done.changes] == [("nothing", "layer")]
    pytest.importorskip("mxnet", reason="MXNet computes the same")
    data = {"data": np.random.default_rng(0).standard_normal((2, 4, 5, 3)).astype(np.float32)}
    (expected,) = outputs(monkeypatch, graph, parameters(net.params), data)
    (found,) = outputs(monkeypatch, after, done.params, data)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("slice_axis", {"axis": 1, "begin": 1, "end": 4}),
        ("slice_axis", {"axis": 1, "begin": 0, "end": 3}),
        ("slice_axis", {"axis": 2, "begin": 0, "end": 5}),  # as many in this call
        ("slice", {"begin": (0, 0), "end": (1, 4)}),
        ("slice", {"begin": (0, 0), "end": (None, None), "step": (1, -1)}),
        ("concat", {"dim": 1, "num_args": 2}),
        ("tile", {"reps": (1, 2)}),
        ("tile", {"reps": (1, 1, 1, 1, 1)}),
        ("_plus_scalar", {"scalar": 1e-45}),
        ("_power_scalar", {"scalar": 2}),
        ("_mul_scalar", {"scalar": 1.0000001}),
        ("_div_scalar", {"scalar": -1}),
        ("Pooling", {"kernel": (1, 1), "stride": (2, 2)}),
        ("Pooling", {"kernel": (1, 1), "pad": (1, 1)}),
        ("Pooling", {"kernel": (1, 1), "global_pool": True}),
        ("Pooling", {"kernel": (1, 1), "pool_type": "lp", "p_value": 2}),
        ("Pooling", {"kernel": (1, 2)}),
    ],
)
def test_what_does_something_to_a_layer_stays(op: str, attrs: dict[str, Any]) -> None:
    net = Net()
    layer = net.conv(net.var("data"), "layer")
    middle = net.op(op, *[layer] * attrs.get("num_args", 1), name="something", **attrs)
    graph = net.graph(net.op("exp", middle, name="exp"))
    known = [((1, 4, 5, 5),)] * len(graph.nodes)
    assert prepared(DropNoOps, graph, net.params, shapes=known)[0] is graph


def test_a_chain_of_them_is_dropped_from_end_to_end() -> None:
    net = Net()
    data = net.var("data")
    for op in ("_copy", "BlockGrad", "Dropout"):
        data = net.op(op, data, name=op, outputs=2 if op == "Dropout" else 1)
    after, done = prepared(DropNoOps, net.graph(net.op("exp", data, name="exp")))
    assert operators(after) == ["exp = exp(data)"]
    assert [change.into for change in done.changes] == ["data"] * 3


def pad(width: str) -> Graph:
    net = Net()
    return net.graph(net.op("exp", net.op("Pad", net.var("data"), mode="edge", pad_width=width)))


def test_what_is_flat_is_not_flattened_again() -> None:
    net = Net()
    flat = net.op("Flatten", net.op("flatten", net.var("data"), name="first"), name="second")
    after, done = prepared(DropNoOps, net.graph(net.op("exp", flat, name="y")))
    assert operators(after) == ["first = flatten(data)", "y = exp(first)"]
    assert [(change.node, change.into) for change in done.changes] == [("second", "first")]


def dropout(*, mode: str = "training", output: int = 0, head: bool = False) -> Graph:
    net = Net()
    drop = net.op("Dropout", net.var("data"), name="drop", outputs=2, mode=mode)
    last = net.op("exp", Entry(drop.node, output), name="exp")
    return net.graph(last, drop) if head else net.graph(last)


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(dropout(mode="always"), id="random in inference too"),
        pytest.param(dropout(output=1), id="its mask is read"),
        pytest.param(pad("(0, 0, 0, 0, 0, 0, 0, 1)"), id="a Pad of some width"),
        pytest.param(pad("(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)"), id="a Pad of a volume"),
        pytest.param(pad("wide"), id="a Pad of a width that is not read"),
    ],
)
def test_refuses(graph: Graph) -> None:
    after, _ = prepared(DropNoOps, graph)
    assert after is graph


def test_one_that_is_an_output_stays_and_its_readers_pass_it_by() -> None:
    after, done = prepared(DropNoOps, dropout(head=True))
    assert operators(after) == ["drop = Dropout(data) {mode: training}", "exp = exp(data)"]
    (change,) = done.changes
    assert (change.node, change.into) == ("drop", "drop")
    assert "pass it by" in change.reason


def test_a_cast_finds_its_way_back_past_an_output_that_does_nothing() -> None:
    net = Net()
    low = net.op("amp_cast", net.fc(net.var("data"), "fc"), name="low", dtype="bfloat16")
    drop = net.op("Dropout", net.op("amp_cast", low, name="up", dtype="float32"), name="drop", outputs=2)
    again = net.op("amp_cast", drop, name="again", dtype="bfloat16")
    graph = net.graph(net.op("exp", again, name="exp"), drop)
    after, _ = prepared(DropNoOps, graph, net.params)
    assert [one for one in operators(after) if one.startswith(("exp", "drop"))] == [
        "drop = Dropout(up)",
        "exp = exp(low)",
    ]


def test_an_output_whose_name_its_cast_took_is_kept_when_it_is_converted_again() -> None:
    net = Net()
    graph = net.graph(net.op("Dropout", net.op("exp", net.var("data"), name="exp"), name="drop", p="0.5"))
    model = convert(graph, prepare=("drop_no_ops",), io_dtype="low")
    assert operators(model.graph)[-1].startswith("drop = amp_cast(drop_float32)")
    again = reconvert(model, prepare=("drop_no_ops",), io_dtype="low")
    assert again.graph == model.graph


def test_what_a_rule_of_the_users_picks_stays() -> None:
    policy = Policy.default(BF16).excluding(names=["drop"])
    graph = dropout()
    after, _ = prepared(DropNoOps, graph, policy=policy)
    assert after is graph


# ---------------------------------------------------------------------- casts


def casts(*dtypes: str, source: str = "0", op: str = "Cast") -> Graph:
    """Return a chain of casts between an input of a dtype code (-1: unknown) and exp."""
    net = Net()
    value = net.var("data", __dtype__=source)
    for number, dtype in enumerate(dtypes):
        value = net.op(op, value, name=f"cast{number}", dtype=dtype)
    return net.graph(net.op("exp", value, name="exp"))


@pytest.mark.parametrize("op", ["Cast", "amp_cast"])
@pytest.mark.parametrize(
    ("source", "chain"),
    [
        pytest.param("0", ["float32"], id="to the dtype it has"),
        pytest.param("2", ["float32", "float16"], id="float16 by way of float32"),
        pytest.param("12", ["float32", "bfloat16"], id="bfloat16 by way of float32"),
    ],
)
def test_casts_that_change_no_value_are_dropped(op: str, source: str, chain: list[str]) -> None:
    after, done = prepared(DropNoOps, casts(*chain, source=source, op=op))
    assert operators(after) == ["exp = exp(data)"]
    assert [change.into for change in done.changes] == ["data"] * len(chain)


def test_what_follows_a_layer_with_a_float32_weight_is_float32_whatever_the_input_says() -> None:
    net = Net()
    layer = net.fc(net.op("abs", net.var("data"), name="abs"), "fc0")
    graph = net.graph(net.op("exp", net.op("Cast", layer, name="up", dtype="float32"), name="exp"))
    after, _ = prepared(DropNoOps, graph, net.params)
    assert operators(after)[-1] == "exp = exp(fc0)"
    model = convert(graph, net.params, prepare=("drop_no_ops",))
    assert reconvert(model, prepare=("drop_no_ops",)).graph == model.graph


def test_a_longer_chain_of_casts_is_dropped() -> None:
    after, _ = prepared(DropNoOps, casts("float32", "float64", "float32", "float16", source="2"))
    assert operators(after) == ["exp = exp(data)"]


def test_only_the_way_back_is_dropped() -> None:
    after, _ = prepared(DropNoOps, casts("float16", "float32", "float16"))
    assert operators(after) == ["cast0 = Cast(data) {dtype: float16}", "exp = exp(cast0)"]


def test_a_cast_with_another_reader_stays_for_that() -> None:
    net = Net()
    up = net.op("Cast", net.var("data", __dtype__="2"), name="up", dtype="float32")
    down = net.op("Cast", up, name="down", dtype="float16")
    graph = net.graph(net.op("exp", down, name="exp"), net.op("tanh", up, name="tanh"))
    after, _ = prepared(DropNoOps, graph)
    assert operators(after) == ["up = Cast(data) {dtype: float32}", "exp = exp(data)", "tanh = tanh(up)"]


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(casts("float16", "float32"), id="float32 by way of float16 is rounded"),
        pytest.param(casts("bfloat16", "float32"), id="float32 by way of bfloat16 is rounded"),
        pytest.param(casts("bfloat16", "float16", source="2"), id="float16 by way of bfloat16 is rounded"),
        pytest.param(casts("float16", "bfloat16", source="12"), id="bfloat16 by way of float16 overflows"),
        pytest.param(casts("float32", "int32", source="4"), id="int32 by way of float32 is rounded"),
        pytest.param(casts("int32", "float32"), id="float32 by way of int32 loses fractions"),
        pytest.param(casts("float32", source="-1"), id="an input that may be fed with uint8"),
        pytest.param(casts("float32", "float32", source="-1", op="amp_cast"), id="amp_cast lets uint8 pass"),
    ],
)
def test_casts_that_may_change_a_value_stay(graph: Graph) -> None:
    after, _ = prepared(DropNoOps, graph)
    assert after is graph


@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_every_value_survives_the_dtypes_that_are_called_exact(dtype: DType) -> None:
    size = 8 * dtype.itemsize
    if size <= 16:
        values = np.arange(2**size, dtype=f"uint{size}").view(dtype.numpy)
    else:
        bits = np.random.default_rng(0).integers(0, 2**size, 100_000, dtype=np.uint32)
        values = bits.view(dtype.numpy)
    with np.errstate(all="ignore"):
        for way in EXACT[dtype]:
            back = values.astype(way.numpy).astype(dtype.numpy)
            if dtype.is_float:
                nan = np.isnan(values.astype(np.float64))
                assert np.isnan(back[nan].astype(np.float64)).all()
                np.testing.assert_array_equal(back[~nan], values[~nan])
            else:
                np.testing.assert_array_equal(back, values)
