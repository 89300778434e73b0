"""One operator at a time: written, run in ONNX Runtime, and compared with MXNet."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, NamedTuple, Sequence

import numpy as np

from mxamp.graph import VARIABLE, Entry, Graph, Node
from mxamp.graph.graph import Graph as _Graph
from mxamp.model import Model
from mxamp.onnx import OnnxSession, export_graph
from mxamp.onnx.runtime_gaps import NO_GAPS, RuntimeGaps
from mxamp.params.parameter import ArrayParameter

__all__ = ["Case", "Given", "array_shapes", "case", "compare", "graph_of_case"]

Given = Any
"""A shape, whose values are standard normal, or an array."""


class Case(NamedTuple):
    """One call: what it is called with, and how far the results may be apart."""

    op: str
    inputs: tuple[Given, ...]
    attrs: Mapping[str, str]
    outputs: int
    parameters: tuple[int, ...]
    tolerance: float
    numpy: bool = False

    def __str__(self) -> str:
        shapes = [
            "x".join(map(str, np.shape(given)))
            if isinstance(given, np.ndarray)
            else "x".join(map(str, given))
            for given in self.inputs
        ]
        return "-".join([self.op, *shapes, *(f"{key}={value}" for key, value in self.attrs.items())])


def case(
    op: str,
    *inputs: Given,
    outputs: int = 1,
    parameters: Sequence[int] = (),
    tolerance: float = 1e-6,
    numpy: bool = False,
    **attrs: Any,
) -> Case:
    """Write one call."""
    texts = {key: str(value) for key, value in attrs.items()}
    return Case(op, inputs, texts, outputs, tuple(parameters), tolerance, numpy)


def _values(given: Given, seed: int) -> np.ndarray[Any, Any]:
    if isinstance(given, np.ndarray):
        return given
    return np.random.default_rng(seed).standard_normal(given).astype(np.float32)


def graph_of_case(given: Case, *, total: int | None = None) -> _Graph:
    """Return the graph of one call, all outputs that are seen being heads."""
    names = [f"in{number}" for number in range(len(given.inputs))]
    codes = {"float32": "0", "float64": "1", "uint8": "3", "int32": "4", "int8": "5", "int64": "6"}
    variables = tuple(
        Node(VARIABLE, name, {"__dtype__": codes[str(_values(value, 0).dtype)]})
        for name, value in zip(names, given.inputs)
    )
    inputs = tuple(Entry(number) for number in range(len(names)))
    shapes = {"is_np_shape": ["int", 1]} if given.numpy else {}
    node = Node(given.op, "n", given.attrs, inputs, total or given.outputs)
    heads = tuple(Entry(len(names), number) for number in range(given.outputs))
    return Graph((*variables, node), heads, {"mxnet_version": ["int", 10901], **shapes})


def array_shapes(given: Case) -> dict[str, tuple[int, ...]]:
    """Return the shapes that a call reads, by the names in its graph."""
    return {name: value.shape for name, value in arrays_of_case(given).items()}


def arrays_of_case(given: Case) -> dict[str, np.ndarray[Any, Any]]:
    """Return what a call reads, by the names in its graph."""
    return {f"in{number}": _values(value, number) for number, value in enumerate(given.inputs)}


def model_of_case(given: Case, *, hidden: int = 0) -> Model:
    """Return a call as a model, with the inputs that are parameters."""
    graph, arrays = graph_of_case(given, total=given.outputs + hidden), arrays_of_case(given)
    params = {name: ArrayParameter(arrays[name]) for name in (f"in{number}" for number in given.parameters)}
    auxiliary = {name for name in params if _is_auxiliary(graph, name)}
    return Model(
        graph,
        {name: value for name, value in params.items() if name not in auxiliary},
        {name: value for name, value in params.items() if name in auxiliary},
    )


def compare(
    given: Case, folder: Path, *, opset: int | None = None, hidden: int = 0, gaps: RuntimeGaps = NO_GAPS
) -> None:
    """Check that ONNX Runtime and MXNet return the same, in dtype, shape and values."""
    from mxamp.runtime.executor import BoundModel

    model, arrays = model_of_case(given, hidden=hidden), arrays_of_case(given)
    graph, params = model.graph, {**model.arg_params, **model.aux_params}
    data = {name: values for name, values in arrays.items() if name not in params}
    expected = BoundModel(model, fusion=False).run(data)
    export_graph(
        graph,
        params,
        folder / "n.onnx",
        input_shapes={name: values.shape for name, values in data.items()},
        opset=opset,
        gaps=gaps,
    )
    found = OnnxSession(folder / "n.onnx").run(data)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        assert (np.isnan(ours) == np.isnan(theirs)).all()
        finite = np.isfinite(theirs)
        assert (ours[~finite] == theirs[~finite])[~np.isnan(theirs[~finite])].all()
        size = float(np.linalg.norm(theirs[finite].astype(np.float64)))
        error = float(np.linalg.norm(ours[finite].astype(np.float64) - theirs[finite]))
        assert error <= given.tolerance * max(size, 1e-30), f"relative L2 {error / max(size, 1e-30):.2e}"


def _is_auxiliary(graph: _Graph, name: str) -> bool:
    from mxamp.graph.parameters import auxiliary_names

    return name in auxiliary_names(graph)
