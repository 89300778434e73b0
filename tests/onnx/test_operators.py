"""Every mapping against MXNet: dtype, shape, values."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")
pytest.importorskip("mxnet", reason="MXNet is what the results are compared with")

from mxamp.errors import OperatorError
from mxamp.onnx import OnnxSession
from tests.onnx.cases import CASES
from tests.onnx.operators import Case, compare

_DEFORMABLE = frozenset({"_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution"})


@pytest.fixture(scope="session")
def lacks_deformable(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Why the ONNX Runtime that is installed cannot run DeformConv; empty where it can."""
    import onnx
    import onnxruntime

    helper, code = onnx.helper, onnx.TensorProto.FLOAT
    shapes = {"x": (1, 1, 3, 3), "w": (1, 1, 1, 1), "offset": (1, 2, 3, 3), "y": (1, 1, 3, 3)}
    *given, result = [helper.make_tensor_value_info(name, code, shape) for name, shape in shapes.items()]
    node = helper.make_node("DeformConv", ["x", "w", "offset"], ["y"])
    graph = helper.make_graph([node], "probe", given, [result])
    path = tmp_path_factory.mktemp("probe") / "probe.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), path)
    try:
        OnnxSession(path)
    except OperatorError as error:
        return f"ONNX Runtime {onnxruntime.__version__} has no kernel for DeformConv on CPUs: {error}"
    return ""


@pytest.mark.parametrize("given", CASES, ids=str)
def test_onnx_runtime_returns_what_mxnet_returns(given: Case, tmp_path: Path, lacks_deformable: str) -> None:
    if given.op in _DEFORMABLE and lacks_deformable:
        pytest.skip(lacks_deformable)
    compare(given, tmp_path)
