"""Check that parameters belong to a graph."""

from __future__ import annotations

from typing import Mapping, Sequence

from mxamp.errors import ParamsError, nearest_names
from mxamp.graph.graph import VARIABLE, Graph
from mxamp.graph.parameters import expected_shapes, parameter_names
from mxamp.params.parameter import Parameter

__all__ = ["check_params"]


def check_params(graph: Graph, params: Mapping[str, Parameter], *, inputs: Sequence[str] = ()) -> None:
    """Check that no parameter is missing or has a shape its operator cannot use.

    Parameters
    ----------
    graph
        The graph.
    params
        Parameters and auxiliary states by name.
    inputs
        Variables the caller says are inputs, whatever they look like.

    Raises
    ------
    ParamsError
        Naming the parameters, and the operators that read them.
    """
    missing = {
        name: place
        for name, place in parameter_names(graph).items()
        if name not in params and name not in inputs
    }
    if missing:
        # A file may hold nodes that no output needs; MXNet drops them, and asks for none of their parameters.
        needed = {graph.nodes[position].name for position in graph.input_order()}
        missing = {name: place for name, place in missing.items() if name in needed}
    if missing:
        name, place = next(iter(missing.items()))
        reader = "a parameter with an initialiser" if place is None else f"input {place[1]} of {place[0]}"
        unused = [known for known in params if known not in graph.variables]
        hint = nearest_names(name, unused or params)
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ParamsError(
            f"The parameter {name!r}{more} is missing; it is {reader}.{hint} "
            f"{len(params)} parameters were given. Do symbol and parameters belong to the same model?"
        )
    for name, (shape, source) in expected_shapes(graph).items():
        parameter = params.get(name)
        if parameter is None or parameter.shape == shape:
            continue
        fits = len(shape) == len(parameter.shape) and all(
            wanted <= 0 or wanted == size for wanted, size in zip(shape, parameter.shape)
        )
        if shape and not fits:
            who = "its __shape__ attribute" if source.op == VARIABLE else str(source)
            wanted_text = "(" + ", ".join("?" if size <= 0 else str(size) for size in shape) + ")"
            raise ParamsError(
                f"The parameter {name!r} has the shape {parameter.shape}, but {who} wants {wanted_text}. "
                "Do symbol and parameters belong to the same model?"
            )
