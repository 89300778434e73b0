"""Every operator that has a mapping, with what it is asked."""

from __future__ import annotations

from tests.onnx.cases_boxes import box_cases
from tests.onnx.cases_elementwise import elementwise_cases
from tests.onnx.cases_layers import layer_cases
from tests.onnx.cases_numpy import numpy_cases
from tests.onnx.cases_shape import shape_cases

CASES = [*layer_cases(), *elementwise_cases(), *shape_cases(), *box_cases(), *numpy_cases()]
