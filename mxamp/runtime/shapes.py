"""Shapes of entries, as MXNet infers them."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Mapping, Optional, Sequence, Tuple

from mxamp.errors import DataError
from mxamp.graph.graph import Entry, Graph
from mxamp.graph.shapes import checked_input_shapes, shapes_error
from mxamp.params.parameter import Parameter
from mxamp.runtime.mxnet import import_mxnet
from mxamp.runtime.symbol import symbol_from_graph

Shape = Optional[Tuple[int, ...]]

_OPERATOR_ERROR = re.compile(
    r"Error in operator (?P<node>.+?): (?:\[[\d:]+\] \S+:\d+: )?(?P<text>.*)", re.DOTALL
)
_CHECK = re.compile(r"Check failed: .*?: (?P<why>\S.*)", re.DOTALL)


def infer_shapes(
    graph: Graph,
    input_shapes: Mapping[str, Sequence[int]],
    params: Mapping[str, Parameter],
    *,
    sym: Any = None,
) -> Sequence[tuple[Shape, ...]]:
    """Return the shape of every entry.

    Parameters
    ----------
    graph
        The graph.
    input_shapes
        Input name -> shape; a size of 0 is unknown. Inputs that are left out are unknown too.
    params
        Parameters and auxiliary states by name; their shapes are given to MXNet as well.
    sym
        The Symbol that the graph was just read from, if it was: then MXNet need not parse it again.

    Returns
    -------
    sequence of tuple
        For every node, in the order of ``graph.nodes``, the shape of each output, hidden ones included. None
        where MXNet cannot tell, and for a second or later output that nothing reads.

    Raises
    ------
    UnknownNameError
        When ``input_shapes`` names what is no input.
    DataError
        When a shape is not a sequence of sizes, or the shapes contradict each other; names the node.

    Notes
    -----
    MXNet's ``get_internals`` skips hidden outputs and identifies entries by node names, which may repeat. So
    the graph is handed to MXNet with its entries as heads instead, and the answer comes back in our order.
    Where every node has one output that anybody sees, the internals of a Symbol are the same heads in the
    same order, since NNVM lists them as ``SaveJSON`` does (``DFSVisit``). Linear in nodes and entries;
    nothing recurses.
    """
    mx = import_mxnet()
    known = checked_input_shapes(graph, input_shapes, params)
    for name in graph.variables:
        shape = tuple(params[name].shape) if name in params else ()
        if shape:
            known[name] = shape
    entries = _entries(graph)
    numpy_shapes = graph.has_numpy_shapes or mx.util.is_np_shape()
    unknown = -1 if numpy_shapes else 0
    if numpy_shapes:
        for name in known.keys() - params.keys():  # a parameter may have no values
            known[name] = tuple(-1 if size == 0 else size for size in known[name])
    probe = None if sym is None else _internals(sym, graph, entries)
    if probe is None:
        probe = symbol_from_graph(Graph(graph.nodes, tuple(entries), graph.attrs))
    with mx.util.np_shape(True) if numpy_shapes else contextlib.nullcontext():
        try:
            _, found, _ = probe.infer_shape_partial(**known)
        except mx.base.MXNetError as error:
            missing = [name for name in graph.variables if name not in known]
            raise _explain(str(error), graph, input_shapes, missing) from error
    for (node, _), shape in zip(entries, found):
        name = graph.nodes[node].name
        if not graph.nodes[node].is_variable:  # which may be called what a parameter is
            continue
        if name in params and name in known and shape is not None and tuple(shape) != known[name]:
            # Some operators (BatchNorm) write what they want over what they get, and MXNet fails, or ends
            # the process, where the model is bound.
            raise DataError(
                f"The parameter {name!r} has the shape {known[name]}, and with these inputs the model wants "
                f"{tuple(shape)}. Do symbol and parameters belong to the same model, and the input shapes to "
                "both?"
            )
    shapes: list[list[Shape]] = [[None] * node.num_outputs for node in graph.nodes]
    for (node, output), shape in zip(entries, found):
        if shape is None or unknown in shape or (not shape and not numpy_shapes):
            continue
        shapes[node][output] = shape
    return [tuple(outputs) for outputs in shapes]


def _internals(sym: Any, graph: Graph, entries: Sequence[Entry]) -> Any:
    """Return a Symbol's internals; None where they are not the entries in their order."""
    if len(entries) != len(graph.nodes):
        return None
    internals = sym.get_internals()
    names = internals.list_outputs()
    if len(names) != len(entries):
        return None
    for name, node in zip(names, graph.nodes):
        if name != node.name and (node.is_variable or not name.startswith(f"{node.name}_")):
            return None
    return internals


def _entries(graph: Graph) -> list[Entry]:
    """Return the entries to ask about.

    A second output that nothing reads is left out: how many outputs a node has comes from the file, and
    MXNet does not check a head's output number before it reads the memory there.
    """
    entries = [Entry(position) for position in range(len(graph.nodes))]
    more = {entry for node in graph.nodes for entry in node.inputs if entry.output}
    more.update(head for head in graph.heads if head.output)
    return entries + sorted(more)


def _explain(
    message: str, graph: Graph, input_shapes: Mapping[str, Any], missing: Sequence[str]
) -> DataError:
    """Reduce MXNet's message to the line that tells something, with the node."""
    found = _OPERATOR_ERROR.search(message)
    text = message.strip().splitlines()[-1] if found is None else found.group("text")
    check = _CHECK.match(text)
    why = " ".join((check.group("why") if check is not None else text).split())
    where = ""
    if found is not None:
        name = found.group("node")
        where = f"node {name!r}"
        node = next((node for node in graph.nodes if node.name == name and not node.is_variable), None)
        if node is not None:
            where = str(node)
    return shapes_error(where, why, input_shapes, missing)
