"""Compute a BatchNorm that no layer takes as a Convolution of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import AbstractSet, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.decisions import Decision, Plan
from mxamp.dtypes import DType
from mxamp.graph.builder import GraphBuilder
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.ops.attributes import is_true
from mxamp.params.cast import cast_array, float32_rounded_to_odd
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.passes.fold_batch_norm import FoldedNorms, read_by_norms_alone
from mxamp.passes.images import image_nodes
from mxamp.passes.planned import PlannedPass
from mxamp.targets.fusion_defect import lost_branches

__all__ = ["ConvolveBatchNorm"]

_BLOCK = 16
"""oneDNN's depthwise kernels are fast on whole blocks of so many channels."""


@dataclass(frozen=True)
class _Layer:
    """The Convolution that stands for a BatchNorm."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]


class ConvolveBatchNorm(PlannedPass):
    """Write a BatchNorm that computes low as a depthwise Convolution with a 1x1 kernel.

    Before::

        x -> BatchNorm(gamma, beta, mean, variance) -> y

    After::

        x -> Convolution(s, beta - mean * s, num_group=channels) -> y        s = gamma / sqrt(variance + eps)

    Refuses: where the BatchNorm stays FP32, its axis is not 1, or its statistics are handed on; where x is
    not certainly an image (four axes), or its channels are no multiple of 16; where a statistic is no
    parameter or not FP32, or parameters are cast at run time; where scale or shift would leave the dtype's
    range, or a scale be subnormal; where MXNet's fusion would compute the new graph wrongly
    (:mod:`mxamp.targets.fusion_defect`).

    Parameters
    ----------
    plan
        The decisions for the graph the pass will run on.
    arg_params, aux_params
        Its parameters.
    dtype
        The low dtype.

    Notes
    -----
    Why: the BatchNorms of pre-activation networks (DenseNet, ResNet v2) have no layer to be folded into.
    MXNet 1.9.1's BatchNorm takes five times as long in BF16 as in FP32 inside DenseNet-121 (12.2 ms of 29.5),
    and no activation is fused with it. A Convolution takes its activation with it: 1.77 times the speed of
    FP32 instead of 1.06 (ResNet-50 v2: 1.90 instead of 1.80; on a CPU with avx512_bf16, batch 1).

    Numerical effect: scale and shift in float64, and each rounded once to the low dtype, where BatchNorm had
    them in FP32. The shift is computed with the rounded scale, so that the rounding of the scale acts on the
    distance of x from its mean and not on x: what it adds has the mean zero.

    Linear in nodes and channels.
    """

    def __init__(
        self,
        plan: Plan,
        arg_params: Mapping[str, Parameter],
        aux_params: Mapping[str, Parameter],
        dtype: DType,
    ) -> None:
        super().__init__(plan, arg_params, aux_params, dtype)
        self.convolved: AbstractSet[int] = frozenset()
        """The BatchNorms that are Convolutions now, positions before. Set by :meth:`run`."""
        self.successors: Mapping[str, str] = {}
        """A gamma or beta that is gone -> the weight or bias in its place. Set by :meth:`run`."""

    def run(self, graph: Graph) -> Graph:
        """Return the graph without the BatchNorms that could be written as Convolutions."""
        candidates = [
            position
            for position, node in enumerate(graph.nodes)
            if node.op == "BatchNorm" and self._may_be_convolved(graph, position, node)
        ]
        if not candidates:
            return graph
        images = image_nodes(graph)
        layers: dict[int, _Layer] = {}
        for position in candidates:
            if graph.nodes[position].inputs[0].node in images:
                layer = self._layer(graph, graph.nodes[position])
                if layer is not None:
                    layers[position] = layer
        known = {(branch.value, branch.fused) for branch in lost_branches(graph)} if layers else set()
        while layers:
            after, positions, names = _rewritten(graph, layers, self._params)
            origins = {new: old for old, new in enumerate(positions) if new >= 0}
            lost = {(origins[branch.value], origins[branch.fused]) for branch in lost_branches(after)} - known
            if not lost:
                self._finish(graph, layers, positions, names, after)
                return after
            # The chain may have begun some nodes before the value that is lost, but none behind it.
            last = max(value for value, _ in lost)
            kept = {position: layer for position, layer in layers.items() if position > last}
            layers = kept if len(kept) < len(layers) else {}
        return graph

    def merged_into(self, folded: FoldedNorms) -> FoldedNorms:
        """Return what folding did and then :meth:`run`."""
        if not self.convolved:
            return folded
        origins = {new: old for old, new in enumerate(folded.positions) if old not in folded.layers}
        return replace(
            folded,
            plan=self.plan,
            positions=[self.positions[place] if place >= 0 else -1 for place in folded.positions],
            convolved=frozenset(origins[position] for position in self.convolved),
            successors=self.successors,
        )

    # ------------------------------------------------------------------ what can be convolved

    def _may_be_convolved(self, graph: Graph, position: int, node: Node) -> bool:
        decision = self._before.decisions[position]
        return (
            decision is not None
            and decision.compute is self._dtype
            and decision.outputs[0] is self._dtype
            and len(node.inputs) == 5
            and node.attrs.get("axis", "1") == "1"
            and not set(graph.uses[position]) - {0}
            and not any(head.node == position and head.output for head in graph.heads)
            and all(graph.nodes[entry.node].name in self._before.cast_offline for entry in node.inputs[1:3])
        )

    def _layer(self, graph: Graph, node: Node) -> _Layer | None:
        parameters = [self._params.get(graph.nodes[entry.node].name) for entry in node.inputs[1:]]
        statistics = [
            parameter.values().astype(np.float64)
            for parameter in parameters
            if parameter is not None and parameter.dtype is DType.FLOAT32 and len(parameter.shape) == 1
        ]
        channels = {values.size for values in statistics}
        if len(statistics) != 4 or len(channels) != 1 or channels.pop() % _BLOCK:
            return None
        gamma, beta, mean, variance = statistics
        if is_true(node.attrs, "fix_gamma", default=True):
            gamma = np.ones_like(gamma)
        with np.errstate(all="ignore"):
            weight = float32_rounded_to_odd(gamma / np.sqrt(variance + float(node.attrs.get("eps", "0.001"))))
            rounded = cast_array(weight, self._dtype).astype(np.float64)
            bias = float32_rounded_to_odd(beta - mean * rounded)
        if not np.isfinite(weight).all() or not np.isfinite(bias).all():
            return None
        if any(ArrayParameter(values).range_loss(self._dtype) is not None for values in (weight, bias)):
            return None
        if np.any((weight != 0.0) & (np.abs(weight) < self._dtype.smallest_normal)):
            return None  # a subnormal number has fewer bits, and each is all the weights of a channel
        return _Layer(weight.reshape(-1, 1, 1, 1), bias)

    # ------------------------------------------------------------------ the new graph

    def _finish(
        self,
        graph: Graph,
        layers: Mapping[int, _Layer],
        positions: Sequence[int],
        names: Mapping[int, tuple[str, str]],
        after: Graph,
    ) -> None:
        self.positions, self.convolved = positions, frozenset(layers)
        decisions: list[Decision | None] = [None] * len(after.nodes)
        for position, decision in enumerate(self._before.decisions):
            if position in layers:
                assert decision is not None  # a BatchNorm is an operator
                low = self._dtype
                decision = decision._replace(inputs=(low, low, low), outputs=(low,))
            if positions[position] >= 0:
                decisions[positions[position]] = decision
        values: dict[str, Parameter] = {}
        successors: dict[str, str] = {}
        for position, layer in layers.items():
            weight, bias = names[position]
            gamma, beta = (graph.nodes[entry.node].name for entry in graph.nodes[position].inputs[1:3])
            successors.setdefault(gamma, weight)
            successors.setdefault(beta, bias)
            values[weight], values[bias] = ArrayParameter(layer.weight), ArrayParameter(layer.bias)
        remaining = after.variables
        gone = {name for name in graph.variables if name not in remaining}
        self.successors = {old: new for old, new in successors.items() if old in gone}
        self.arg_params = _with_successors(self.arg_params, values, successors, gone)
        self.aux_params = {name: value for name, value in self.aux_params.items() if name not in gone}
        self.plan = replace(
            self._before,
            decisions=decisions,
            variables_before={
                **{name: dtype for name, dtype in self._before.variables_before.items() if name not in gone},
                **dict.fromkeys(values, DType.FLOAT32),
            },
            cast_offline=(self._before.cast_offline - gone) | frozenset(values),
        )


def _rewritten(
    graph: Graph, layers: Mapping[int, _Layer], params: Mapping[str, Parameter]
) -> tuple[Graph, list[int], dict[int, tuple[str, str]]]:
    """Return the graph with Convolutions, where each node is now, and the names of weights and biases."""
    dropped = read_by_norms_alone(graph, layers)
    # A file may hold parameters that the graph does not use; their names are taken too.
    builder = GraphBuilder([*(node.name for node in graph.nodes), *params])
    positions: list[int] = []
    names: dict[int, tuple[str, str]] = {}
    for position, node in enumerate(graph.nodes):
        if position in dropped:
            positions.append(-1)
            continue
        if position in layers:
            source = node.inputs[0]
            channels = layers[position].bias.size
            weight = builder.free_name(f"{node.name}_weight")
            bias = builder.free_name(f"{node.name}_bias")
            names[position] = (weight, bias)
            entries: tuple[Entry, ...] = (
                Entry(positions[source.node], source.output),
                Entry(builder.add(Node(VARIABLE, weight, {"__shape__": f"({channels}, 1, 1, 1)"}))),
                Entry(builder.add(Node(VARIABLE, bias, {"__shape__": f"({channels},)"}))),
            )
            attrs = {
                **{key: value for key, value in node.attrs.items() if key.startswith("__")},
                "kernel": "(1, 1)",
                "num_filter": str(channels),
                "num_group": str(channels),
                "no_bias": "False",
            }
            node = Node("Convolution", node.name, attrs, entries, control_deps=node.control_deps)
        else:
            entries = tuple([Entry(positions[producer], index) for producer, index in node.inputs])
        deps = tuple([positions[dep] for dep in node.control_deps if positions[dep] >= 0])
        positions.append(builder.add(node.reading(entries, deps)))
    heads = [Entry(positions[head.node], head.output) for head in graph.heads]
    return builder.build(heads, graph.attrs, graph.head_versions), positions, names


def _with_successors(
    params: Mapping[str, Parameter],
    values: Mapping[str, Parameter],
    successors: Mapping[str, str],
    gone: AbstractSet[str],
) -> dict[str, Parameter]:
    """Return the parameters without those that are gone, and new ones after those that they stand for."""
    found: dict[str, Parameter] = {}
    for name, parameter in params.items():
        if name not in gone:
            found[name] = parameter
        if name in successors:
            found[successors[name]] = values[successors[name]]
    return {**found, **{name: value for name, value in values.items() if name not in found}}
