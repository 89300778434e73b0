"""Every mapping against MXNet: dtype, shape, values."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")
pytest.importorskip("mxnet", reason="MXNet is what the results are compared with")

from mxamp.errors import OperatorError
from mxamp.graph.symbol_writer import write_symbol
from mxamp.onnx import OnnxSession, export_graph
from tests.building import Net
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


@pytest.mark.parametrize(
    "op", ["_npi_add_scalar", "_npi_multiply_scalar", "_npi_equal_scalar", "_npi_greater_scalar"]
)
@pytest.mark.parametrize(("number", "is_int"), [(2, True), (0.5, False)])
def test_truth_values_beside_a_number(tmp_path: Path, op: str, number: float, is_int: bool) -> None:
    """They count, int64 or float64, where one calculates, and a number is one of them where one compares."""
    import mxnet as mx

    net = Net()
    graph = net.graph(net.op(op, net.var("x"), scalar=number, is_int=is_int))
    graph = dataclasses.replace(graph, attrs={**graph.attrs, "is_np_shape": ["int", 1]})
    nodes = tuple(
        node._replace(attrs={**node.attrs, "__dtype__": "7"}) if node.is_variable else node
        for node in graph.nodes
    )
    graph = dataclasses.replace(graph, nodes=nodes)
    values = np.array([[True, False, True]])
    export_graph(graph, {}, tmp_path / "n.onnx", input_shapes={"x": (1, 3)})
    (found,) = OnnxSession(tmp_path / "n.onnx").run({"x": values})
    with mx.util.np_shape(True), mx.util.np_array(True):
        symbol = mx.sym.load_json(write_symbol(graph)).as_np_ndarray()
        (expected,) = symbol.bind(mx.cpu(), {"x": mx.np.array(values, dtype="bool")}).forward()
        expected = expected.asnumpy()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
