"""Check that parameters belong to a graph."""

from __future__ import annotations

from typing import Any, Collection, Mapping

from mxamp.errors import ParamsError, PolicyError, UnknownNameError, nearest_names
from mxamp.graph.graph import VARIABLE, Graph
from mxamp.graph.parameters import (
    auxiliary_names,
    expected_shapes,
    norms_with_parameters,
    parameter_names,
)
from mxamp.messages.arguments import argument, items, setting
from mxamp.params.parameter import Parameter


def declared_inputs(graph: Graph, params: Mapping[str, Parameter], inputs: Any) -> list[str]:
    """Return the variables that the user says are inputs.

    Parameters
    ----------
    graph
        The graph.
    params
        Parameters and auxiliary states by name.
    inputs
        Names; None for none.

    Raises
    ------
    PolicyError
        When ``inputs`` is no list of names.
    UnknownNameError
        When one is no variable of the graph, has a value, or is an auxiliary state.
    """
    if inputs is None:
        return []
    label = argument("inputs")
    given = items(inputs)
    if given is None or not all(isinstance(name, str) for name in given):
        raise PolicyError(f"{label} must be a list of names of inputs, not {inputs!r:.80}.")
    states = auxiliary_names(graph) if given else frozenset()
    for name in given:
        if name in params:
            raise UnknownNameError(
                f"{label} names {name!r}, but that has a value among the parameters. What is fed to the "
                "model has none: leave it out of one of the two."
            )
        if name not in graph.variables:
            raise UnknownNameError(
                f"{label} names {name!r}, which is no variable of the model."
                f"{nearest_names(name, [one for one in graph.variables if one not in params])}"
            )
        if name in states:
            raise UnknownNameError(
                f"{label} names {name!r}, which is an auxiliary state: MXNet binds those apart from inputs, "
                "so it must have a value."
            )
    return given


def check_params(graph: Graph, params: Mapping[str, Parameter], *, inputs: Collection[str] = ()) -> None:
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
            f"{len(params)} parameters were given. Do symbol and parameters belong to the same model? "
            f"If {name!r} is fed to the model, say so: {setting('inputs', [name])}."
        )
    for name, (shape, source) in expected_shapes(graph).items():
        parameter = params.get(name)
        if parameter is None or parameter.shape == shape:
            continue
        fits = len(shape) == len(parameter.shape) and all(
            size > 0 if wanted <= 0 and source.op != VARIABLE else wanted in (size, 0, -1)
            for wanted, size in zip(shape, parameter.shape)
        )
        if shape and not fits:
            who = "its __shape__ attribute" if source.op == VARIABLE else str(source)
            wanted_text = "(" + ", ".join("?" if size <= 0 else str(size) for size in shape) + ")"
            raise ParamsError(
                f"The parameter {name!r} has the shape {parameter.shape}, but {who} wants {wanted_text}. "
                "Do symbol and parameters belong to the same model?"
            )
    for node, names in norms_with_parameters(graph):
        sizes = {name: params[name].shape for name in names if name in params}
        if len(set(sizes.values())) > 1:
            # MXNet does not notice before it runs the model, and may end the process there.
            listed = ", ".join(f"{name!r} {shape}" for name, shape in sizes.items())
            raise ParamsError(
                f"The parameters of {node} must have one shape, and have several: {listed}. "
                "Do symbol and parameters belong to the same model?"
            )
