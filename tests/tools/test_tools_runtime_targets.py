"""The targets of other runtimes: their table, and what it says of what is written."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")

from mxamp.dtypes import DType
from mxamp.targets import Support, Target
from tests.building import Net, convert
from tests.onnx.operators import case
from tools.runtime_targets import (
    BUILTIN,
    TABLE,
    TARGETS,
    built,
    missing_kernel,
    read_answers,
    read_onnxruntime,
    read_tensorrt,
    write_calls,
)

KERNELS = json.loads(TABLE.read_text("utf-8"))
CUDA = KERNELS["onnxruntime-cuda"]

DOCUMENT = """
<a name="cpuexecutionprovider"/>
|Abs|*in* X:**T**|13+|**T** = tensor(float)|
<a name="cudaexecutionprovider"/>
| Op Name | Parameters | OpSet Version | Types Supported |
|---------|------------|---------------|-----------------|
|Abs|*in* X:**T**|13+|**T** = tensor(bfloat16), tensor(float), tensor(float16)|
|||[6, 12]|**T** = tensor(float), tensor(float16)|
|Conv|*in* X:**T**|22+|**T** = tensor(bfloat16), tensor(float16)|
|||[11, 21]|**T** = tensor(float), tensor(float16)|
|||[1, 10]|**T** = tensor(float), tensor(float16)|
|CumSum|*in* x:**T**|14+|**T** = tensor(float16)<br/> **T2** = tensor(int32)|
|||[11, 13]|**T** = tensor(float)|
|Range|*in* start:**T**|11+|**T** = tensor(float)|
|**Operator Domain:** *com.microsoft*||||
|Attention|*in* input:**T**|1+|**T** = tensor(float16)|
"""


def test_the_table_is_read_from_onnx_runtimes_document() -> None:
    assert read_onnxruntime(DOCUMENT) == {
        "Abs": {"bfloat16": 13, "float16": 6},
        "Conv": {"bfloat16": 22, "float16": 1},
        "CumSum": {"float16": 14},
    }
    assert {op: CUDA["kernels"][op] for op in ("Abs", "Conv", "CumSum")} == read_onnxruntime(DOCUMENT)


def test_the_table_is_read_from_tensorrts_document() -> None:
    text = (
        "| Operator | Supported | Supported Types | Restrictions |\n|--|--|--|--|\n| Abs | Y | FP32, FP16 |\n"
    )
    text += "| LayerNormalization | N |\n| And | Y | BOOL |\n| Relu | Y | FP32, FP16, BF16, INT8 |\n"
    assert read_tensorrt(text) == {"Abs": {"float16": 1}, "Relu": {"float16": 1, "bfloat16": 1}}


def test_the_table_is_read_from_what_a_runtime_was_seen_to_do() -> None:
    answers = {"Add": [3, 1], "Conv": [2, 0], "Exp": [0, 4]}
    assert read_answers(json.dumps(answers)) == {"Add": {"float16": 1}, "Conv": {"float16": 1}}


def test_a_runtime_is_asked_with_the_calls_that_the_tests_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPU providers have a float16 kernel for Concat, and for Relu on ARM alone."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")
    from tools.runs_in_low import answers

    few = [case("Activation", (1, 4, 5, 5), act_type="relu"), case("Concat", (2, 3), (2, 3), dim=1)]
    monkeypatch.setattr("tools.runtime_targets.cases", lambda: iter(few))
    write_calls(tmp_path)
    found = answers(str(tmp_path))
    is_arm = platform.machine() == "aarch64"
    assert found == {"Concat": [1, 0], "Relu": [1, 0] if is_arm else [0, 1]}


def test_arm_runs_convolutional_networks_in_float16_and_sums_with_exponentials_in_float32() -> None:
    arm = Target.builtin("onnx-arm-fp16")
    assert (arm.runtime, arm.device) == ("onnxruntime-arm", "cpu")
    for op in ("Convolution", "FullyConnected", "Pooling", "elemwise_add", "Concat"):
        assert arm.support(op, {}).support is Support.WORKS
    for op in ("softmax", "exp", "mean"):
        assert arm.support(op, {}).support is Support.UNSUPPORTED


def test_a_call_lacks_a_kernel_for_what_is_written_of_it() -> None:
    relu = case("Activation", (1, 4, 5, 5), act_type="relu")
    assert missing_kernel(relu, "float16", CUDA) is None
    assert missing_kernel(case("arccos", (2, 3)), "float16", CUDA) == "no kernel of Acos in float16"
    pool = case("Pooling", (1, 4, 5, 5), kernel="(2, 2)", pool_type="max")
    assert missing_kernel(pool, "float16", CUDA) is None
    assert missing_kernel(pool, "bfloat16", CUDA) == "no kernel of MaxPool in bfloat16"


def test_statistics_in_float32_beside_low_data_have_no_kernel_in_cuda() -> None:
    norm = case("BatchNorm", (1, 4, 5, 5), (4,), (4,), (4,), (4,), parameters=(1, 2, 3, 4), fix_gamma=False)
    assert "float32 parameters" in (missing_kernel(norm, "float16", CUDA) or "")
    assert missing_kernel(norm, "float16", KERNELS["tensorrt"]) is None


def test_what_is_not_low_needs_no_kernel() -> None:
    assert missing_kernel(case("InstanceNorm", (1, 4, 5, 5), (4,), (4,)), "float16", CUDA) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_the_targets_are_what_the_table_says(name: str) -> None:
    assert built(name, KERNELS) == json.loads((BUILTIN / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("name", TARGETS)
def test_the_targets_are_of_their_runtimes(name: str) -> None:
    target = Target.builtin(name)
    runtime, dtype, _ = TARGETS[name]
    device = "cpu" if runtime == "onnxruntime-arm" else "gpu"
    assert (target.runtime, str(target.dtype), target.device) == (runtime, dtype, device)
    assert KERNELS[runtime]["commit"][:12] in target.description
    assert target.support("Convolution", {}).support is Support.WORKS


def norms(folded: bool) -> list[str]:
    """Convert a BatchNorm behind a convolution, or alone, for CUDA; return what computes low."""
    net = Net()
    data = net.var("data")
    if not folded:
        data = net.op("relu", net.conv(data, "conv0"), name="relu0")
    norm = net.bn(net.conv(data, "conv1") if folded else data, "bn0")
    graph = net.graph(net.op("relu", norm, name="relu1"))
    target = Target.builtin("onnx-cuda-fp16")
    model = convert(graph, net.params, DType.FLOAT16, target=target, fold_batch_norm=True)
    assert model.report is not None
    assert {node.op for node in model.graph.nodes if node.op == "BatchNorm"} == (
        set() if folded else {"BatchNorm"}
    )
    return [node.name for node in model.report.nodes if node.compute == "float16"]


def test_a_batch_norm_is_folded_or_stays_float32_for_cuda() -> None:
    assert "bn0" in norms(folded=True)
    assert "bn0" not in norms(folded=False)
