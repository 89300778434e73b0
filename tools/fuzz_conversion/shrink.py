"""Make a case smaller while what it shows stays."""

from __future__ import annotations

import dataclasses
import time
from typing import Callable, Iterator

import numpy as np

from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from tools.fuzz_conversion.case import Case
from tools.fuzz_conversion.model import RandomModel
from tools.fuzz_conversion.perturbation import Reference

__all__ = ["shrunk"]


def shrunk(case: Case, still: Callable[[Case], bool], *, seconds: float = 60.0) -> Case:
    """Return a smaller case.

    Parameters
    ----------
    case
        One that shows something.
    still
        Whether a smaller one shows it, too.
    seconds
        How long to go on.
    """
    end = time.monotonic() + seconds
    smaller = True
    while smaller and time.monotonic() < end:
        smaller = False
        for candidate in _candidates(case):
            if time.monotonic() >= end:
                break
            if still(candidate):
                case, smaller = candidate, True
                break
    return case


def _candidates(case: Case) -> Iterator[Case]:
    """Yield what is a little smaller: less of the graph first, which saves most."""
    for model in _smaller_models(case.model):
        yield dataclasses.replace(case, model=model, options=_fitting(case.options, model))
    for name in case.options:
        if name not in ("target_dtype", "shapes", "emulate"):
            rest = {key: value for key, value in case.options.items() if key != name}
            yield dataclasses.replace(case, options=rest)
    if case.options["shapes"]:
        yield dataclasses.replace(case, options={**case.options, "shapes": False})
    for name in ("prepare", "exclude"):
        for item in case.options.get(name, ()):
            rest_of = [other for other in case.options[name] if other != item]
            yield dataclasses.replace(case, options={**case.options, name: rest_of})


def _smaller_models(model: RandomModel) -> Iterator[RandomModel]:
    graph = model.graph
    if len(graph.heads) > 1:
        for head in graph.heads:
            yield model.with_graph(dataclasses.replace(graph, heads=(head,), head_versions=()))
    try:
        reference = Reference(model)
    except Exception:  # what MXNet cannot run piece by piece is left as it is
        return
    operators = [position for position, node in enumerate(graph.nodes) if not node.is_variable]
    for position in operators:
        # Cut here: what it computes becomes an input.
        yield _with_input(model, reference, position)
    for position in reversed(operators):
        # Leave it out: its readers read what it reads.
        entry = Entry(position)
        for read in graph.nodes[position].inputs:
            same = all(
                entry in values
                and values[read].shape == values[entry].shape
                and values[read].dtype == values[entry].dtype
                for values in reference.values
            )
            if same:
                yield model.with_graph(_redirected(graph, {entry: read}))
                break


def _with_input(model: RandomModel, reference: Reference, position: int) -> RandomModel:
    """Return the model in which the outputs of a node are inputs, with the values they had."""
    graph = model.graph
    read = sorted(entry for entry in reference.values[0] if entry.node == position)
    nodes = [Node(VARIABLE, f"cut{position}_{entry.output}") for entry in read]
    shift = len(nodes)

    def moved(entry: Entry) -> Entry:
        return Entry(read.index(entry)) if entry in read else Entry(entry.node + shift, entry.output)

    nodes += [node._replace(inputs=tuple(map(moved, node.inputs))) for node in graph.nodes]
    data = tuple(
        {**given, **{node.name: np.asarray(values[entry]) for node, entry in zip(nodes, read)}}
        for given, values in zip(model.data, reference.values)
    )
    cut = Graph(tuple(nodes), tuple(map(moved, graph.heads)), graph.attrs)
    whole = dataclasses.replace(model, data=data)
    return whole.with_graph(cut)


def _redirected(graph: Graph, new: dict[Entry, Entry]) -> Graph:
    nodes = tuple(
        node._replace(inputs=tuple(new.get(entry, entry) for entry in node.inputs)) for node in graph.nodes
    )
    return Graph(nodes, tuple(new.get(head, head) for head in graph.heads), graph.attrs)


def _fitting(options: dict[str, object], model: RandomModel) -> dict[str, object]:
    """Return the options without names that the model no longer has."""
    names = {node.name for node in model.graph.nodes}
    exclude = options.get("exclude")
    if not isinstance(exclude, list):
        return options
    return {**options, "exclude": [name for name in exclude if name in names]}
