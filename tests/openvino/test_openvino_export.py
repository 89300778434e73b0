"""Models in OpenVINO: the file, its marks, and what is executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed: pip install '.[openvino]'")
pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")

import mxamp
from mxamp.cli.main import main
from mxamp.dtypes import DType
from mxamp.errors import DataError, ExportError, ModelFileNotFoundError, OperatorError
from mxamp.model import Model
from mxamp.openvino import OpenvinoSession
from mxamp.targets import Target
from tests.building import Net, convert, parameters

SHAPES = {"data": (1, 4, 6, 6)}

has_bfloat16 = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def net() -> Any:
    net = Net()
    hidden = net.conv(net.var("data"), "conv0")
    hidden = net.op("exp", net.op("_mul_scalar", hidden, name="half", scalar=0.5), name="exp0")
    return net.graph(net.conv(hidden, "conv1")), net.params


def low() -> Any:
    graph, params = net()
    return convert(graph, params, DType.BFLOAT16, target=Target.builtin("openvino-bf16"))


def fp32() -> Model:
    graph, params = net()
    return Model(graph, parameters(params), {})


def data() -> dict[str, Any]:
    return {"data": np.random.default_rng(0).standard_normal(SHAPES["data"]).astype(np.float32)}


def test_what_was_decided_is_what_is_executed(tmp_path: Path) -> None:
    export = mxamp.export_openvino(low(), tmp_path / "net.xml", input_shapes=SHAPES)
    assert (export.precision, "exp0" in export.kept) == ("bf16", True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.bin", "net.xml"]
    if not has_bfloat16:
        pytest.skip("this CPU has no bfloat16, so OpenVINO executes float32 whatever the file says")
    executed = OpenvinoSession(export.path, precision=export.precision).precisions()
    assert executed["Convolution"] == {"bf16": 2}
    other = {kind: found for kind, found in executed.items() if kind in ("Math", "Eltwise", "Subgraph")}
    assert other
    assert all(set(found) == {"f32"} for found in other.values()), executed


def with_norms() -> Any:
    net = Net()
    hidden = net.bn(net.conv(net.var("data"), "conv0"), "bn0")
    hidden = net.bn(net.conv(net.op("relu", hidden, name="relu0"), "conv1"), "bn1")
    graph = net.graph(net.conv(net.op("relu", hidden, name="relu1"), "conv2"))
    generator = np.random.default_rng(5)
    for values in net.params.values():
        if values.ndim == 1:
            values[:] = generator.uniform(0.5, 1.5, values.shape)
    return graph, net.params


def test_where_nothing_is_kept_the_file_computes_what_the_hint_does(tmp_path: Path) -> None:
    graph, params = with_norms()
    model = Model.of(graph, *parts(params))
    mxamp.export_openvino(model, tmp_path / "fp32.xml", input_shapes=SHAPES)
    target = Target.builtin("openvino-bf16")
    low = mxamp.convert_model(graph, *parts(params), "bfloat16", target=target, low_precision="required")
    export = mxamp.export_openvino(low, tmp_path / "low.xml", input_shapes=SHAPES)
    assert (export.precision, export.kept) == ("bf16", ())
    hint, ours = (
        OpenvinoSession(tmp_path / f"{name}.xml", precision="bf16", threads=1) for name in ("fp32", "low")
    )
    np.testing.assert_array_equal(ours.run(data())[0], hint.run(data())[0])


def test_a_layer_that_is_kept_stays_float32_with_its_batch_norm(tmp_path: Path) -> None:
    graph, params = with_norms()
    low = mxamp.convert_model(
        graph,
        *parts(params),
        "bfloat16",
        target="openvino-bf16",
        exclude=["conv1", "bn1"],
        low_precision="required",
    )
    export = mxamp.export_openvino(low, tmp_path / "net.xml", input_shapes=SHAPES)
    assert "conv1" in export.kept
    if not has_bfloat16:
        pytest.skip("this CPU has no bfloat16, so OpenVINO executes float32 whatever the file says")
    executed = OpenvinoSession(export.path, precision=export.precision).precisions()
    assert executed["Convolution"] == {"bf16": 2, "f32": 1}


def parts(params: Any) -> list[Any]:
    return [parameters({n: v for n, v in params.items() if ("moving" in n) is aux}) for aux in (False, True)]


def test_a_float32_model_computes_what_onnx_runtime_computes(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")
    export = mxamp.export_openvino(fp32(), tmp_path / "net.xml", input_shapes=SHAPES)
    assert (export.precision, export.kept, export.layers) == ("f32", (), 0)
    mxamp.export_onnx(fp32(), tmp_path / "net.onnx", input_shapes=SHAPES)
    from mxamp.onnx import OnnxSession

    expected = OnnxSession(tmp_path / "net.onnx").run(data())
    for path in ("net.xml", "net.onnx"):
        session = OpenvinoSession(tmp_path / path, precision="f32", threads=1)
        assert session.output_names == ["conv1_output"]
        assert session.input_shapes == SHAPES
        np.testing.assert_allclose(session.run(data())[0], expected[0], rtol=1e-5, atol=1e-6)


def test_nothing_is_left_where_the_export_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no space left\non device")

    with monkeypatch.context() as patched:
        patched.setattr(openvino, "save_model", refuse)
        with pytest.raises(ExportError, match="no space left on device"):
            low().export_openvino(tmp_path / "net.xml", input_shapes=SHAPES)
    with pytest.raises(ExportError, match=r"end in \.xml"):
        low().export_openvino(tmp_path / "net.onnx", input_shapes=SHAPES)
    with pytest.raises(DataError, match="shape of the input 'data'"):
        low().export_openvino(tmp_path / "net.xml")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_files_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for suffix in ("xml", "bin"):
        (tmp_path / f"net.{suffix}").write_text("old")

    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("basic_ios::clear: iostream error")  # what OpenVINO says of ENOSPC

    with monkeypatch.context() as patch:
        patch.setattr(openvino, "save_model", refuse)
        with pytest.raises(ExportError, match=r"cannot write '.*net\.xml': .*iostream error\. Is there room"):
            mxamp.export_openvino(low(), tmp_path / "net.xml", input_shapes=SHAPES)
    resource = pytest.importorskip("resource", reason="only POSIX systems limit the size of files")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(ExportError, match="Nothing was changed and nothing half-written"):
            mxamp.export_openvino(low(), tmp_path / "net.xml", input_shapes=SHAPES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.bin", "net.xml"]
    assert (tmp_path / "net.xml").read_text() == "old"


def test_a_session_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ModelFileNotFoundError):
        OpenvinoSession(tmp_path / "net.xml")
    (tmp_path / "net.xml").write_text("<net/>", "utf-8")
    with pytest.raises(OperatorError, match="cannot load"):
        OpenvinoSession(tmp_path / "net.xml")
    export = fp32().export_openvino(tmp_path / "other.xml", input_shapes=SHAPES)
    with pytest.raises(DataError, match="'data'"):
        OpenvinoSession(export.path).run({})


def test_the_command_line_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    low().save(tmp_path / "net")
    arguments = ["export", str(tmp_path / "net"), "--input-shape", "data=1,4,6,6", "--for", "openvino-bf16"]
    assert main([*arguments, "-o", str(tmp_path / "net.xml"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["for"], document["decided_for"], document["warning"]) == ("openvino-bf16",) * 2 + (None,)
    assert "exp0" in document["kept"]
    assert main([*arguments, "-o", str(tmp_path / "net.xml")]) == 2  # it is there
    assert main([*arguments, "-o", str(tmp_path / "net.onnx")]) == 2
    assert "openvino-bf16" in capsys.readouterr().err
