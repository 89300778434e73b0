"""What any FP16 ONNX file computes where FP16 is real, as a float32 file that a CPU runs.

ONNX Runtime's CPU provider has few FP16 kernels: it computes in float32 and drops most roundings between
operators. Casts to float16 and back that stand in a float32 graph stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Inventory", "inventory", "rounded_form"]

_LOW, _WIDE = TensorProto.FLOAT16, TensorProto.FLOAT


@dataclass(frozen=True)
class Inventory:
    """What a file consists of.

    Attributes
    ----------
    casts
        Nodes that cast between float16 and float32.
    low
        Other nodes with a float16 result.
    wide
        Other nodes with a float32 result.
    """

    casts: int
    low: int
    wide: int


def _typed(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, int]]:
    """Return a model with the types of all tensors, bodies of control flow included."""
    inferred = onnx.shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=True)
    types: dict[str, int] = {}
    _collect(inferred.graph, types)
    return inferred, types


def _collect(graph: onnx.GraphProto, types: dict[str, int]) -> None:
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.HasField("tensor_type"):
            types[value.name] = value.type.tensor_type.elem_type
    for tensor in graph.initializer:
        types[tensor.name] = tensor.data_type
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _collect(attribute.g, types)


def inventory(model: onnx.ModelProto) -> Inventory:
    """Count the nodes of a model by what they return; constants are not counted."""
    _, types = _typed(model)
    counts = {"casts": 0, "low": 0, "wide": 0}
    _count(model.graph, types, counts)
    return Inventory(**counts)


def _count(graph: onnx.GraphProto, types: Mapping[str, int], counts: dict[str, int]) -> None:
    for node in graph.node:
        made = {types.get(name, 0) for name in node.output if name}
        if node.op_type == "Cast" and {types.get(node.input[0], 0), *made} == {_LOW, _WIDE}:
            counts["casts"] += 1
        elif node.op_type != "Constant" and _LOW in made:
            counts["low"] += 1
        elif node.op_type != "Constant" and _WIDE in made:
            counts["wide"] += 1
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _count(attribute.g, types, counts)


def rounded_form(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the float32 model that rounds to float16 wherever a model's nodes return float16.

    Parameters
    ----------
    model
        A model of which every tensor's type can be inferred. Not changed.

    Returns
    -------
    onnx.ModelProto
        Every float16 tensor is float32 in it and holds the same values: a node's float16 result is followed
        by a Cast to float16 and one back. Parameters are the float16 values, widened. Inputs and outputs
        keep their names; what was float16 is float32 and rounded.
    """
    result, types = _typed(model)
    del result.graph.value_info[:]
    _round(result.graph, types, is_top=True)
    return result


def _round(graph: onnx.GraphProto, types: Mapping[str, int], *, is_top: bool) -> None:
    for tensor in graph.initializer:
        if tensor.data_type == _LOW:
            tensor.CopyFrom(_widened(tensor))
    nodes: list[Any] = []
    moved: dict[str, str] = {}
    for value in graph.input:
        if _is_low(value):
            value.type.tensor_type.elem_type = _WIDE
            if is_top:
                moved[value.name] = f"{value.name}/rounded"
                nodes += _down_and_up(value.name, moved[value.name])
    for value in graph.output:
        if _is_low(value):
            value.type.tensor_type.elem_type = _WIDE
    for node in graph.node:
        for number, name in enumerate(node.input):
            node.input[number] = moved.get(name, name)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _round(attribute.g, types, is_top=False)
            elif attribute.name == "value" and attribute.t.data_type == _LOW:
                attribute.t.CopyFrom(_widened(attribute.t))
            elif attribute.name in ("to", "dtype") and attribute.i == _LOW:
                attribute.i = _WIDE
        low = [name for name in node.output if name and types.get(name) == _LOW]
        nodes.append(node)
        if node.op_type in ("Constant", "ConstantOfShape"):
            continue  # widened above
        for number, name in enumerate(node.output):
            if name in low:
                node.output[number] = f"{name}/exact"
                nodes += _down_and_up(node.output[number], name)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _is_low(value: onnx.ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and value.type.tensor_type.elem_type == _LOW


def _down_and_up(source: str, result: str) -> list[Any]:
    return [
        helper.make_node("Cast", [source], [f"{result}/float16"], to=_LOW),
        helper.make_node("Cast", [f"{result}/float16"], [result], to=_WIDE),
    ]


def _widened(tensor: onnx.TensorProto) -> onnx.TensorProto:
    values = numpy_helper.to_array(tensor).astype(np.float32)
    return numpy_helper.from_array(values, tensor.name)
