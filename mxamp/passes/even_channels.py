"""Let the first low layer of a network read an even number of channels."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxamp.decisions import Decision
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops.equivalents import EVEN_CHANNELS, reads_odd_channels
from mxamp.params.cast import cast_array
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.planned import PlannedPass
from mxamp.passes.state import Done, State
from mxamp.targets import Support

_OF_ONE_CHANNEL = 2
"""Channels that the weight of a layer of one has in the end."""


class _Split(NamedTuple):
    """A layer whose weight gets one column of channels more."""

    channel: int
    """Which is read twice."""
    weight: NDArray[np.float32]


class EvenChannels(PlannedPass):
    """Read one channel twice where a low convolution reads an odd number of few.

    Before::

        x -> Convolution(w) -> y                                            x has 3 channels

    After, where channel c is the one whose weights lose most by rounding::

        Concat(slice_axis(x, c), x) -> Convolution(Concat(w_c - cut(w_c), w with cut(w_c) for w_c)) -> y

    cut(w) is w with the digits cut off that the dtype has no room for. Of one channel there is nothing to
    slice: Concat(x, x).

    Refuses: where the layer stays FP32, or does not read x low; grouped layers and others than of images; an
    even number of channels, or sixteen and more; filters that are no whole blocks of 16; weights that
    something else reads, that are not float32, infinite or NaN, or cast at run time; targets that do not name
    the pass; where the operators that put the channel there do not run low.

    Notes
    -----
    Why: ``vdpbf16ps`` multiplies pairs of bfloat16 values. oneDNN pairs channels where they lie in plain
    order, and for an odd number takes a kernel that is no faster than float32's, or slower: the 7x7 layer
    that ResNets begin with takes 2.2 ms in float32, 2.4 in bfloat16 with three channels and 1.45 with four
    (224 x 224, AMD EPYC with avx512_bf16, one thread), and another 0.02 to put the fourth there. With three,
    such layers stay float32, and what they write is cast, which is more than what they read. The slice goes
    first: with it second, MXNet 1.9.1 takes one image for another layout, and 30 times as long to join them.

    Of one channel oneDNN makes plain matrix products that write plain order, for which its pooling is slow
    and which the next layer brings into its own. Eight images of one channel of 32 x 400, through 32 filters
    of 3x3, max pooling and another layer, take 4.7 ms in float32, 4.5 in bfloat16, and 2.6 with the channel
    read twice (AMD EPYC of family 26, one thread).

    Numerical effect: the weights of channel c are the sum of two numbers of the dtype, so they have twice its
    significant bits; those of the others are rounded as before. Both numbers have the sign of the weight and
    neither is zero where it is not, so that an infinite value becomes what it became. A calibrated conversion
    lets the first of them make up for what the rounding of all others does. Linear in nodes.
    """

    step = EVEN_CHANNELS

    def run(self, state: State) -> Done | None:
        """Return the graph in which they are even."""
        graph = state.graph
        if not all(state.target.support(op, {}).support is Support.WORKS for op in ("Concat", "slice_axis")):
            return None
        found = {
            position: split
            for position, node in enumerate(graph.nodes)
            if node.op == "Convolution" and not state.is_fixed(position)
            for split in [self._split(state, position, node)]
            if split is not None
        }
        if not found:
            return None
        edit = GraphEdit(graph, state.params)
        decisions: dict[int, Decision] = {}
        for position, split in found.items():
            node = graph.nodes[position]
            read = edit.once(  # by layers that read one image
                (node.inputs[0], split.channel),
                partial(self._put_channels, state, edit, decisions, position, split),
            )
            edit.change_parameter(node.inputs[1].node, ArrayParameter(split.weight))
            edit.replace(position, node._replace(inputs=(read, *node.inputs[1:])))
        reason = "reads one channel twice, for an even number is faster, and that one's weights in two parts"
        records = [self.changed(state, position, reason) for position in found]
        return Done(edit.finish(), tuple(records), decisions)

    def _put_channels(
        self,
        state: State,
        edit: GraphEdit,
        decisions: dict[int, Decision],
        position: int,
        split: _Split,
    ) -> Entry:
        """Put in what reads a channel of a layer's data twice, and return it."""
        node, decision = state.graph.nodes[position], self.plan(state).decisions[position]
        assert decision is not None  # a Convolution is an operator
        source, low = node.inputs[0], state.policy.target_dtype
        one, all_of_them = _shapes(state.usual_shape(source))
        channel = source
        if split.weight.shape[1] > _OF_ONE_CHANNEL:
            taken = {"axis": "1", "begin": str(split.channel), "end": str(split.channel + 1)}
            channel = edit.insert(
                Node("slice_axis", f"{node.name}_channel", taken, (source,)), before=position, shapes=one
            )
            decisions[channel.node] = decision._replace(inputs=(low,), outputs=(low,), attrs=())
        joined = {"dim": "1", "num_args": "2"}
        read = edit.insert(
            Node("Concat", f"{node.name}_channels", joined, (channel, source)),
            before=position,
            shapes=all_of_them,
        )
        decisions[read.node] = decision._replace(inputs=(low, low), outputs=(low,), attrs=())
        return read

    def _split(self, state: State, position: int, node: Node) -> _Split | None:
        plan, low = self.plan(state), state.policy.target_dtype
        decision = plan.decisions[position]
        if decision is None or decision.compute is not low or len(node.inputs) < 2:
            return None
        weight = state.own_parameter(node.inputs[1])
        if (
            decision.inputs[0] is not low
            or weight is None
            or state.graph.nodes[node.inputs[1].node].name not in plan.cast_offline
            or not reads_odd_channels(node.op, node.attrs, weight.shape)
        ):
            return None
        return _in_two_parts(weight, low)


def _in_two_parts(parameter: Parameter, low: DType) -> _Split | None:
    """Return the weight with a column for what rounding leaves of the channel that loses most."""
    values = np.asarray(parameter.values(), np.float32)
    if not np.isfinite(values).all() or ArrayParameter(values).range_loss(low) is not None:
        return None
    rounded = _towards_zero(values, low)
    left = values - rounded  # exact: both lie within a factor of two of each other
    channel = int(np.argmax(np.square(left, dtype=np.float64).sum(axis=(0, 2, 3))))
    taken = slice(channel, channel + 1)
    # Two halves rather than a zero: an infinite value times zero is NaN.
    is_whole = left == 0
    left, rounded = np.where(is_whole, values / 2, left), np.where(is_whole, values / 2, rounded)
    weight = np.concatenate([left[:, taken], values], axis=1)
    weight[:, 1 + channel] = rounded[:, channel]
    return _Split(channel, weight)


def _towards_zero(values: NDArray[np.float32], dtype: DType) -> NDArray[np.float32]:
    """Return values without the digits that a dtype has no room for, so that what is left has their sign."""
    nearest = cast_array(values, dtype)
    smaller = np.nextafter(nearest, np.zeros_like(nearest))
    cut = np.where(np.abs(nearest.astype(np.float32)) > np.abs(values), smaller, nearest)
    return cut.astype(np.float32)


def _shapes(
    shape: tuple[int, ...] | None,
) -> tuple[tuple[tuple[int, ...] | None, ...], tuple[tuple[int, ...] | None, ...]]:
    """Return the shapes of one channel, and of one more than there are."""
    if shape is None:
        return (None,), (None,)
    return ((shape[0], 1, *shape[2:]),), ((shape[0], shape[1] + 1, *shape[2:]),)
