"""The user's casts that have nothing left to do go, so that converting again finds none."""

from __future__ import annotations

import pytest

from mxamp.graph import Entry, Graph
from tests.building import BF16, Net, assert_sound, casts, convert, reconvert

STEPS = ("drop_no_ops",)


def cast_between(
    *dtypes: str, op: str = "amp_cast", end: str = "conv", head: bool = False
) -> tuple[Graph, Net]:
    """Return a layer, casts of the user's, and a layer or a function behind them."""
    net = Net()
    value = net.conv(net.var("data"), "conv0")
    for number, dtype in enumerate(dtypes):
        value = net.op(op, value, name=f"cast{number}", dtype=dtype)
    last = net.conv(value, "conv1") if end == "conv" else net.op(end, value, name="last")
    return net.graph(last, *([value] if head else [])), net


@pytest.mark.parametrize("op", ["amp_cast", "Cast"])
@pytest.mark.parametrize("dtypes", [["float32"], ["bfloat16", "float32"]], ids=str)
def test_a_cast_between_low_layers_goes(op: str, dtypes: list[str]) -> None:
    graph, net = cast_between(*dtypes, op=op)
    model = convert(graph, net.params, prepare=STEPS)
    assert not {"cast0", "cast1"} & {node.name for node in model.graph.nodes}
    assert_sound(graph, model)
    assert reconvert(model, prepare=STEPS).graph == model.graph


def test_a_rounding_of_the_users_before_what_stays_float32_goes_where_the_layer_rounds() -> None:
    graph, net = cast_between("bfloat16", "float32", end="exp")
    model = convert(graph, net.params, prepare=STEPS)
    assert "cast0" not in [node.name for node in model.graph.nodes]
    assert "cast1" in [node.name for node in model.graph.nodes]
    assert reconvert(model, prepare=STEPS).graph == model.graph


@pytest.mark.parametrize(
    ("case", "options"),
    [
        pytest.param(cast_between("float32", head=True), {}, id="an output has its name"),
        pytest.param(cast_between("float16", "float32"), {}, id="it rounds to another format"),
        pytest.param(cast_between("float32"), {"prepare": ()}, id="no-ops are not to be dropped"),
        pytest.param(cast_between("bfloat16", "float32"), {"exclude": True}, id="it casts float32"),
    ],
)
def test_refuses(case: tuple[Graph, Net], options: dict[str, object]) -> None:
    graph, net = case
    if options.pop("exclude", False):
        from mxamp.policy import Policy

        options["policy"] = Policy.default(BF16).excluding(names=["conv0"])
    model = convert(graph, net.params, **{"prepare": STEPS, **options})
    assert "cast0" in [node.name for node in model.graph.nodes]
    assert_sound(graph, model)


def test_the_other_reader_of_what_was_cast_is_untouched() -> None:
    net = Net()
    layer = net.conv(net.var("data"), "conv0")
    widened = net.op("Cast", layer, name="cast0", dtype="float32")
    graph = net.graph(net.conv(widened, "conv1"), net.op("exp", layer, name="exp0"))
    model = convert(graph, net.params, prepare=STEPS)
    assert "cast0" not in [node.name for node in model.graph.nodes]
    assert casts(model.graph).count("conv0 -> float32") == 1
    assert graph.uses_of(Entry(2))


@pytest.mark.parametrize("low_input", [True, False])
def test_a_cast_to_float32_goes_behind_a_cast_up_and_stays_where_an_input_may_be_anything(
    low_input: bool,
) -> None:
    net = Net()
    squared = net.op("exp", net.var("data"), name="exp0")
    graph = net.graph(net.op("exp", net.op("amp_cast", squared, name="cast0", dtype="float32"), name="exp1"))
    model = convert(graph, net.params, prepare=STEPS, io_dtype="low" if low_input else None)
    assert ("cast0" in [node.name for node in model.graph.nodes]) is not low_input
    assert reconvert(model, prepare=STEPS, io_dtype="low" if low_input else None).graph == model.graph
