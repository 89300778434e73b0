"""The exporter as a whole: files, names, opsets, errors. None of it needs MXNet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")

import mxamp
from mxamp.cli.main import main
from mxamp.dtypes import DType
from mxamp.errors import DataError, ExportError, ModelFileNotFoundError, OperatorError, UnknownNameError
from mxamp.graph import Graph
from mxamp.model import Model
from mxamp.onnx import OnnxSession, export_graph
from tests.building import Net, convert, parameters

SHAPES = {"data": (2, 4, 5, 5)}


def small_net() -> tuple[Graph, dict[str, Any]]:
    """Convolution, BatchNorm, Activation, and a second output."""
    net = Net()
    data = net.var("data")
    conv = net.op("Activation", net.bn(net.conv(data, "conv0"), "bn0"), name="relu0", act_type="relu")
    pool = net.op("Pooling", conv, name="pool0", global_pool=True, pool_type="avg", kernel="(1, 1)")
    return net.graph(net.fc(pool, "fc0"), conv), net.params


def small_model() -> Model:
    graph, params = small_net()
    auxs = {name: value for name, value in params.items() if "moving" in name}
    args = {name: value for name, value in params.items() if name not in auxs}
    return Model(graph, parameters(args), parameters(auxs))


def data(*shape: int) -> dict[str, Any]:
    return {"data": np.random.default_rng(0).standard_normal(shape or SHAPES["data"]).astype(np.float32)}


def expected(arrays: dict[str, Any], params: dict[str, Any]) -> list[Any]:
    """Compute the small net with NumPy, in float64."""
    weight = params["conv0_weight"].astype(np.float64)[:, :, 0, 0]
    out = np.einsum("oc,nchw->nohw", weight, arrays["data"].astype(np.float64))
    scale = 1 / np.sqrt(params["bn0_moving_var"].astype(np.float64) + 1e-3)
    out = np.maximum(out * scale[:, None, None], 0)
    return [out.mean((2, 3)) @ params["fc0_weight"].astype(np.float64).T, out]


@pytest.mark.parametrize("opset", [13, 15, 17, 18, 20, 22])
def test_every_opset_gives_a_valid_file_with_the_same_results(tmp_path: Path, opset: int) -> None:
    export = small_model().export_onnx(tmp_path / "net.onnx", input_shapes=SHAPES, opset=opset)
    onnx.checker.check_model(str(tmp_path / "net.onnx"), full_check=True)
    assert onnx.load(str(tmp_path / "net.onnx")).opset_import[0].version == opset == export.opset
    for ours, theirs in zip(OnnxSession(export.path).run(data()), expected(data(), small_net()[1])):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_inputs_and_outputs_keep_names_order_shapes_and_dtypes(tmp_path: Path) -> None:
    export = small_model().export_onnx(tmp_path / "net.onnx", input_shapes=SHAPES)
    assert (export.inputs, export.outputs) == (("data",), ("fc0_output", "relu0_output"))
    graph = onnx.load(str(export.path)).graph
    shapes = [[size.dim_value for size in value.type.tensor_type.shape.dim] for value in graph.output]
    assert shapes == [[2, 4], [2, 4, 5, 5]]
    assert {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)} == {1}


def test_only_parameters_that_are_read_are_stored(tmp_path: Path) -> None:
    net = Net()
    values = {"gamma": 5.0, "beta": 0.0, "moving_mean": 0.0, "moving_var": 1.0}
    entries = [net.param(f"bn_{part}", 4, value=value) for part, value in values.items()]
    graph = net.graph(net.op("BatchNorm", net.var("data"), *entries, name="bn", outputs=3, fix_gamma=True))
    export = export_graph(graph, parameters(net.params), tmp_path / "n.onnx", input_shapes=SHAPES)
    stored = {tensor.name for tensor in onnx.load(str(export.path)).graph.initializer}
    assert "bn_gamma" not in stored
    (found,) = OnnxSession(export.path).run(data())
    # With fix_gamma MXNet takes gamma for 1, whatever is stored.
    np.testing.assert_allclose(found, data()["data"] / np.sqrt(1 + 1e-3), rtol=1e-6)


def test_beyond_two_gigabytes_parameters_are_beside_the_file(tmp_path: Path) -> None:
    graph, params = wide_net()
    together = export_graph(graph, params, tmp_path / "one.onnx", input_shapes={"data": (1, 64)})
    apart = export_graph(
        graph, params, tmp_path / "two.onnx", input_shapes={"data": (1, 64)}, most_in_one_file=1000
    )
    assert [path.name for path in apart.files] == ["two.onnx", "two.onnx.data"]
    assert apart.files[0].stat().st_size < 2000
    onnx.checker.check_model(str(apart.path), full_check=True)
    values = {"data": np.ones((1, 64), np.float32)}
    (one,), (two,) = (OnnxSession(export.path).run(values) for export in (together, apart))
    np.testing.assert_array_equal(one, two)
    # Written as one file again, nothing of the other form stays behind.
    export_graph(graph, params, tmp_path / "two.onnx", input_shapes={"data": (1, 64)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.onnx", "two.onnx"]


def wide_net() -> tuple[Graph, Any]:
    net = Net()
    first, second = net.param("w0", 96, 64), net.param("w1", 33, 96)
    hidden = net.op("FullyConnected", net.var("data"), first, name="fc0", num_hidden=96, no_bias=True)
    out = net.op("FullyConnected", hidden, second, name="fc1", num_hidden=33, no_bias=True)
    return net.graph(out), parameters(net.params)


def test_an_open_batch_takes_any_number_of_samples(tmp_path: Path) -> None:
    export = small_model().export_onnx(tmp_path / "net.onnx", input_shapes=SHAPES, dynamic_batch=True)
    session = OnnxSession(export.path)
    assert session.input_shapes == {"data": (0, 4, 5, 5)}
    for samples in (1, 5):
        arrays = data(samples, 4, 5, 5)
        for ours, theirs in zip(session.run(arrays), expected(arrays, small_net()[1])):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_an_open_batch_that_a_shape_depends_on_is_an_error_that_names_the_node(tmp_path: Path) -> None:
    net = Net()
    graph = net.graph(net.op("squeeze", net.var("data"), name="squeezed"))
    with pytest.raises(ExportError, match=r"'squeezed' .*--dynamic-batch"):
        export_graph(graph, {}, tmp_path / "n.onnx", input_shapes=SHAPES, dynamic_batch=True)


def test_a_batch_that_the_model_itself_fixes_is_an_error_that_names_the_node(tmp_path: Path) -> None:
    net = Net()
    graph = net.graph(net.op("Reshape", net.var("data"), name="fixed", shape="(3, 7)"))
    with pytest.raises(ExportError, match=r"takes no other .*'fixed' .*--dynamic-batch"):
        export_graph(graph, {}, tmp_path / "n.onnx", input_shapes={"data": (3, 7)}, dynamic_batch=True)


def test_an_input_that_is_an_output_and_one_entry_twice_are_handed_on(tmp_path: Path) -> None:
    net = Net()
    x = net.var("data")
    relu = net.op("relu", x, name="relu0")
    dropped = net.op("Dropout", x, name="drop0")
    export = export_graph(net.graph(relu, relu, dropped), {}, tmp_path / "n.onnx", input_shapes=SHAPES)
    assert export.outputs == ("relu0_output", "relu0_output_1", "drop0_output")
    first, second, third = OnnxSession(export.path).run(data())
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(third, data()["data"])


def test_labels_of_training_heads_are_no_inputs(tmp_path: Path) -> None:
    net = Net()
    head = net.op("SoftmaxOutput", net.fc(net.var("data")), net.var("softmax_label"), name="softmax")
    graph = net.graph(head)
    export = export_graph(graph, parameters(net.params), tmp_path / "n.onnx", input_shapes={"data": (3, 4)})
    assert export.inputs == ("data",)
    (found,) = OnnxSession(export.path).run(data(3, 4))
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-6)


# ---------------------------------------------------------------------- low precision


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_a_converted_model_keeps_its_casts(tmp_path: Path, dtype: DType) -> None:
    graph, params = small_net()
    model = convert(graph, params, dtype)
    export = model.export_onnx(tmp_path / "low.onnx", input_shapes=SHAPES)
    loaded = onnx.load(str(export.path))
    code = {DType.FLOAT16: 10, DType.BFLOAT16: 16}[dtype]
    assert {tensor.name: tensor.data_type for tensor in loaded.graph.initializer}["conv0_weight"] == code
    casts = [node for node in loaded.graph.node if node.op_type == "Cast"]
    converted = sum(node.op == "amp_cast" for node in model.graph.nodes)
    around_norms = 2 * sum(node.op_type == "BatchNormalization" for node in loaded.graph.node)
    assert len(casts) == converted + around_norms == 5
    assert {value.type.tensor_type.elem_type for value in (*loaded.graph.input, *loaded.graph.output)} == {1}
    if dtype is DType.BFLOAT16:
        assert export.opset == 22
        assert "bfloat16" in export.opset_reason


def test_a_float16_file_runs_and_is_near(tmp_path: Path) -> None:
    graph, params = small_net()
    export = convert(graph, params, DType.FLOAT16).export_onnx(tmp_path / "low.onnx", input_shapes=SHAPES)
    for ours, theirs in zip(OnnxSession(export.path).run(data()), expected(data(), params)):
        error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
        assert 0 < error < 2e-3


def test_explicit_casts_round_in_float32(tmp_path: Path) -> None:
    graph, params = small_net()
    model = convert(graph, params, DType.FLOAT16)
    export = mxamp.export_onnx(model, tmp_path / "e.onnx", input_shapes=SHAPES, explicit_casts=True)
    loaded = onnx.load(str(export.path))
    assert {tensor.data_type for tensor in loaded.graph.initializer} <= {1, 7}
    _, activation = OnnxSession(export.path).run(data())
    # The activation is on float16's grid, and that of a wider model would not be.
    np.testing.assert_array_equal(activation, activation.astype(np.float16).astype(np.float32))
    plain = small_model().export_onnx(tmp_path / "p.onnx", input_shapes=SHAPES)
    _, wider = OnnxSession(plain.path).run(data())
    assert (wider != wider.astype(np.float16)).any()


def test_explicit_casts_of_a_float32_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="float32 throughout"):
        mxamp.export_onnx(small_model(), tmp_path / "e.onnx", input_shapes=SHAPES, explicit_casts=True)


# ---------------------------------------------------------------------- errors


def test_an_unknown_shape_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'data' is not known.*--input-shape data="):
        small_model().export_onnx(tmp_path / "n.onnx")
    with pytest.raises(UnknownNameError, match="no input"):
        small_model().export_onnx(tmp_path / "n.onnx", input_shapes={"dta": (1, 2)})
    with pytest.raises(UnknownNameError, match="parameter"):
        small_model().export_onnx(tmp_path / "n.onnx", input_shapes={**SHAPES, "fc0_weight": (1, 2)})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dynamic", [False, True])
def test_shapes_that_do_not_fit_name_the_node_and_the_sizes(tmp_path: Path, dynamic: bool) -> None:
    net = Net()
    graph, given = net.graph(net.fc(net.var("data"), "fc0")), {"data": (2, 9)}
    with pytest.raises(DataError, match=r"'fc0' .*\(4, 4\), and \(4, 9\) is wanted"):
        export_graph(
            graph, parameters(net.params), tmp_path / "n.onnx", input_shapes=given, dynamic_batch=dynamic
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("opset", [12, 99, "new"])
def test_an_opset_that_cannot_be_written_is_an_error(tmp_path: Path, opset: Any) -> None:
    with pytest.raises(ExportError, match="opset must be"):
        small_model().export_onnx(tmp_path / "n.onnx", input_shapes=SHAPES, opset=opset)


def test_an_opset_too_old_for_the_model_names_the_node(tmp_path: Path) -> None:
    net = Net()
    scale, shift = net.param("gamma", 5), net.param("beta", 5)
    graph = net.graph(net.op("LayerNorm", net.var("data"), scale, shift, name="norm0"))
    with pytest.raises(ExportError, match=r"Opset 13 is too old.*'norm0'.*--opset 17"):
        export_graph(graph, parameters(net.params), tmp_path / "n.onnx", input_shapes=SHAPES, opset=13)


def test_operators_without_a_mapping_are_named_together(tmp_path: Path) -> None:
    net = Net()
    x = net.op("khatri_rao", net.var("data"), net.var("other"), name="product0")
    y = net.op("my_own", net.op("my_own", x, name="own0"), name="own1")
    with pytest.raises(ExportError) as error:
        export_graph(net.graph(y), {}, tmp_path / "n.onnx", input_shapes={"data": (1,), "other": (1,)})
    for part in ("khatri_rao ('product0')", "my_own ('own0', 'own1')", "register_onnx_mapping"):
        assert part in str(error.value)


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "n.onnx"
    path.write_bytes(b"before")
    with pytest.raises(ExportError):
        small_model().export_onnx(path, input_shapes=SHAPES, opset=99)
    assert path.read_bytes() == b"before"
    with pytest.raises(ExportError, match="does not exist"):
        small_model().export_onnx(tmp_path / "no" / "n.onnx", input_shapes=SHAPES)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="not int"):
        mxamp.export_onnx(3, tmp_path / "n.onnx")


def test_a_session_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileNotFoundError):
        OnnxSession(tmp_path / "no.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(OperatorError, match="cannot load"):
        OnnxSession(tmp_path / "bad.onnx")
    net = Net()
    graph = net.graph(net.conv(net.var("data"), "conv0"))
    low = convert(graph, net.params, DType.BFLOAT16).export_onnx(tmp_path / "low.onnx", input_shapes=SHAPES)
    with pytest.raises(OperatorError, match=r"NOT_IMPLEMENTED.*is bfloat16, .* --explicit-casts"):
        OnnxSession(low.path)
    export = small_model().export_onnx(tmp_path / "n.onnx", input_shapes=SHAPES)
    with pytest.raises(DataError, match="missing"):
        OnnxSession(export.path).run({})
    with pytest.raises(OperatorError, match="cannot run"):
        OnnxSession(export.path).run(data(1, 2, 3, 4))


# ---------------------------------------------------------------------- own mappings


def own_graph(**attrs: str) -> Graph:
    net = Net()
    return net.graph(net.op("my_own", net.var("data"), name="own0", **attrs))


def test_an_own_mapping_is_used_until_it_is_undone(tmp_path: Path) -> None:
    def write(call: mxamp.onnx.Call) -> mxamp.onnx.Tensor:
        doubled = call.emit("Mul", call.inputs[0], call.scalar(call.number("factor"), call.inputs[0]))
        return call.emit("Relu", doubled)

    with mxamp.register_onnx_mapping("my_own", write):
        export = export_graph(own_graph(factor="3"), {}, tmp_path / "n.onnx", input_shapes=SHAPES)
        with pytest.raises(OperatorError, match="has a mapping already"):
            mxamp.register_onnx_mapping("my_own", write)
    (found,) = OnnxSession(export.path).run(data())
    np.testing.assert_allclose(found, np.maximum(3 * data()["data"], 0), rtol=1e-6)
    with pytest.raises(ExportError, match="no mapping"):
        export_graph(own_graph(factor="3"), {}, tmp_path / "n.onnx", input_shapes=SHAPES)


def test_a_custom_operator_becomes_a_node_of_a_domain(tmp_path: Path) -> None:
    net = Net()
    node = net.op("Custom", net.var("data"), name="swish0", op_type="swish")

    def swish(call: mxamp.onnx.Call) -> mxamp.onnx.Tensor:
        return call.state_shape(call.emit("Swish", *call.inputs, domain="my.domain"), call.data.shape)

    with mxamp.register_onnx_mapping("Custom", swish, op_type="swish"):
        export = export_graph(net.graph(node), {}, tmp_path / "n.onnx", input_shapes=SHAPES)
    loaded = onnx.load(str(export.path))
    assert [(node.op_type, node.domain) for node in loaded.graph.node] == [("Swish", "my.domain")]
    assert {entry.domain for entry in loaded.opset_import} == {"", "my.domain"}


def test_a_mapping_that_returns_no_tensor_is_an_error(tmp_path: Path) -> None:
    with mxamp.register_onnx_mapping("my_own", lambda call: ()), pytest.raises(OperatorError, match="my_own"):
        export_graph(own_graph(), {}, tmp_path / "n.onnx", input_shapes=SHAPES)
    with pytest.raises(OperatorError, match="a name and a function"):
        mxamp.register_onnx_mapping("my_own", None)  # type: ignore[arg-type]
    with pytest.raises(OperatorError, match="op_type"):
        mxamp.register_onnx_mapping("Custom", lambda call: call.inputs[0])


# ---------------------------------------------------------------------- files and the command line


def test_files_are_exported_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_model().save(tmp_path / "net")
    arguments = ["export", str(tmp_path / "net"), "-o", str(tmp_path / "net.onnx")]
    arguments += ["--input-shape", "data=2,4,5,5"]
    assert main(arguments) == 0
    assert "opset 17" in capsys.readouterr().out
    for ours, theirs in zip(OnnxSession(tmp_path / "net.onnx").run(data()), expected(data(), small_net()[1])):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert main(arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*arguments, "--force", "--json"]) == 0


def test_the_file_says_what_it_was_made_from(tmp_path: Path) -> None:
    small_model().save(tmp_path / "net")
    model = mxamp.load(tmp_path / "net")
    converted = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "float16")
    export = converted.export_onnx(tmp_path / "net.onnx", input_shapes=SHAPES)
    said = {entry.key: entry.value for entry in onnx.load(str(export.path)).metadata_props}
    assert said["mxamp.target_dtype"] == "float16"
    assert "net-symbol.json" in said["mxamp.source"]
    assert said["mxamp"] == mxamp.__version__


def test_a_conversion_writes_onnx_alone_or_beside_the_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_model().save(tmp_path / "net")
    arguments = ["convert", str(tmp_path / "net"), "--dtype", "float16", "--no-guard"]
    assert main(arguments) == 2
    assert "--onnx" in capsys.readouterr().err
    shape = ["--input-shape", "data=2,4,5,5"]
    assert main([*arguments, "--onnx", str(tmp_path / "alone.onnx"), *shape]) == 0
    assert not (tmp_path / "low-symbol.json").exists()
    both = ["-o", str(tmp_path / "low"), "--onnx", str(tmp_path / "both.onnx")]
    assert main([*arguments, *both]) == 2  # no shapes, and then nothing is written
    assert sorted(path.name for path in tmp_path.glob("*low*")) == []
    assert main([*arguments, *both, *shape]) == 0
    assert (tmp_path / "low-symbol.json").exists()
    for name in ("alone", "both"):
        loaded = onnx.load(str(tmp_path / f"{name}.onnx"))
        assert 10 in {tensor.data_type for tensor in loaded.graph.initializer}


def test_a_path_that_names_a_folder_is_refused(tmp_path: Path) -> None:
    for path in (".", "/", tmp_path):
        with pytest.raises(ExportError, match="names a folder"):
            small_model().export_onnx(path)


def test_optional_inputs_at_the_end_are_left_out(tmp_path: Path) -> None:
    import onnx

    net = Net()
    graph = net.graph(net.op("slice_axis", net.var("data"), axis=1, begin=1, end=4))
    export_graph(graph, {}, tmp_path / "n.onnx", input_shapes={"data": (2, 6)})
    (node,) = onnx.load(tmp_path / "n.onnx").graph.node
    assert node.op_type == "Slice"
    assert node.input[-1] != ""


@pytest.mark.parametrize("most_in_one_file", [1 << 31, 0])
def test_a_full_disk_leaves_the_old_files_and_nothing_else(tmp_path: Path, most_in_one_file: int) -> None:
    resource = pytest.importorskip("resource", reason="only POSIX systems limit the size of files")
    old = tmp_path / "net.onnx"
    old.write_bytes(b"old")
    weight = np.ones((64, 64, 8, 8), np.float32)  # 1 MB
    net = Net()
    conv = net.op(
        "Convolution",
        net.var("data"),
        net.param("w", *weight.shape, value=1.0),
        name="conv0",
        kernel="(8, 8)",
        num_filter=64,
        no_bias=True,
    )
    graph, shapes = net.graph(conv), {"data": (1, 64, 8, 8)}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(ExportError, match=r"net\.onnx"):
            export_graph(
                graph, parameters(net.params), old, input_shapes=shapes, most_in_one_file=most_in_one_file
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    assert old.read_bytes() == b"old"
