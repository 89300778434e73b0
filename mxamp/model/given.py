"""A symbol and arrays, as users have them, as a graph and parameters; and those that come from files."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, TypeVar

import numpy as np

from mxamp.dtypes import DType
from mxamp.errors import ParamsError, TargetError
from mxamp.graph.graph import Graph
from mxamp.model.source_files import SourceFiles
from mxamp.params.parameter import ArrayParameter, Parameter

_Value = TypeVar("_Value")


def graph_of(sym: Any) -> Graph:
    """Return the graph of a Symbol; a graph is returned as it is."""
    return reading_graph(sym)()


WORTH_A_THREAD = 200
"""How many arrays take as long to wrap as it takes to start a thread, a few times over."""


def reading_graph(sym: Any, *, beside: bool = False) -> Callable[[], Graph]:
    """Return a function that returns the graph of a Symbol; MXNet may write it out in the meantime."""
    if isinstance(sym, Graph):
        return lambda: sym
    from mxamp.runtime.symbol import reading_symbol

    return reading_symbol(sym, beside=beside)


def parameters_of(given: Mapping[str, Any], label: str) -> dict[str, Parameter]:
    """Wrap arrays by name as parameters; nothing is copied.

    Raises
    ------
    ParamsError
        When they are no mapping, or a value is no array that MXNet has.
    """
    if not isinstance(given, Mapping):
        raise ParamsError(f"{label} must be a dict from names to arrays, not {type(given).__name__}.")
    wrapped: dict[str, Parameter] = {}
    of_mxnet: dict[str, Any] = {}
    # Asked of each class once: an abstract class takes its time over every instance.
    parameters = {kind for kind in set(map(type, given.values())) if issubclass(kind, Parameter)}
    for name, value in given.items():
        if not isinstance(name, str):
            raise ParamsError(f"{label} must map names, which are strings, to arrays; it holds {name!r:.80}.")
        if isinstance(value, np.ndarray):
            wrapped[name] = _array_parameter(name, value)
        elif type(value) in parameters:
            wrapped[name] = value
        else:
            of_mxnet[name] = value
    if not of_mxnet:
        return wrapped
    from mxamp.runtime.parameter import parameters_from_ndarrays

    wrapped.update(parameters_from_ndarrays(of_mxnet))
    return {name: wrapped[name] for name in given} if len(wrapped) > len(of_mxnet) else wrapped


def _array_parameter(name: str, value: Any) -> ArrayParameter:
    array = np.asarray(value)  # a subclass such as np.matrix has operators of its own
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    try:
        return ArrayParameter(array)
    except TargetError:
        raise ParamsError(
            f"The parameter {name!r} is an array of {value.dtype}, which MXNet does not have. Use one of: "
            f"{', '.join(map(str, DType))}."
        ) from None


class _OfFiles(Dict[str, _Value]):
    """Values by name that know the files that they came from."""

    def __init__(self, values: Mapping[str, _Value], source: SourceFiles) -> None:
        super().__init__(values)
        self.source = source

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle may be read where the files are not.
        return dict, (dict(self),)


class LoadedArrays(_OfFiles[Any]):
    """MXNet's arrays of a model that has files, which saving what is made of them must not replace.

    Whoever has them may change their values, so nothing more is said of where these come from.
    """


class LoadedParams(_OfFiles[Parameter]):
    """Loaded parameters. They know the files, so that what is converted from them can name these."""

    def __init__(self, params: Mapping[str, Parameter], graph: Graph, source: SourceFiles) -> None:
        super().__init__(params, source)
        self.graph = graph
