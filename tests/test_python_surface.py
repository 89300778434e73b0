"""What the package looks like from Python: its names, a model's text, a shape without a name."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, Iterator, Sequence, get_args

import numpy as np
import pytest

import mxamp
import mxamp.debug
import mxamp.html
from mxamp.errors import DataError
from mxamp.graph.shapes import named_input_shapes
from mxamp.model import Model
from tests.building import Net, parameters


def network(*, inputs: int = 1) -> Model:
    net = Net()
    x = net.conv(net.var("data"), "conv0")
    for number in range(1, inputs):
        x = net.op("broadcast_add", x, net.var(f"data{number}"), name=f"add{number}")
    graph = net.graph(net.op("exp", x, name="exp0"))
    return Model(graph, parameters(net.params), {})


def converted(**options: object) -> Model:
    own = network()
    return mxamp.convert_model(own.graph, own.arg_params, own.aux_params, "bfloat16", **options)


# ---------------------------------------------------------------------- names


def test_the_names_of_the_package_are_its_public_ones() -> None:
    assert dir(mxamp) == sorted(mxamp.__all__)
    assert all(hasattr(mxamp, name) for name in dir(mxamp))


def public_functions() -> Iterator[tuple[str, Any]]:
    """Yield the functions, methods and constructors that docs/api.md lists."""
    for module in (mxamp, mxamp.debug, mxamp.html):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isfunction(thing):
                yield name, thing
            if inspect.isclass(thing):
                own = {member: getattr(thing, member) for member in vars(thing)}
                for member, value in own.items():
                    if inspect.isroutine(value) and (member[0] != "_" or member == "__init__"):
                        yield f"{name}.{member}", value


def is_of_any_type(annotation: object) -> bool:
    said = str(annotation)
    return annotation is inspect.Parameter.empty or re.search(r"\bAny\b", said) is not None


@pytest.mark.parametrize(
    "annotation", ["Any", "Mapping[str, Any]", "int | typing.Any", inspect.Parameter.empty]
)
def test_a_type_that_is_any_is_seen(annotation: object) -> None:
    assert is_of_any_type(annotation)
    assert not is_of_any_type("AnyModel | None")


def test_no_public_argument_is_of_any_type() -> None:
    found, wrong = 0, []
    for name, function in public_functions():
        signature = inspect.signature(function)
        for parameter in signature.parameters.values():
            if parameter.name not in ("self", "cls") and not parameter.name.startswith("_"):
                found += 1
                if is_of_any_type(parameter.annotation):
                    wrong.append(f"{name}: {parameter}")
        assert str(signature.return_annotation) not in ("Any", str(inspect.Parameter.empty)), name
    assert not wrong
    assert found > 300


def test_mxnets_objects_are_of_the_types_that_arguments_have() -> None:
    mx = pytest.importorskip("mxnet")
    from mxamp.model import accepted

    sym = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc0")
    net = mx.gluon.nn.Dense(2)
    examples = {
        accepted.Symbol: sym,
        accepted.MxArray: mx.nd.zeros((2,)),
        accepted.MxContext: mx.cpu(),
        accepted.Block: net,
        accepted.Module: mx.mod.Module(sym, label_names=None),
    }
    for protocol, example in examples.items():
        for member in protocol.__dict__:
            assert member.startswith("_") or hasattr(example, member), (protocol, member)


# ---------------------------------------------------------------------- a model as text


def test_a_model_prints_in_three_lines() -> None:
    lines = repr(converted()).splitlines()
    assert (
        lines[0]
        == "<mxamp.Model, computes: 1 in bfloat16, 1 in float32, 2 casts; converted to bfloat16 for cpu-bf16"
    )
    assert lines[1] == "  takes and returns: data float32 -> exp0_output float32"
    assert lines[2].startswith("  parameters: ")
    assert lines[2].endswith(" before conversion>")
    assert len(lines) == 3


def test_a_block_prints_as_its_model_does_before_and_after_it_ran() -> None:
    mx = pytest.importorskip("mxnet")
    net = mx.gluon.nn.Dense(16, in_units=4)
    net.initialize()
    block = mxamp.convert_block(net, "bfloat16", target="cpu-bf16-avx2", input_shapes=[(2, 4)])
    told = repr(block)
    assert told == repr(block.model).replace("mxamp.Model", "MixedPrecisionBlock")
    block(mx.nd.ones((2, 4)))
    assert repr(block) == told
    assert block._repr_html_() == block.model._repr_html_().replace("mxamp.Model", "MixedPrecisionBlock")


def test_a_model_of_ten_thousand_nodes_prints_in_three_lines_too() -> None:
    from tools.synthetic_graphs import chain

    made = chain(10_000)
    text = repr(Model.of(made.graph, made.args, made.auxs))
    assert len(text.splitlines()) == 3
    assert len(text) < 500


def test_a_broken_model_can_be_printed() -> None:
    own = network()
    broken = Model(own.graph, {"conv0_weight": parameters({"w": np.zeros((1, 2), np.float32)})["w"]}, {})
    assert "is broken" in repr(broken)
    assert "is broken" in broken._repr_html_()


def test_a_notebook_shows_a_table_in_which_names_are_names() -> None:
    net = Net()
    own = Model(net.graph(net.conv(net.var("<b>data"), "conv0")), parameters(net.params), {})
    text = own._repr_html_()
    assert text.startswith("<table>")
    assert "<b>data" not in text
    assert "&lt;b&gt;data" in text


# ---------------------------------------------------------------------- the report of files


def test_a_loaded_model_has_the_report_of_its_conversion(tmp_path: Path) -> None:
    model = converted()
    model.save(tmp_path / "out")
    loaded = mxamp.load(tmp_path / "out")
    assert loaded.report == model.report
    assert repr(loaded) == repr(model)


def test_a_report_of_other_files_is_not_taken_for_theirs(tmp_path: Path) -> None:
    converted().save(tmp_path / "out")
    symbol = tmp_path / "out-symbol.json"
    symbol.write_text(symbol.read_text().replace("exp0", "exp1"))
    assert mxamp.load(tmp_path / "out").report is None


@pytest.mark.parametrize("text", [None, "{", "[]"], ids=["missing", "cut off", "another document"])
def test_without_a_readable_record_there_is_no_report(tmp_path: Path, text: str | None) -> None:
    converted().save(tmp_path / "out")
    record = tmp_path / "out-mxamp.json"
    record.unlink() if text is None else record.write_text(text)
    assert mxamp.load(tmp_path / "out").report is None


def test_saving_a_loaded_model_does_not_say_that_it_was_converted_from_itself(tmp_path: Path) -> None:
    converted().save(tmp_path / "out")
    loaded = mxamp.load(tmp_path / "out")
    loaded.save(tmp_path / "copy")
    assert mxamp.load(tmp_path / "copy").report is None
    assert loaded.made_report is None


def test_every_epoch_has_a_report_of_its_own(tmp_path: Path) -> None:
    converted(exclude=["conv0"]).save(tmp_path / "out", 3)
    report = mxamp.load(tmp_path / "out", 3).report
    assert report is not None
    assert report.node("conv0").compute == "float32"


# ---------------------------------------------------------------------- shapes


@pytest.mark.parametrize("shape", [(1, 4, 8, 8), [1, 4, 8, 8], np.array([1, 4, 8, 8]).tolist()])
def test_the_shape_of_the_only_input_needs_no_name(shape: object) -> None:
    named = converted(input_shapes={"data": (1, 4, 8, 8)})
    assert converted(input_shapes=shape).report == named.report


def test_a_shape_without_a_name_is_refused_where_it_could_mean_two() -> None:
    own = network(inputs=2)
    with pytest.raises(DataError, match=r"2 inputs: data, data1. Name them, as in {'data': \(1, 4\)}"):
        mxamp.convert_model(own.graph, own.arg_params, {}, "bfloat16", input_shapes=(1, 4))


@pytest.mark.parametrize("given", [(), "data", 7, ("a", "b")])
def test_what_is_no_shape_is_refused_as_before(given: object) -> None:
    own = network()
    assert named_input_shapes(own.graph, given, own.arg_params) is given
    with pytest.raises(DataError, match="must map input names to shapes"):
        mxamp.convert_model(own.graph, own.arg_params, {}, "bfloat16", input_shapes=given)


def test_emulation_and_onnx_take_a_shape_without_a_name(tmp_path: Path) -> None:
    own = network()
    emulated = mxamp.emulate(own.graph, own.arg_params, {}, "float16", input_shapes=(1, 4, 8, 8))
    assert emulated.report is not None
    assert emulated.report.low_multiply_add_share == 1.0
    pytest.importorskip("onnx")
    assert own.export_onnx(tmp_path / "net.onnx", input_shapes=(1, 4, 8, 8)).nodes


def test_blocks_take_a_shape_without_a_name(tmp_path: Path) -> None:
    mx = pytest.importorskip("mxnet")
    net = mx.gluon.nn.Conv2D(4, 3)  # which input channels it has, the shape tells
    net.initialize()
    shape = (2, 3, 8, 8)
    converted = mxamp.convert_block(net, "bfloat16", input_shapes=shape)
    assert converted(mx.nd.zeros(shape)).shape == (2, 4, 6, 6)
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    assert mxamp.calibrate(net, data, input_shapes=shape).samples == 2
    pytest.importorskip("onnx")
    assert mxamp.export_onnx(net, tmp_path / "net.onnx", input_shapes=shape).nodes


def test_every_public_argument_of_shapes_says_that_one_needs_no_name() -> None:
    from mxamp.graph.shapes import InputShapes
    from mxamp.model.accepted import BlockShapes, NestedShapes

    taken = {
        name: parameter.annotation
        for name, function in public_functions()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name == "input_shapes" and not name.endswith("__init__")
    }
    assert len(taken) >= 9
    assert set(taken.values()) == {"InputShapes | None", "BlockShapes | None"}
    assert Sequence[int] in get_args(InputShapes)
    assert set(get_args(InputShapes)) | {NestedShapes} == set(get_args(BlockShapes))
