"""ONNX: a graph with its parameters as an ONNX file, one mapping an operator. Needs no MXNet."""

from mxamp.onnx.call import Call
from mxamp.onnx.export import OnnxExport, export_graph
from mxamp.onnx.mapping import OnnxMapping, register_onnx_mapping
from mxamp.onnx.session import OnnxSession
from mxamp.onnx.tensor import Tensor

__all__ = [
    "Call",
    "OnnxExport",
    "OnnxMapping",
    "OnnxSession",
    "Tensor",
    "export_graph",
    "register_onnx_mapping",
]
