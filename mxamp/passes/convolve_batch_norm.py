"""Compute a BatchNorm that no layer takes as a Convolution of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.decisions import Decision, Plan
from mxamp.decisions.workload import as_depthwise, model_work
from mxamp.dtypes import DType
from mxamp.graph.graph import Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.ops.equivalents import depthwise_of
from mxamp.params.cast import cast_array, float32_rounded_to_odd
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.params.scaled import ColumnScaledParameter, ScaledParameter
from mxamp.passes.edit import Edited, GraphEdit
from mxamp.passes.exact_scales import exact_scales, takers
from mxamp.passes.planned import PlannedPass
from mxamp.passes.preparation import own_attributes
from mxamp.passes.state import Done, State
from mxamp.targets.layout import layout_writer

_IMAGE = 4

_MOST_OF_BOTH = 0.9
"""What share of what BatchNorm and relu are told to take the Convolution may, in FP32: estimates are off."""


@dataclass(frozen=True)
class _Layer:
    """The Convolution that stands for a BatchNorm, and what the layers behind it take over."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    takers: Sequence[int] = ()
    ratio: NDArray[np.float64] | None = None


class ConvolveBatchNorm(PlannedPass):
    """Write a BatchNorm that no layer takes as a depthwise Convolution with a 1x1 kernel.

    Before::

        x -> BatchNorm(gamma, beta, mean, variance) -> y

    After::

        x -> Convolution(s, beta - mean * s, num_group=channels) -> y        s = gamma / sqrt(variance + eps)

    Refuses: where the BatchNorm stays FP32, unless the whole model does, a relu follows, x is in blocks of
    channels that no Deconvolution wrote, and the target's costs say that it pays; where its axis is not 1, or
    its statistics are handed on; where x is not certainly an image (four axes), or its channels fill no
    blocks (of 16, without AVX-512 of 8); where a statistic is no parameter or not FP32, or parameters are
    cast at run time; where scale or shift would leave the dtype's range, or a scale be subnormal; where
    MXNet's fusion would compute the new graph wrongly (:mod:`mxamp.targets.fusion_defect`).

    Notes
    -----
    Why: the BatchNorms of pre-activation networks (DenseNet, ResNet v2) have no layer to be folded into.
    MXNet 1.9.1's BatchNorm takes five times as long in BF16 as in FP32 inside DenseNet-121 (12.2 ms of 29.5),
    and no activation is fused with it. A Convolution takes its activation with it: 1.77 times the speed of
    FP32 instead of 1.06 (ResNet-50 v2: 1.90 instead of 1.80; on a CPU with avx512_bf16, batch 1).

    In FP32 both alone take as long, but the relu is fused: 64 channels of 56 x 56 take 99 and 27 us, 256 344
    and 92, but eight of 512 channels of 28 x 28, which no cache near a core holds, 1.1 ms and 2.9 (the same
    CPU, one thread; an Intel Xeon gains there as well). Behind a Deconvolution, which hands on blocks, the
    Convolution brings x into another order first: with four of them a generator took 1.02 times as long (an
    Intel Xeon).

    Numerical effect: scale and shift in float64, and each rounded once to the dtype, where BatchNorm had
    them in FP32. In FP32 that differs from BatchNorm by roundings of the shift, as folding it into a layer
    does. Where only layers with weights of their own read what is behind it, through relu and
    pooling, they take over what rounding the scale leaves, and of the scales near it that is taken with which
    the shift is rounded least (:mod:`mxamp.passes.exact_scales`). Elsewhere the shift is computed with the
    rounded scale, so that the rounding of the scale acts on the distance of x from its mean and not on x:
    what it adds has the mean zero.

    Linear in nodes and channels.
    """

    step = "convolve_batch_norm"

    def run(self, state: State) -> Done | None:
        """Return the graph without the BatchNorms that could be written as Convolutions."""
        graph = state.graph
        paying = _paying_in_float32(state, self.plan(state))
        candidates = [
            position
            for position, node in enumerate(graph.nodes)
            if node.op == "BatchNorm"
            and (position in paying or self._is_low(state, position, node))
            and _may_be_convolved(graph, position, node)
        ]
        if not candidates:
            return None
        layers: dict[int, _Layer] = {}
        for position in candidates:
            if graph.nodes[position].inputs[0].node in state.images:
                layer = _layer(state, position, self._dtype(state, position))
                if layer is not None:
                    layers[position] = layer
        lost_branches = state.target.backend.lost_branches
        known = {(branch.value, branch.fused) for branch in lost_branches(graph)} if layers else set()
        while layers:
            edited = _edited(state, layers)
            back = edited.nodes.back
            lost = {
                (back(branch.value), back(branch.fused)) for branch in lost_branches(edited.graph)
            } - known
            if not lost:
                reason = "written as a depthwise Convolution, which is faster"
                records = [self.changed(state, position, reason) for position in layers]
                return Done(edited, tuple(records), self._decisions(state, layers))
            # The chain may have begun some nodes before the value that is lost, but none behind it.
            last = max(value for value, _ in lost)
            kept = {position: layer for position, layer in layers.items() if position > last}
            layers = kept if len(kept) < len(layers) else {}
        return None

    def _dtype(self, state: State, position: int) -> DType:
        decision = self.plan(state).decisions[position]
        assert decision is not None  # a BatchNorm is an operator
        dtype = decision.outputs[0]
        assert dtype is not None  # and its dtype was asked for
        return dtype

    def _is_low(self, state: State, position: int, node: Node) -> bool:
        plan, low = self.plan(state), state.policy.target_dtype
        decision = plan.decisions[position]
        return (
            decision is not None
            and decision.compute is low
            and decision.outputs[0] is low
            and all(state.graph.nodes[entry.node].name in plan.cast_offline for entry in node.inputs[1:3])
        )

    def _decisions(self, state: State, layers: Iterable[int]) -> Mapping[int, Decision]:
        decisions, found = self.plan(state).decisions, {}
        for position in layers:
            decision, dtype = decisions[position], self._dtype(state, position)
            assert decision is not None  # a BatchNorm is an operator
            found[position] = decision._replace(inputs=(dtype, dtype, dtype), outputs=(dtype,))
        return found


