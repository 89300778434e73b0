"""Write the average over an image in the form that backends have kernels for."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_ADAPTIVE = "_contrib_AdaptiveAvgPooling2D"


class RewriteGlobalPooling(NodeRewrite):
    """Replace adaptive average pooling to one value by global average Pooling.

    Before::

        x -> _contrib_AdaptiveAvgPooling2D {output_size: 1} -> y

    After::

        x -> Pooling {global_pool: True, pool_type: avg} -> y

    Refuses: other output sizes; other dtypes than float32; a node that a rule of the user's picks; the bodies
    of control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet's adaptive pooling is a plain loop that reads plain tensors, so that a tensor in a
    convolution's blocked layout is reordered for it, and it computes in FP32 alone, which costs two casts.
    Squeeze-and-excite networks have one in every block: in SE-ResNeXt-50 they and their casts take a tenth of
    the time in FP32, and as much in BF16.

    Both are the sum over an image divided by its size; the order of summation is the backend's, so results
    differ by rounding. Linear in nodes.
    """

    step = "global_pooling"
    operators = frozenset({_ADAPTIVE})

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one pooling."""
        node = state.graph.nodes[position]
        if (
            len(node.inputs) != 1
            or set(integers(node.attrs.get("output_size", "()")) or (1,)) != {1}
            or state.dtypes[position][0] is not DType.FLOAT32
        ):
            return None
        attrs = own_attributes(node)
        attrs.update(kernel="(1, 1)", global_pool="True", pool_type="avg")
        edit.replace(position, node._replace(op="Pooling", attrs=attrs))
        return "global Pooling is the same, and backends have kernels for it"
