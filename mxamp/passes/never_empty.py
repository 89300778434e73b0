"""Which nodes certainly make at least one value, whatever is fed to the graph."""

from __future__ import annotations

from typing import Callable, Mapping

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.graph.infer import EntryDtypes
from mxamp.ops import FACTS
from mxamp.ops.attributes import CHANNELS_FIRST, integers
from mxamp.ops.shapes.elementwise import BROADCASTING
from mxamp.params.parameter import Parameter
from mxamp.passes.equal_shapes import KEEP_SHAPE

_RAISES = frozenset({"Convolution", "Pooling"})
"""With oneDNN these raise where their input is empty, and so does a FullyConnected of a matrix."""

_MATRIX = 2

_KEEPS_SIZE = KEEP_SHAPE | {"Flatten", "Reshape", "_np_reshape", "_npx_reshape", "_np_transpose", "transpose"}
_JOINS = frozenset({"Concat", "_npi_concatenate"})


def never_empty(
    graph: Graph,
    params: Mapping[str, Parameter],
    dtypes: EntryDtypes,
    axes: Callable[[Entry], int | None],
) -> frozenset[int]:
    """Return the nodes whose first output certainly is not empty.

    All are where axes of length 0 do not exist: outside numpy's shape semantics. Inside, what follows a layer
    that raises for empty inputs as it is, as oneDNN's do, which compute in float32.

    Parameters
    ----------
    graph
        The graph.
    params
        Its parameters by name.
    dtypes
        The dtype of each entry in every call, where one is certain.
    axes
        How many axes an entry has; None where that is not certain.
    """
    if not graph.has_numpy_shapes:
        return frozenset(range(len(graph.nodes)))
    found: set[int] = set()
    for position, node in enumerate(graph.nodes):
        op = FACTS.canonical(node.op)
        inputs = [entry.node in found and entry.output == 0 for entry in node.inputs]
        if (
            (node.is_variable and node.name in params and 0 not in params[node.name].shape)
            or (dtypes[position][0] is DType.FLOAT32 and _raises(op, node, axes))
            or (op in _KEEPS_SIZE and inputs[:1] == [True])
            or (op in BROADCASTING and inputs and all(inputs))
            or (op in _JOINS and any(inputs))
        ):
            found.add(position)
    return frozenset(found)


def _raises(op: str, node: Node, axes: Callable[[Entry], int | None]) -> bool:
    """Return whether a node in float32 raises where what it reads is empty."""
    if op == "FullyConnected":  # of more axes it makes nothing of nothing
        return axes(node.inputs[0]) == _MATRIX
    if op not in _RAISES or node.attrs.get("layout", "None") not in CHANNELS_FIRST:
        return False
    # MXNet has a loop of its own for other kinds of pooling, and for one that says no kernel, and for means
    # over windows that stand out.
    pool_type, convention = node.attrs.get("pool_type", "max"), node.attrs.get("pooling_convention", "valid")
    is_onednns = pool_type == "max" or (pool_type == "avg" and convention == "valid")
    return op == "Convolution" or (is_onednns and bool(integers(node.attrs.get("kernel", ""))))
