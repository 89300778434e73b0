"""Every mapping against MXNet: dtype, shape, values."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")
pytest.importorskip("mxnet", reason="MXNet is what the results are compared with")

from tests.onnx.cases_boxes import box_cases
from tests.onnx.cases_elementwise import elementwise_cases
from tests.onnx.cases_layers import layer_cases
from tests.onnx.cases_numpy import numpy_cases
from tests.onnx.cases_shape import shape_cases
from tests.onnx.operators import Case, compare

CASES = [*layer_cases(), *elementwise_cases(), *shape_cases(), *box_cases(), *numpy_cases()]


@pytest.mark.parametrize("given", CASES, ids=str)
def test_onnx_runtime_returns_what_mxnet_returns(given: Case, tmp_path: Path) -> None:
    compare(given, tmp_path)
