"""Whether a model was decided for the runtime that is to read its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")

from mxamp.cli.main import main
from mxamp.dtypes import DType
from mxamp.errors import TargetError
from mxamp.export import runtime_fit
from mxamp.model import Model, load
from mxamp.onnx.runtime_gaps import RuntimeGaps
from mxamp.targets import Target
from tests.building import Net, convert, parameters
from tests.onnx.cases_layers import pooling_cases
from tests.onnx.operators import Case, case, compare

OPENVINO = Target.builtin("openvino-bf16")


def net() -> Any:
    net = Net()
    return net.graph(net.conv(net.var("data"), "conv0")), net.params


def low(target: str, dtype: DType = DType.BFLOAT16) -> Any:
    graph, params = net()
    return convert(graph, params, dtype, target=Target.builtin(target))


def test_a_model_in_memory_knows_its_target() -> None:
    assert runtime_fit(low("openvino-bf16"), OPENVINO).warning is None
    found = runtime_fit(low("cpu-bf16"), OPENVINO)
    assert (found.target, found.decided_for) == ("openvino-bf16", "cpu-bf16")
    assert "decided for cpu-bf16, a target of MXNet's; OpenVINO may" in (found.warning or "")
    assert "decided for cpu-bf16" in (runtime_fit(low("cpu-bf16"), None).warning or "")
    assert runtime_fit(low("openvino-bf16"), None).warning is None


def test_files_know_it_by_their_provenance(tmp_path: Path) -> None:
    low("cpu-bf16").save(tmp_path / "net")
    assert runtime_fit(load(tmp_path / "net"), OPENVINO).decided_for == "cpu-bf16"
    (tmp_path / "net-mxamp.json").unlink()
    found = runtime_fit(load(tmp_path / "net"), OPENVINO)
    assert found.decided_for is None
    assert "taken on trust" in (found.warning or "")
    assert runtime_fit(load(tmp_path / "net"), None).warning is None


def test_a_float32_model_fits_every_runtime() -> None:
    graph, params = net()
    assert runtime_fit(Model(graph, parameters(params), {}), OPENVINO).warning is None


def test_another_dtype_and_a_target_of_mxnets_are_refused() -> None:
    with pytest.raises(TargetError, match=r"computes in float16, and openvino-bf16 is OpenVINO in bfloat16"):
        runtime_fit(low("cuda-fp16", DType.FLOAT16), OPENVINO)
    with pytest.raises(TargetError, match=r"cuda-fp16 is a target of MXNet's"):
        runtime_fit(low("cuda-fp16", DType.FLOAT16), Target.builtin("cuda-fp16"))


def test_the_command_line_warns_and_tells_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    low("cpu-bf16").save(tmp_path / "net")
    arguments = ["export", str(tmp_path / "net"), "--input-shape", "data=1,4,5,5", "--force"]
    out = ["-o", str(tmp_path / "net.onnx")]
    assert main([*arguments, *out]) == 0
    assert "decided for cpu-bf16" in capsys.readouterr().err
    assert main([*arguments, *out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decided_for"] == "cpu-bf16"
    assert main([*arguments, "-o", str(tmp_path / "net.xml")]) == 2  # OpenVINO's file, of no such runtime
    assert not (tmp_path / "net.xml").exists()


@pytest.mark.parametrize(("target", "warns"), [("cpu-bf16", True), ("onnx-cuda-bf16", False)])
def test_a_conversion_to_onnx_warns_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, warns: bool
) -> None:
    graph, params = net()
    Model(graph, parameters(params), {}).save(tmp_path / "net")
    arguments = ["convert", str(tmp_path / "net"), "--dtype", "bfloat16", "--target", target, "--no-guard"]
    arguments += ["--low-precision", "required", "--input-shape", "data=1,4,5,5"]
    assert main([*arguments, "--onnx", str(tmp_path / "net.onnx")]) == 0
    assert (f"decided for {target}, a target of MXNet's" in capsys.readouterr().err) is warns


def test_a_batch_norm_is_of_one_dtype_where_the_runtime_has_no_other(tmp_path: Path) -> None:
    """CUDA's provider has no kernel for float16 data with float32 statistics; ONNX allows it.

    Who did not say what reads the file gets what runs there: of DenseNet-121 an NVIDIA H100 took 243 ms
    instead of 12 where 62 of them had gone to the CPU (ONNX Runtime 1.31.1).
    """
    import onnx

    net = Net()
    graph = net.graph(net.bn(net.conv(net.var("data"), "conv0"), "bn0"))  # an output, so it is not folded

    def written(target: str, read_by: str | None = None) -> list[tuple[str, set[int]]]:
        decided = Target.builtin(target)
        model = convert(graph, net.params, DType.FLOAT16, target=decided, fold_batch_norm=True)
        path = tmp_path / "net.onnx"
        read = None if read_by is None else Target.builtin(read_by)
        model.export_onnx(path, input_shapes={"data": (1, 4, 5, 5)}, target=read)
        file = onnx.shape_inference.infer_shapes(onnx.load(str(path))).graph
        codes = {value.name: value.type.tensor_type.elem_type for value in (*file.input, *file.value_info)}
        codes.update((value.name, value.data_type) for value in file.initializer)
        return [(node.op_type, {codes[name] for name in node.input}) for node in file.node]

    low, wide = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    assert ("BatchNormalization", {low, wide}) in written("cuda-fp16", read_by="onnx-tensorrt-fp16")
    asked = written("onnx-cuda-fp16"), written("cuda-fp16", read_by="onnx-cuda-fp16")
    for nodes in (*asked, written("cuda-fp16"), written("generic-fp16")):
        assert [op for op, _ in nodes].count("Cast") >= 2
        assert [codes for op, codes in nodes if op == "BatchNormalization"] == [{wide}]
    assert ("BatchNormalization", {low, wide}) in written("onnx-cuda-fp16", read_by="onnx-tensorrt-fp16")


def max_pooling() -> list[Case]:
    """Return windows that overlap, leave places out, and reach beyond the data, of one to three axes."""
    found = [each for each in pooling_cases() if each.attrs.get("pool_type") == "max"]
    below = -1 - np.abs(np.random.default_rng(0).standard_normal((2, 3, 7, 5), np.float32))
    below[0, 0, ::2, ::2] = -np.inf  # and a finite one in every window, without which MXNet has -3.4e38
    found += [
        case("Pooling", below, pool_type="max", kernel="(3, 3)", stride="(2, 2)", pad="(1, 1)", tolerance=0),
        case("Pooling", (1, 2, 9, 11), pool_type="max", kernel="(2, 2)", stride="(3, 4)", tolerance=0),
        case(
            "Pooling", (1, 2, 5, 6, 7), pool_type="max", kernel="(2, 3, 2)", stride="(2, 1, 3)", tolerance=0
        ),
    ]
    return [each for each in found if "global_pool" not in each.attrs]


@pytest.mark.parametrize("given", max_pooling(), ids=str)
def test_max_pooling_of_slices_is_max_pooling(given: Case, tmp_path: Path) -> None:
    import onnx

    pytest.importorskip("mxnet")
    gaps = RuntimeGaps(max_pool_of_opset_22=True)
    for opset, is_written in ((21, True), (22, False)):
        compare(given, tmp_path, opset=opset, gaps=gaps)
        operators = {node.op_type for node in onnx.load(str(tmp_path / "n.onnx")).graph.node}
        assert ("MaxPool" in operators) is is_written


@pytest.mark.parametrize("pad", ["(0, 0)", "(1, 1)"])
@pytest.mark.parametrize("target", ["onnx-cuda-bf16", "generic-bf16"])
def test_a_bfloat16_file_for_cuda_has_no_max_pool(tmp_path: Path, target: str, pad: str) -> None:
    """Of opset 22 CUDA's provider has none, in any dtype, nor Pad in bfloat16."""
    import onnx

    net = Net()
    pooled = net.op(
        *("Pooling", net.conv(net.var("data"), "conv0")),
        pool_type="max",
        kernel="(3, 3)",
        stride="(2, 2)",
        pad=pad,
    )
    graph = net.graph(net.conv(pooled, "conv1"))
    model = convert(graph, net.params, DType.BFLOAT16, target=Target.builtin(target))
    path = tmp_path / "net.onnx"
    model.export_onnx(
        path, input_shapes={"data": (1, 4, 8, 8)}, dynamic_batch=True, target=Target.builtin("onnx-cuda-bf16")
    )
    file = onnx.shape_inference.infer_shapes(onnx.load(str(path)), strict_mode=True).graph
    codes = {value.name: value.type.tensor_type.elem_type for value in (*file.input, *file.value_info)}
    operators = [node.op_type for node in file.node]
    assert "MaxPool" not in operators
    assert (operators.count("Slice"), operators.count("Max")) == (6, 2)
    pads = [codes[node.input[0]] for node in file.node if node.op_type == "Pad"]
    assert pads == ([] if pad == "(0, 0)" else [onnx.TensorProto.FLOAT])
    model.export_onnx(path, input_shapes={"data": (1, 4, 8, 8)}, target=Target.builtin("generic-bf16"))
    assert "MaxPool" in {node.op_type for node in onnx.load(str(path)).graph.node}
