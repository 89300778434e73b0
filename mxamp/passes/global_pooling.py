"""Write the mean or the maximum over all places in the form that backends have kernels for."""

from __future__ import annotations

from typing import Mapping

from mxamp.dtypes import DType
from mxamp.graph.graph import Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true
from mxamp.passes.edit import GraphEdit
from mxamp.passes.images import ADAPTIVE_POOLING, reduces_places
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

REDUCTIONS: Mapping[str, str] = {"mean": "avg", "max": "max"}
"""Reduction -> the kind of pooling that it is over all places."""


_IMAGE = 2
"""Axes of its places."""

_ONE_BLOCK = 8
"""Channels of which oneDNN's Concat makes an order that its pooling has no kernel for."""


class RewriteGlobalPooling(NodeRewrite):
    """Replace adaptive average pooling to one value, and reductions over all places, by global Pooling.

    Before::

        x -> _contrib_AdaptiveAvgPooling2D {output_size: 1} -> y
        x -> mean {axis: (2, 3)} -> z
        x -> Pooling {global_pool: True} -> w

    After::

        x -> Pooling {global_pool: True, pool_type: avg} -> y
        x -> Pooling {global_pool: True, pool_type: avg} -> Flatten -> z
        x -> Pooling {global_pool: True, kernel: (1, 1)} -> w

    Likewise ``max``, and reductions over the one axis of a sequence and the three of a volume. With
    ``keepdims`` there is no Flatten.

    Refuses: other output sizes; reductions over other axes, with ``exclude``, or of what is not certainly a
    sequence, an image or a volume, or may be empty; images whose channels were put together of eight, and
    others; other dtypes than float32; a node that a rule of the user's picks; the bodies of control flow. The
    node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet's adaptive pooling and its reductions are plain loops that read plain tensors, so that a tensor
    in a convolution's blocked layout is reordered for them, and they compute in FP32 alone, which costs two
    casts. Squeeze-and-excite networks have one in every block: in SE-ResNeXt-50 adaptive poolings and their
    casts take a tenth of the time in FP32, and as much in BF16. The mean of 64 channels of 64 x 64 takes 1.5
    ms, the Pooling 0.15, and their maximum 0.9 and 0.15 (AMD EPYC, one thread, FP32).

    Of a sequence, 1,024 values of 1,024 channels behind a Convolution, as PointNet has them, the maximum
    takes 5.5 ms, and the Pooling 0.17; of 200 of 512 the mean 0.70 and 0.02 (an Intel Xeon, one thread).

    What a Concat makes of blocks of channels of which one is all of its image, as of 8 and 8 channels, has an
    order that oneDNN's pooling looks up value by value: 16 channels of 112 x 112 take 6.5 ms, and adaptive
    pooling 0.5 (an Intel Xeon, one thread, FP32). In that order GhostNet begins.

    A global Pooling that says no kernel is kept from oneDNN by MXNet, which has a loop of its own for it, and
    none in bfloat16; the kernel says how many axes there are, and is not looked at otherwise.

    All are the sum over all places divided by their number; the order of summation is the backend's, so
    results differ by rounding: ``mean`` corrects for what its additions lose, Pooling does not, as
    convolutions do not. A maximum is the same, but for NaN and the sign of a zero, and of places that are all
    minus infinity it is the lowest finite number. Linear in nodes.
    """

    step = "global_pooling"
    operators = frozenset({ADAPTIVE_POOLING, "Pooling", "mean", "max", "max_axis"})

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one pooling."""
        node = state.graph.nodes[position]
        if len(node.inputs) != 1 or state.dtypes[position][0] is not DType.FLOAT32:
            return None
        origins = state.image_origins
        if any(origins.channels_of(image) == _ONE_BLOCK for image in origins.joined(node.inputs[0])):
            return None
        source = node.inputs[0].node
        if source not in state.never_empty:
            return None
        if node.op == "Pooling":
            return self._with_a_kernel(state, edit, position)
        axes = state.places.get(source, _IMAGE)
        attrs = own_attributes(node)
        attrs.update(kernel=str((1,) * axes), global_pool="True")
        if node.op == ADAPTIVE_POOLING:
            sizes = integers(node.attrs.get("output_size", "()"))
            if sizes is None or set(sizes) - {1}:
                return None
            edit.replace(position, node._replace(op="Pooling", attrs={**attrs, "pool_type": "avg"}))
            return "global Pooling is the same, and backends have kernels for it"
        if source not in state.places or not reduces_places(node, axes) or node.inputs[0].output:
            return None
        attrs["pool_type"] = REDUCTIONS[FACTS.canonical(node.op)]
        if is_true(node.attrs, "keepdims", default=False):
            edit.replace(position, node._replace(op="Pooling", attrs=attrs))
        else:
            shape = state.shape(node.inputs[0])
            pixel = None if shape is None else (*shape[:2], *(1,) * axes)
            pooled = Node("Pooling", f"{node.name}_pooled", attrs, node.inputs)
            image = edit.insert(pooled, before=position, shapes=(pixel,))
            edit.replace(position, node._replace(op="Flatten", attrs=own_attributes(node), inputs=(image,)))
        return "global Pooling reduces all places as well, and backends have kernels for it"

    def _with_a_kernel(self, state: State, edit: GraphEdit, position: int) -> str | None:
        node = state.graph.nodes[position]
        source = node.inputs[0].node
        is_whole = is_true(node.attrs, "global_pool", default=False)
        if not is_whole or integers(node.attrs.get("kernel", "")) or source not in state.places:
            return None
        if node.attrs.get("pooling_convention", "valid") == "same":
            return None  # which MXNet refuses beside a kernel
        kernel = str((1,) * state.places[source])
        edit.replace(position, node._replace(attrs={**node.attrs, "kernel": kernel}))
        return "a global Pooling that has a kernel does the same, and backends have kernels for it"
