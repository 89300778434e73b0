"""Compare a network that ranks piece by piece: before, between and behind its rankings, and these alone."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from model_zoo_eval.heads import is_ranking
from mxamp.dtypes import DType
from mxamp.export import relative_error
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.model import Model
from mxamp.onnx import OnnxSession
from mxamp.runtime.executor import run_outputs
from tools.zoo_graphs import with_heads

__all__ = ["staged_errors"]

Arrays = Mapping[str, NDArray[Any]]


def staged_errors(model: Model, data: Arrays) -> dict[str, float]:
    """Return how far ONNX Runtime is from MXNet where both rank the same.

    Near ties fall one way or the other for last bits alone, and every row after them moves. So the graph is
    cut at what ranks. Behind a cut both go on from what MXNet ranked, and what ranks is compared on the same
    values.

    Parameters
    ----------
    model
        A model that ranks.
    data
        Its inputs.

    Returns
    -------
    dict
        ``layers``: the largest relative L2 error of what is ranked and of the outputs. ``rankings``: that of
        what the ranking nodes make of the same values.
    """
    graph = model.graph
    ranks = [position for position, node in enumerate(graph.nodes) if is_ranking(node)]
    reads = list(
        dict.fromkeys(
            entry
            for position in ranks
            for entry in graph.nodes[position].inputs
            if graph.nodes[entry.node].op != VARIABLE
        )
    )
    writes = [
        Entry(position, output)
        for position in ranks
        for output in range(graph.nodes[position].num_outputs)
        if graph.uses_of(Entry(position, output)) or Entry(position, output) in graph.heads
    ]
    outputs = [head for head in dict.fromkeys(graph.heads) if head not in writes]
    seen = [*dict.fromkeys((*reads, *writes, *outputs))]
    whole = dataclasses.replace(graph, heads=tuple(seen), head_versions=())
    found = run_outputs(Model(whole, model.arg_params, model.aux_params), data, fusion=False)
    values = dict(zip(seen, found))
    layers = [entry for entry in dict.fromkeys((*reads, *outputs)) if entry not in writes]
    return {
        "layers": _largest_error(model, {entry: values[entry] for entry in writes}, layers, values, data),
        "rankings": _largest_error(
            model, {entry: values[entry] for entry in reads if entry not in writes}, writes, values, data
        ),
    }


def _largest_error(
    model: Model,
    given: Mapping[Entry, NDArray[Any]],
    heads: Sequence[Entry],
    values: Mapping[Entry, NDArray[Any]],
    data: Arrays,
) -> float:
    """Return the largest error of some entries, computed from others that are given."""
    cut, inputs = _cut(model, given, heads)
    inputs.update({name: array for name, array in data.items() if name in cut.graph.variables})
    shapes = {name: tuple(array.shape) for name, array in inputs.items()}
    with tempfile.TemporaryDirectory() as folder:
        export = cut.export_onnx(Path(folder, "stage.onnx"), input_shapes=shapes)
        found = OnnxSession(export.path, threads=1).run(inputs)
    errors = [0.0]
    for entry, ours in zip(heads, found):
        theirs = values[entry]
        if ours.shape != theirs.shape:
            return float("inf")
        node = model.graph.nodes[entry.node]
        if node.op == "argsort" and node.inputs[0] in values:
            # MXNet's sort is not stable: of equal values either may come first.
            read, axis = values[node.inputs[0]], int(node.attrs.get("axis", "-1"))
            ours, theirs = (np.take_along_axis(read, own.astype(np.int64), axis) for own in (ours, theirs))
        errors.append(float(relative_error(ours, theirs)))
    return max(errors)


def _cut(
    model: Model, given: Mapping[Entry, NDArray[Any]], heads: Sequence[Entry]
) -> tuple[Model, dict[str, NDArray[Any]]]:
    """Return the model that computes some entries from others, which are inputs, with the values of these."""
    graph = model.graph
    nodes: list[Node] = []
    place: dict[Entry, Entry] = {}
    inputs: dict[str, NDArray[Any]] = {}
    for position, node in enumerate(graph.nodes):
        nodes.append(node._replace(inputs=tuple([place[entry] for entry in node.inputs])))
        own = len(nodes) - 1
        for output in range(node.num_outputs):
            entry = Entry(position, output)
            place[entry] = Entry(own, output)
            if entry in given:
                name = f"given_{len(inputs)}"
                code = str(DType.from_numpy(given[entry].dtype).value)
                nodes.append(Node(VARIABLE, name, {"__dtype__": code}))
                place[entry] = Entry(len(nodes) - 1)
                inputs[name] = given[entry]
    whole = Graph(tuple(nodes), tuple([place[entry] for entry in heads]), graph.attrs)
    cut = with_heads(Model(whole, model.arg_params, model.aux_params), whole.heads)
    return cut, {name: array for name, array in inputs.items() if name in cut.graph.variables}