def _may_be_convolved(graph: Graph, position: int, node: Node) -> bool:
    return (
        len(node.inputs) == 5
        and node.attrs.get("axis", "1") == "1"
        and not set(graph.uses[position]) - {0}
        and not any(head.node == position and head.output for head in graph.heads)
    )


def _paying_in_float32(state: State, plan: Plan) -> frozenset[int]:
    """Return the BatchNorms of a model that stays FP32 that take less time as Convolutions.

    Both are priced as the target says, for the shapes that are known or usual, with the relu behind.
    """
    graph, cost = state.graph, state.target.cost
    shapes = state.assumed_shapes if state.shapes is None and state.are_axes_certain else state.shapes
    if not plan.is_float32 or cost is None or shapes is None:
        return frozenset()
    relus = {
        position: relu
        for position, node in enumerate(graph.nodes)
        if node.op == "BatchNorm"
        for relu in [_relu_that_is_fused(state, plan, position)]
        if relu is not None
    }
    works = model_work(graph, shapes, block=cost.block) if relus else ()
    found = []
    for position, relu in relus.items():
        node, work, behind = graph.nodes[position], works[position], works[relu]
        if work is None or behind is None or len(work.output) != _IMAGE:
            continue
        layer = depthwise_of(node.op, node.attrs, work.output[1], work.block)
        if layer is None:
            continue
        op, attributes = layer
        both = cost.microseconds(node.op, work, low=False)
        both += cost.microseconds(graph.nodes[relu].op, behind, low=False)
        convolved = as_depthwise(work, attributes)._replace(has_activation=True)
        if cost.microseconds(op, convolved, low=False) <= _MOST_OF_BOTH * both:
            found.append(position)
    return frozenset(found)


