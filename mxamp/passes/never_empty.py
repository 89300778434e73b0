"""Which nodes certainly make at least one value, whatever is fed to the graph."""

from __future__ import annotations

from typing import Mapping

from mxamp.graph.graph import Graph
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.params.parameter import Parameter
from mxamp.passes.equal_shapes import BROADCASTING, KEEP_SHAPE

_RAISES = frozenset({"Convolution", "Pooling"})
"""With oneDNN these raise where their input is empty, and so does a FullyConnected that flattens."""

_KEEPS_SIZE = KEEP_SHAPE | {"Flatten", "Reshape", "_np_reshape", "_npx_reshape", "_np_transpose", "transpose"}
_JOINS = frozenset({"Concat", "_npi_concatenate"})


def never_empty(graph: Graph, params: Mapping[str, Parameter]) -> frozenset[int]:
    """Return the nodes whose first output certainly is not empty.

    All are where axes of length 0 do not exist: outside numpy's shape semantics. Inside, what follows a layer
    that raises for empty inputs as it is.
    """
    if not graph.has_numpy_shapes:
        return frozenset(range(len(graph.nodes)))
    found: set[int] = set()
    for position, node in enumerate(graph.nodes):
        op = FACTS.canonical(node.op)
        inputs = [entry.node in found and entry.output == 0 for entry in node.inputs]
        if (
            (node.is_variable and node.name in params and 0 not in params[node.name].shape)
            or op in _RAISES
            or (op == "FullyConnected" and is_true(node.attrs, "flatten", default=True))
            or (op in _KEEPS_SIZE and inputs[:1] == [True])
            or (op in BROADCASTING and inputs and all(inputs))
            or (op in _JOINS and any(inputs))
        ):
            found.add(position)
    return frozenset(found)
