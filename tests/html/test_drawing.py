"""The picture of a graph as a value: what is drawn for a converted model."""

from __future__ import annotations

import mxamp
from mxamp.html.drawing import INPUT, OUTPUT, Arrow, Drawing, draw
from mxamp.model import Model
from tests.building import Net, parameters


def network(*, blocks: int = 1) -> Model:
    """Blocks of convolution, BatchNorm and relu, and softmax, which stays in float32."""
    net = Net()
    x = net.var("data")
    for number in range(blocks):
        x = net.bn(net.conv(x, f"block{number}_conv0"), f"block{number}_bn0")
        x = net.op("Activation", x, name=f"block{number}_relu0", act_type="relu")
    graph = net.graph(net.op("softmax", x, name="softmax0"))
    auxs = {name: value for name, value in net.params.items() if "moving" in name}
    args = {name: value for name, value in net.params.items() if name not in auxs}
    return Model(graph, parameters(args), parameters(auxs))


def converted(*, blocks: int = 1) -> Model:
    model = network(blocks=blocks)
    return mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "bfloat16")


def drawn(model: Model) -> Drawing:
    stored = {name: value.dtype for name, value in {**model.arg_params, **model.aux_params}.items()}
    return draw(model.graph, stored, report=model.report)


def named(drawing: Drawing) -> dict[str, int]:
    return {shape.name: number for number, shape in enumerate(drawing.shapes)}


def test_casts_are_on_the_arrows_and_not_among_the_nodes() -> None:
    drawing = drawn(converted())
    place = named(drawing)
    assert not any(shape.op == "amp_cast" for shape in drawing.shapes)
    (down,) = [arrow for arrow in drawing.arrows if arrow.source == place["data"]]
    assert drawing.shapes[down.target].name == "block0_conv0"
    assert (drawing.casts[down.cast].from_dtype, drawing.casts[down.cast].to_dtype) == ("float32", "bfloat16")
    (up,) = [arrow for arrow in drawing.arrows if arrow.target == place["softmax0"]]
    assert (drawing.casts[up.cast].from_dtype, drawing.casts[up.cast].to_dtype) == ("bfloat16", "float32")


def test_inputs_and_outputs_are_drawn_and_parameters_are_not() -> None:
    drawing = drawn(network())
    assert [shape.name for shape in drawing.shapes if shape.op == INPUT] == ["data"]
    assert [shape.name for shape in drawing.shapes if shape.op == OUTPUT] == ["softmax0_output"]
    assert "block0_conv0_weight" not in named(drawing)
    assert Arrow(len(drawing.shapes) - 2, len(drawing.shapes) - 1) in drawing.arrows


def test_a_node_knows_its_reason_its_dtype_and_what_was_folded_into_it() -> None:
    model = converted()
    drawing = drawn(model)
    conv = drawing.shapes[named(drawing)["block0_conv0"]]
    assert conv.dtype == "bfloat16"
    assert conv.is_low
    assert conv.report is not None
    assert conv.report == model.report.node("block0_conv0")
    assert conv.holds == ("block0_bn0",)
    softmax = drawing.shapes[named(drawing)["softmax0"]]
    assert softmax.dtype == "float32"
    assert not softmax.is_low


def test_groups_hold_operators_and_no_inputs() -> None:
    drawing = drawn(converted(blocks=40))
    assert drawing.folding.groups
    assert all(shape.group == -1 for shape in drawing.shapes if shape.op in (INPUT, OUTPUT))
    assert tuple(s.group for s in drawing.shapes) == drawing.folding.members


def test_a_text_that_repeats_is_in_the_page_once() -> None:
    plain = drawn(converted(blocks=40)).to_mapping()
    assert len(plain["texts"]) == len(set(plain["texts"]))
    shape = next(shape for shape in plain["shapes"] if shape["n"] == "block7_conv0")
    assert plain["texts"][shape["o"]] == "Convolution"
    assert plain["texts"][shape["w"]].startswith("convolution") or plain["texts"][shape["w"]]