def _relu_that_is_fused(state: State, plan: Plan, position: int) -> int | None:
    """Return the relu that a Convolution in the place of an FP32 BatchNorm takes with it, None without one.

    And None where the BatchNorm has to stay, or would be brought into another order first.
    """
    graph, decision, reader = state.graph, plan.decisions[position], state.only_reader(position)
    if decision is None or reader is None or state.is_fixed(position, updating=False):
        return None
    if {decision.compute, decision.inputs[0], decision.outputs[0]} != {DType.FLOAT32}:
        return None
    relu, writer = graph.nodes[reader], layout_writer(graph, graph.nodes[position].inputs[0].node)
    if writer is None or graph.nodes[writer].op == "Deconvolution":
        return None
    return reader if relu.op == "Activation" and relu.attrs.get("act_type") == "relu" else None


def _layer(state: State, position: int, dtype: DType) -> _Layer | None:
    node = state.graph.nodes[position]
    parameters = [state.parameter(entry) for entry in node.inputs[1:]]
    statistics = [
        parameter.values().astype(np.float64)
        for parameter in parameters
        if parameter is not None and parameter.dtype is DType.FLOAT32 and len(parameter.shape) == 1
    ]
    channels = {values.size for values in statistics}
    if len(statistics) != 4 or len(channels) != 1 or channels.pop() % state.target.block:
        return None
    gamma, beta, mean, variance = statistics
    if is_true(node.attrs, "fix_gamma", default=True):
        gamma = np.ones_like(gamma)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + float(node.attrs.get("eps", "0.001")))
        if dtype is DType.FLOAT32:
            weight = scale.astype(np.float32)
            bias = (beta - mean * weight).astype(np.float32)
        else:
            weight = float32_rounded_to_odd(scale)
            rounded = cast_array(weight, dtype).astype(np.float64)
            bias = float32_rounded_to_odd(beta - mean * rounded)
    if not np.isfinite(weight).all() or not np.isfinite(bias).all():
        return None
    if dtype is DType.FLOAT32:
        return _Layer(weight.reshape(-1, 1, 1, 1), bias)
    if any(ArrayParameter(values).range_loss(dtype) is not None for values in (weight, bias)):
        return None
    if np.any((weight != 0.0) & (np.abs(weight) < dtype.smallest_normal)):
        return None  # a subnormal number has fewer bits, and each is all the weights of a channel
    behind = takers(state, position, scale.size)
    if not behind:
        return _Layer(weight.reshape(-1, 1, 1, 1), bias)
    exact = exact_scales(scale, beta - mean * scale, dtype)
    weight, bias = exact.scale.astype(np.float32), float32_rounded_to_odd(exact.shift)
    return _Layer(weight.reshape(-1, 1, 1, 1), bias, behind, exact.ratio)


def _edited(state: State, layers: Mapping[int, _Layer]) -> Edited:
    """Return the graph with Convolutions."""
    graph, edit = state.graph, GraphEdit(state.graph, state.params)
    for position, layer in layers.items():
        node, channels = graph.nodes[position], layer.bias.size
        gamma, beta = (graph.nodes[entry.node].name for entry in node.inputs[1:3])
        weight = edit.add_parameter(
            f"{node.name}_weight", ArrayParameter(layer.weight), [gamma], before=position
        )
        bias = edit.add_parameter(f"{node.name}_bias", ArrayParameter(layer.bias), [beta], before=position)
        found = depthwise_of(node.op, node.attrs, channels, state.target.block)
        assert found is not None  # it was a candidate
        op, attrs = found
        attrs = {**own_attributes(node), **attrs}
        inputs = (node.inputs[0], weight, bias)
        edit.replace(position, Node(op, node.name, attrs, inputs, control_deps=node.control_deps))
        for taker in layer.takers:
            assert layer.ratio is not None  # there are layers that take it
            own = graph.nodes[taker].inputs[1].node
            parameter = state.params[graph.nodes[own].name]
            edit.change_parameter(own, _taking(graph.nodes[taker], parameter, layer.ratio))
    return edit.finish()


def _taking(node: Node, weight: Parameter, ratio: NDArray[np.float64]) -> Parameter:
    """Return the weight of a layer, multiplied by one factor a channel that it reads."""
    if FACTS.canonical(node.op) == "Deconvolution":  # (in, out, kernel)
        return ScaledParameter(weight, ratio.reshape(-1, *[1] * (len(weight.shape) - 1)))
    return ColumnScaledParameter(weight, np.repeat(ratio, math.prod(weight.shape[1:]) // ratio.size))
