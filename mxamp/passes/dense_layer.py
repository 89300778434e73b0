"""Write a product with a matrix of parameters as the layer that it is."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node, Use
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true, real_number
from mxamp.params.rearranged import RearrangedParameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_MATRIX = 2

_OTHER_NAME = "_npi_matmul"
"""An operator that calls what it writes otherwise than FullyConnected does."""

_OF_MATRICES = frozenset({"_linalg_gemm2", "linalg_gemm2"})
"""Operators whose inputs have equally many axes; models read from ONNX have no other dense layers."""

_FLATTENED = frozenset({"Flatten", "FullyConnected"})
"""Operators that write two axes, unless they say that they do not flatten."""


class RewriteDenseLayer(NodeRewrite):
    """Replace a product with a matrix of parameters by FullyConnected.

    Before::

        x -> dot(w) -> y                      w of shape (channels, units)

    After::

        x -> FullyConnected(transposed w, no_bias) -> y

    Likewise ``np.dot`` and ``np.matmul``, with ``transpose_b``, and with rows of any number of axes; and
    ``linalg_gemm2``, of matrices.

    Refuses: where x may have one axis, be empty or be sparse; ``transpose_a``; products times a number, and
    along another axis; a matrix that is no dense float32 parameter, is declared sparse, or must be turned and
    is read by others than such products; other dtypes than float32; a node that a rule of the user's picks;
    targets that do not name the pass; the bodies of control flow. The node may be a graph output, for its
    name stays, but for a ``np.matmul``.

    Notes
    -----
    Why: MXNet's ``dot`` knows neither oneDNN nor bfloat16, and multiplies one row as slowly as several.
    Models that were built with Keras have no other dense layers. In float32 one row of 512 times 512 takes
    123 us, and 20 as a layer, of 4,096 times 1,000 1.9 ms and 0.26, 128 rows of 1,024 times 4,096 10.3 ms and
    6.0 (AMD EPYC of family 26, one thread).

    The same sums, which the backend may add up in another order. Linear in nodes and parameters.
    """

    step = "dense_layer"
    operators = frozenset({"dot", "_np_dot", "_npi_matmul", *_OF_MATRICES})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one product."""
        node = state.graph.nodes[position]
        data, weight = node.inputs
        matrix = state.parameter(weight)
        if matrix is None:
            return None
        # One that stays as it is may be read by others, such as the Embedding that it is tied to.
        is_kept = _is_transposed(node)
        uses = [Use(position, 1)] if is_kept else state.graph.uses_of(weight)
        if not all(_is_layer(state, use, node) for use in uses):
            return None
        units = matrix.shape[1]
        if is_kept:
            units = matrix.shape[0]
        else:  # once, also where several layers share it
            turned = RearrangedParameter(matrix, (1, 0), matrix.shape[::-1])
            edit.once(weight, lambda: edit.change_parameter(weight.node, turned))
        attrs = {**own_attributes(node), "num_hidden": str(units), "no_bias": "True"}
        if node.op not in _OF_MATRICES and _axes(state, data) > _MATRIX:
            attrs["flatten"] = "False"
        edit.replace(position, node._replace(op="FullyConnected", attrs=attrs))
        return "a product with a matrix of parameters is a layer, for which backends have kernels"


def _is_layer(state: State, use: Use, like: Node) -> bool:
    """Return whether what reads a matrix can be a layer, and reads it as another node does."""
    node = state.graph.nodes[use.node]
    if node.op not in RewriteDenseLayer.operators or use.input != 1:
        return False
    data, weight = node.inputs
    matrix = state.parameter(weight)
    return (
        matrix is not None
        and matrix.dtype is DType.FLOAT32
        and not matrix.is_sparse
        and len(matrix.shape) == _MATRIX
        and (_is_transposed(node) or weight not in state.graph.heads)
        and (_is_plain(node) if node.op in _OF_MATRICES else _axes(state, data) >= _MATRIX)
        and data.node in state.never_empty
        and not any("__storage_type__" in state.graph.nodes[entry.node].attrs for entry in node.inputs)
        and not is_true(node.attrs, "transpose_a", default=False)
        and _is_transposed(node) == _is_transposed(like)
        and state.dtypes[use.node][0] is DType.FLOAT32
        and not state.is_fixed(use.node)
        and not (node.op == _OTHER_NAME and use.node in state.heads)
    )


def _is_transposed(node: Node) -> bool:
    return is_true(node.attrs, "transpose_b", default=False)


def _is_plain(node: Node) -> bool:
    """Return whether a product of matrices is one, and nothing besides."""
    return node.attrs.get("axis", "-2") == "-2" and real_number(node.attrs, "alpha", 1.0) == 1


def _axes(state: State, entry: Entry) -> int:
    """Return how many axes an entry certainly has; none where that is not known."""
    shape = state.shape(entry)
    if shape is not None:
        return len(shape)
    node = state.graph.nodes[entry.node]
    is_flat = FACTS.canonical(node.op) in _FLATTENED and is_true(node.attrs, "flatten", default=True)
    return _MATRIX if is_flat else 0
