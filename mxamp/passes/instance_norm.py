"""Compute InstanceNorm with the operator that has a fast loop for rows."""

from __future__ import annotations

import math
from functools import partial

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.params.parameter import Parameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State
from mxamp.passes.unit_norm import unit_norm

_SMALLEST = 2048
"""Values of an image below which the operator is as fast as it is: the form is eight small nodes."""


class RewriteInstanceNorm(NodeRewrite):
    """Replace InstanceNorm by a LayerNorm over rows, and a scale and shift.

    Before, of an image::

        x (N, C, H, W) -> InstanceNorm(gamma, beta) -> y

    After::

        rows = Reshape(x) to (N C, H W)
        LayerNorm(rows, ones, zeros) -> reshape_like(x) -> BatchNorm(gamma, beta, 0, 1 - 2^-10) -> y

    Of a sequence, a volume, or what may be any of these, (N, C, ...)::

        places = Reshape(x) to (N, C, -1, 1), rows = Reshape(places) to (N C, -1)
        LayerNorm(rows, ones, zeros) -> reshape_like(places) -> BatchNorm(...) -> reshape_like(x) -> y

    The ones and zeros are made in the graph, as long as a row is, so that the model runs for any size.

    Refuses: where gamma or beta are no float32 parameters; where the mean or variance is read; other dtypes
    than float32; NumPy's shape semantics where x is not certainly one of these; what is known to be of less
    than 2,048 values, where eight small nodes are no faster than one; a node that a rule of the user's picks;
    targets that do not name the pass; the bodies of control flow. The node may be a graph output, for its
    name stays. GroupNorm has its own form (:mod:`mxamp.passes.group_norm`): MXNet adds up its means with a
    correction for what rounding loses, and LayerNorm does not, so that in long rows this one would be up to
    twenty times less exact.

    Notes
    -----
    Why: MXNet 1.9.1 computes InstanceNorm by expressions that it evaluates for each value anew, in one
    thread and without vector instructions. LayerNorm over the last axis has a loop over each row. BatchNorm
    runs in oneDNN on four axes: behind a Convolution that takes 1.0 ms, 32 channels of 16 x 32 x 32 take 13.6
    ms, as four axes 6.0 and as five 9.5; 64 channels of 2,000 steps 3.1, 0.71 and 0.80 (an Intel Xeon, one
    thread).

    The same up to the order of summation. LayerNorm adds up a mean and squared differences from it in FP32,
    as InstanceNorm does. BatchNorm divides by the square root of its variance plus epsilon: 1 - 2^-10 and
    2^-10, which FP32 holds, as it does their sum 1. So it computes gamma times the value plus beta, as
    InstanceNorm does. Planes that hold an infinity or NaN are NaN in either form. Linear in nodes.

    References
    ----------
    Ulyanov et al., "Instance Normalization: the missing ingredient for fast stylization", 2016.
    """

    step = "instance_norm"
    operators = frozenset({"InstanceNorm", "_npx_instance_norm"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one InstanceNorm."""
        graph, node = state.graph, state.graph.nodes[position]
        if (
            len(node.inputs) != 3
            or (graph.has_numpy_shapes and node.inputs[0].node not in state.places)
            or state.dtypes[position][0] is not DType.FLOAT32
            or reads_statistics(graph, position)
            or _is_small(state, node.inputs[0])
        ):
            return None
        data, gamma, beta = node.inputs
        channels = _channels(*(state.parameter(entry) for entry in (gamma, beta)))
        if channels is None:
            return None
        is_image = data.node in state.images
        image, shape = data, state.shape(data)
        put = partial(edit.part, position)
        if not is_image:
            shape = None if shape is None else (*shape[:2], math.prod(shape[2:]), 1)
            # The rows are another shape of this one, so that blocks of a volume are brought into plain order
            # for it (:class:`mxamp.passes.KeepOrder`), and once.
            image = put("Reshape", "places", data, like=shape, shape="(0, 0, -1, 1)")
        rows = _normalized(edit, position, image, shape)
        normal = put("reshape_like", "image", rows, image, like=shape)
        norm = unit_norm(edit, position, normal, gamma, beta, channels)
        if is_image:
            edit.replace(position, norm)
        else:
            own = own_attributes(node)
            attrs = {key: value for key, value in norm.attrs.items() if key not in own}
            norm = norm._replace(name=f"{node.name}_scaled", attrs=attrs)
            scaled = edit.insert(norm, before=position, shapes=(shape, None, None))
            edit.replace(position, Node("reshape_like", node.name, own, (scaled, data)))
        return "LayerNorm normalizes rows several times as fast"


def reads_statistics(graph: Graph, position: int) -> bool:
    """Return whether anything reads the mean or the variance that a node has beside its result."""
    return any(graph.uses[position]) or any(head.node == position and head.output for head in graph.heads)


def _is_small(state: State, image: Entry) -> bool:
    shape = state.shape(image)
    return shape is not None and math.prod(shape) < _SMALLEST


def _channels(gamma: Parameter | None, beta: Parameter | None) -> int | None:
    """Return how many channels there are; None where the form does not hold."""
    for parameter in (gamma, beta):
        if parameter is None or parameter.dtype is not DType.FLOAT32 or parameter.is_sparse:
            return None
    assert gamma is not None  # checked above
    assert beta is not None  # checked above
    return gamma.shape[0] if len(gamma.shape) == 1 and gamma.shape == beta.shape else None


def _normalized(edit: GraphEdit, position: int, image: Entry, shape: tuple[int, ...] | None) -> Entry:
    """Put in what normalizes the places of each channel, a row each, and return the rows."""
    node = edit.node(Entry(position))
    rows = None if shape is None else (shape[0] * shape[1], math.prod(shape[2:]))

    put = partial(edit.part, position)
    plane = put("Reshape", "rows", image, like=rows, shape="(-3, -1)")
    one = None if rows is None else (1, rows[1])
    first = put("slice_axis", "first_row", plane, like=one, axis="0", begin="0", end="1")
    length = None if rows is None else (rows[1],)
    row = put("Reshape", "row", first, like=length, shape="(-1,)")
    ones, zeros = (put(f"{what}_like", what, row, like=length) for what in ("ones", "zeros"))
    attrs = {"axis": "-1", "eps": node.attrs.get("eps", "0.001")}
    moments = None if rows is None else (rows[0], 1)
    return edit.insert(
        Node("LayerNorm", f"{node.name}_normalized", attrs, (plane, ones, zeros), 3),
        before=position,
        shapes=(rows, moments, moments),
    )
