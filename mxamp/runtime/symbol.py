"""Symbols in and out."""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import Future
from typing import Any, Callable, Mapping, Sequence, TypeVar

from mxamp.errors import GraphError, SymbolFormatError
from mxamp.graph.graph import Graph
from mxamp.graph.library_operators import needs_operator_library
from mxamp.graph.symbol_reader import parse_symbol
from mxamp.graph.symbol_writer import write_symbol
from mxamp.runtime.arity import check_arity
from mxamp.runtime.library import load_operators
from mxamp.runtime.mxnet import import_mxnet

_Result = TypeVar("_Result")


def graph_from_symbol(sym: Any) -> Graph:
    """Return the graph of a Symbol, its casts included; the Symbol is not changed.

    Raises
    ------
    GraphError
        When it is not a Symbol.
    """
    return reading_symbol(sym)()


def reading_symbol(sym: Any, *, beside: bool = False) -> Callable[[], Graph]:
    """Let MXNet write a Symbol out, on a thread of its own where there is something else to do.

    Parameters
    ----------
    sym
        The Symbol; it is not changed.
    beside
        Whether the caller has enough to do in the meantime to make up for a thread.

    Returns
    -------
    callable
        Returns the graph, its casts included.

    Raises
    ------
    GraphError
        When it is not a Symbol.
    """
    mx = import_mxnet()
    if not isinstance(sym, mx.sym.Symbol):
        is_whole = hasattr(sym, "graph") and hasattr(sym, "arg_params")
        raise GraphError(
            f"A model's symbol must be an mx.sym.Symbol or an mxamp Graph, not {type(sym).__name__}. "
            + (
                "Unpack the model, which has its parameters: convert_model(*model, ...)."
                if is_whole
                else "For a Gluon block use convert_block; for files, mxamp.load."
            )
        )
    if not beside:
        written = sym.tojson(remove_amp_cast=False)
        return lambda: parse_symbol(written, source="the symbol", is_from_mxnet=True)
    text = _beside("Symbol.tojson", lambda: sym.tojson(remove_amp_cast=False))
    return lambda: parse_symbol(text(), source="the symbol", is_from_mxnet=True)


def symbol_from_graph(graph: Graph, *, trusted: bool = False) -> Any:
    """Return a graph as ``mx.sym.Symbol``.

    Parameters
    ----------
    graph
        The graph.
    trusted
        Whether it was made from a Symbol, so that MXNet has checked every node already.

    Raises
    ------
    SymbolFormatError
        When MXNet does not accept it: an operator this build lacks, or an attribute it does not know.
    GraphError, OperatorError
        When MXNet would accept it and crash later: a node with too few inputs, say.
    LibraryError
        When it holds operators of mxamp's library, and that cannot be built or loaded.
    """
    return building_symbol(graph, trusted=trusted)()


def building_symbol(graph: Graph, *, trusted: bool = False, beside: bool = False) -> Callable[[], Any]:
    """Let MXNet parse a graph, on a thread of its own where there is something else to do.

    Parameters
    ----------
    graph, trusted
        See :func:`symbol_from_graph`.
    beside
        Whether the caller has enough to do in the meantime to make up for a thread.

    Returns
    -------
    callable
        Returns the graph as ``mx.sym.Symbol``, or raises what MXNet made of it.

    Raises
    ------
    GraphError, OperatorError, LibraryError
        See :func:`symbol_from_graph`.
    """
    mx = import_mxnet()
    if needs_operator_library(graph):
        load_operators()
    if not trusted:
        check_arity(graph)
    # MXNet reads a character at a time, and its reader takes most of the time.
    text = write_symbol(graph, compact=True)

    has_casts = any(node.op == "amp_cast" for node in graph.nodes)

    def parse() -> Any:
        try:
            found = mx.sym.load_json(text)
        except mx.base.MXNetError as error:
            first_line = str(error).strip().splitlines()[-1]
            raise SymbolFormatError(
                f"MXNet {mx.__version__} does not accept the graph: {first_line} "
                "Does it hold an operator of a library that has not been loaded?"
            ) from error
        if has_casts:
            from mxamp.runtime.converted_symbol import ConvertedSymbol

            found.__class__ = ConvertedSymbol  # MXNet has no other way to make one of a text
        return found

    return _beside("mx.sym.load_json", parse) if beside else parse


def _beside(name: str, do: Callable[[], _Result]) -> Callable[[], _Result]:
    """Do something on a thread of its own; return what waits for its result."""
    mx = import_mxnet()
    result: Future[_Result] = Future()
    # Belongs to a thread, and decides how shapes are read and written.
    numpy_shapes = mx.util.is_np_shape()

    def run() -> None:
        try:
            # Every call of MXNet gives Python's lock away, and getting it back may take milliseconds.
            if numpy_shapes:
                with mx.util.np_shape(True):
                    found = do()
            else:
                found = do()
        except BaseException as error:
            result.set_exception(error)
        else:
            result.set_result(found)

    threading.Thread(target=run, name=f"mxamp: {name}").start()
    return result.result


def compose(mx: Any, op: str, name: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """Compose an operator by its registered name, whichever Python namespace its function is in."""
    from mxnet._ctypes.symbol import _symbol_creator

    handle = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.NNGetOpHandle(op.encode(), ctypes.byref(handle)))
    return _symbol_creator(handle.value, list(inputs), None, list(attrs), list(attrs.values()), name, False)
