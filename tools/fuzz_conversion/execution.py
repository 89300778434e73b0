"""Binding and running with stock MXNet, so that nothing of mxamp's stands between a model and its outputs."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Iterator, Mapping, Sequence

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from mxamp.graph.graph import Entry, Graph
from mxamp.graph.symbol_writer import write_symbol

__all__ = ["Bound", "as_numpy", "entry_types", "fusion", "numpy_shapes", "sized_entries", "to_symbol"]


@contextlib.contextmanager
def fusion(on: bool) -> Iterator[None]:
    """Bind with oneDNN fusion, or without: MXNet reads that from the environment at bind time."""
    before = os.environ.get("MXNET_SUBGRAPH_BACKEND")
    # Documented is NONE, which prints a line at every bind; "default" fuses nothing, silently.
    os.environ["MXNET_SUBGRAPH_BACKEND"] = "MKLDNN" if on else "default"
    try:
        yield
    finally:
        if before is None:
            del os.environ["MXNET_SUBGRAPH_BACKEND"]
        else:
            os.environ["MXNET_SUBGRAPH_BACKEND"] = before


def numpy_shapes(graph: Graph) -> Any:
    """Return the context that a graph must be bound and run in."""
    return mx.util.np_shape(True) if graph.has_numpy_shapes else contextlib.nullcontext()


def to_symbol(graph: Graph) -> Any:
    """Return the symbol of a graph, as stock MXNet parses it."""
    with numpy_shapes(graph):
        return mx.sym.load_json(write_symbol(graph, compact=True))


def as_numpy(array: Any) -> NDArray[Any]:
    """Return values, those of 16 bits as float32."""
    if "float16" in str(array.dtype):
        # Not astype, which refuses blocked bfloat16 arrays whose channels oneDNN pads. Outside numpy's shape
        # semantics a scalar's shape is one that is not known.
        with mx.util.np_shape(array.shape == () or mx.util.is_np_shape()):
            return np.asarray(mx.nd.cast(array, dtype="float32").asnumpy())
    return np.asarray(array.asnumpy())


class Bound:
    """A bound symbol.

    Parameters
    ----------
    symbol
        The symbol.
    arrays
        Parameters, auxiliary states and inputs: NumPy arrays, or NDArrays, which are copied, for oneDNN
        reorders weights in place.
    fused
        Whether oneDNN may fuse.
    """

    def __init__(self, symbol: Any, arrays: Mapping[str, Any], *, fused: bool) -> None:
        self._arguments = {name: _ndarray(arrays[name]) for name in symbol.list_arguments()}
        states = {name: _ndarray(arrays[name]) for name in symbol.list_auxiliary_states()}
        with fusion(fused):
            self._executor = symbol.bind(mx.cpu(), self._arguments, grad_req="null", aux_states=states)

    def run(self, data: Mapping[str, Any] | None = None) -> list[NDArray[Any]]:
        """Run on other inputs, or on those that are there."""
        for name, values in (data or {}).items():
            if name in self._arguments:
                array = _ndarray(values)
                wanted = self._arguments[name].dtype
                if array.dtype != wanted:
                    array = array.astype("float32")
                    if wanted != np.float32:
                        array = mx.nd.amp_cast(array, dtype="bfloat16")
                array.copyto(self._arguments[name])
        return [as_numpy(output) for output in self._executor.forward(is_train=False)]


def _ndarray(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return mx.nd.array(values, dtype=values.dtype)
    return values.copy()


def entry_types(graph: Graph, arrays: Mapping[str, NDArray[Any]]) -> dict[Entry, np.dtype[Any]]:
    """Return the dtype of every entry that is read or returned, as MXNet infers it."""
    entries = _entries(graph)
    symbol = to_symbol(Graph(graph.nodes, tuple(entries), graph.attrs))
    names = set(symbol.list_inputs())
    given = {name: values.dtype for name, values in arrays.items() if name in names}
    with numpy_shapes(graph):
        _, found, _ = symbol.infer_type_partial(**given)
    return {
        entry: np.dtype(dtype) for entry, dtype in zip(entries, found or ()) if dtype not in (None, np.void)
    }


def sized_entries(graph: Graph, arrays: Mapping[str, NDArray[Any]]) -> set[Entry]:
    """Return the entries whose shapes MXNet infers, without running the graph."""
    entries = _entries(graph)
    symbol = to_symbol(Graph(graph.nodes, tuple(entries), graph.attrs))
    names = set(symbol.list_inputs())
    given = {name: values.shape for name, values in arrays.items() if name in names and values.shape}
    with numpy_shapes(graph):
        _, found, _ = symbol.infer_shape_partial(**given)
    unknown = -1 if graph.has_numpy_shapes else 0
    return {
        entry
        for entry, shape in zip(entries, found or ())
        if shape is not None and unknown not in shape and (shape or graph.has_numpy_shapes)
    }


def _entries(graph: Graph) -> Sequence[Entry]:
    read = {entry for node in graph.nodes for entry in node.inputs}
    return sorted(read | set(graph.heads))
