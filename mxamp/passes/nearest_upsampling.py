"""Repeat pixels by an operator that the backend has kernels for."""

from __future__ import annotations

from typing import Mapping, NamedTuple

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.params.parameter import ArrayParameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass, own_attributes
from mxamp.passes.state import Done, State

_MOST = 8
"""What is repeated more often was not measured."""

_ROWS, _COLUMNS = frozenset({2, -2}), frozenset({3, -1})


class _Upsampling(NamedTuple):
    """Pixels that are repeated."""

    source: Entry
    inner: int | None
    """The first of two nodes that repeat."""

    times: tuple[int, int]
    """How often each row and each column is there after."""


class RewriteNearestUpsampling(PreparationPass):
    """Replace upsampling to the nearest pixel by a depthwise Deconvolution with ones.

    Before, in either spelling::

        x -> UpSampling {scale: 2, sample_type: nearest} (name)
        x -> repeat {repeats: 2, axis: -1} -> repeat {repeats: 2, axis: -2} (name)

    After::

        x -> Deconvolution {kernel: (2, 2), stride: (2, 2), num_group: channels}(ones) (name)

    Refuses: where x is not certainly an image (four axes), or its channels are not known, or fill no blocks
    (of 16, without AVX-512 of 8); factors above 8; UpSampling of several inputs; a first ``repeat`` that is
    read elsewhere or is a graph output; other dtypes than float32; nodes that a rule of the user's picks;
    targets that do not name the pass; the bodies of control flow. The last node may be a graph output, for
    its name stays.

    Notes
    -----
    Why: MXNet's own are loops over single values of plain tensors, so that what a convolution wrote is
    brought into plain order for them, and neither runs in bfloat16 on CPUs, which costs two casts. From 128
    channels of 26 x 26 to 52 x 52, behind a convolution, UpSampling takes 790 us in float32, two ``repeat``
    5,300, the Deconvolution 170, and 220 in bfloat16 (AMD EPYC, one thread).

    Bit-exact: each pixel is multiplied by one, once, and added to nothing; infinities and NaN stay as they
    are, but the sign of a zero may differ. Linear in nodes.
    """

    step = "nearest_upsampling"
    operators = frozenset({"UpSampling", "repeat"})
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with Deconvolutions."""
        ones: dict[tuple[int, ...], Entry] = {}
        edit, changes = GraphEdit(graph, state.params), []
        for position, node in enumerate(graph.nodes):
            if node.op not in self.operators or state.is_fixed(position):
                continue
            pixels = _upsampling(graph, state, position)
            if pixels is None or pixels.source.node not in state.images or pixels.source.output:
                continue
            channels = state.image_origins.channels_of(pixels.source)
            if (
                channels is None
                or channels % state.target.block
                or not all(1 < times <= _MOST for times in pixels.times)
                or state.certain_dtypes[position][0] is not DType.FLOAT32
            ):
                continue
            shape = (channels, 1, *pixels.times)
            if shape not in ones:
                values = ArrayParameter(np.ones(shape, np.float32))
                ones[shape] = edit.add_parameter(f"{node.name}_ones", values, before=position)
            attrs = {
                **own_attributes(node),
                **_window(pixels.times),
                "num_filter": str(channels),
                "num_group": str(channels),
                "no_bias": "True",
            }
            inputs = (pixels.source, ones[shape])
            edit.replace(position, node._replace(op="Deconvolution", attrs=attrs, inputs=inputs))
            reason = "a depthwise Deconvolution repeats pixels as well, with a kernel of the backend"
            if pixels.inner is not None:
                edit.drop(pixels.inner, pixels.source)
                changes.append(self.changed(graph.nodes[pixels.inner], reason, into=node.name))
            changes.append(self.changed(node, reason))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _upsampling(graph: Graph, state: State, position: int) -> _Upsampling | None:
    node = graph.nodes[position]
    if len(node.inputs) != 1:
        return None
    if FACTS.canonical(node.op) == "UpSampling":
        scale = integers(node.attrs.get("scale", ""))
        if node.attrs.get("sample_type") != "nearest" or scale is None or len(scale) != 1:
            return None
        return _Upsampling(node.inputs[0], None, (scale[0], scale[0]))
    inner = node.inputs[0].node
    first = graph.nodes[inner]
    if FACTS.canonical(first.op) != "repeat" or state.only_reader(inner) != position or state.is_fixed(inner):
        return None
    outer_times, inner_times = _repeats(node.attrs), _repeats(first.attrs)
    if outer_times is None or inner_times is None or outer_times[0] == inner_times[0]:
        return None
    rows, columns = sorted((outer_times, inner_times))  # False for rows
    return _Upsampling(first.inputs[0], inner, (rows[1], columns[1]))


def _repeats(attrs: Mapping[str, str]) -> tuple[bool, int] | None:
    """Return whether columns are repeated, or rows, and how often; None of another axis."""
    times, axis = integers(attrs.get("repeats", "")), integers(attrs.get("axis", ""))
    if times is None or axis is None or len(times) != 1 or len(axis) != 1:
        return None
    if axis[0] not in _ROWS | _COLUMNS:
        return None
    return axis[0] in _COLUMNS, times[0]


def _window(times: tuple[int, int]) -> Mapping[str, str]:
    return {"kernel": str(times), "stride": str(times)}
