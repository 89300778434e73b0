"""Fold BatchNorm into the layer before it, in the parameters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import AbstractSet, Any, Iterable, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.decisions import Decision, Plan
from mxamp.dtypes import DType
from mxamp.graph.builder import GraphBuilder
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node, new_tuple
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.params.cast import float32_rounded_to_odd
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.params.scaled import ScaledParameter
from mxamp.passes.folded_range import overflows_folded, underflows_folded
from mxamp.passes.planned import PlannedPass

__all__ = ["FoldBatchNorm", "FoldedNorms", "read_by_norms_alone"]

_LAYERS = ("Convolution", "Deconvolution", "FullyConnected")
_FIRST_OUTPUT = frozenset({0})
_CHANNEL_AXIS_ONE = frozenset({"None", "NCHW", "NCW", "NCDHW"})


class _Candidate(NamedTuple):
    """A layer and a BatchNorm that the graph lets go into it; the values are not looked at yet."""

    layer: int
    norm: int
    weight: Parameter
    bias: Parameter | None
    statistics: tuple[NDArray[Any], ...]
    """gamma, beta, mean, variance."""
    dtype: DType
    """What both compute in."""


class _Fold(NamedTuple):
    """One layer and the BatchNorm that goes into it."""

    layer: int
    norm: int
    weight: ScaledParameter
    bias: ArrayParameter
    dtype: DType


@dataclass(frozen=True)
class FoldedNorms:
    """What folding did to a graph, without the parameters.

    Attributes
    ----------
    plan
        The plan for the graph after folding.
    positions
        For every node its position after; a folded BatchNorm is at its layer, and a variable that is gone
        at -1.
    layers
        BatchNorm -> the layer that it went into, positions before.
    biases
        Weight -> the bias that the layer got beside it, and its channels.
    convolved
        The BatchNorms that are Convolutions of their own now (:class:`ConvolveBatchNorm`), positions before.
    successors
        A gamma or beta of theirs that is gone -> the weight or bias in its place.
    subnormal
        BatchNorm -> the layer that it did not go into, for the weights would have become subnormal.
    """

    plan: Plan
    positions: Sequence[int]
    layers: Mapping[int, int]
    biases: Mapping[str, tuple[str, int]]
    convolved: AbstractSet[int] = frozenset()
    successors: Mapping[str, str] = field(default_factory=dict)
    subnormal: Mapping[int, int] = field(default_factory=dict)


class FoldBatchNorm(PlannedPass):
    """Fold a BatchNorm that computes low into the low layer before it.

    Before::

        x -> Convolution(w[, b]) -> BatchNorm(gamma, beta, mean, variance) -> y

    After::

        x -> Convolution(w * s, (b - mean) * s + beta) -> y        s = gamma / sqrt(variance + eps)

    Refuses: where the layer is none of ``layers``; where the layer or the BatchNorm stays FP32, unless
    ``float32`` is given and both do; where
    anything but the BatchNorm reads the layer, or the layer is a graph output; where the BatchNorm is a graph
    output (its name would go) or its statistics are read; where the layer's weight or bias has other readers,
    is no parameter, or is not FP32; where the BatchNorm's axis is not the layer's channel axis; where the
    folded weight would leave the dtype's range, or have so many subnormal values that it would be less
    precise than the layer and the BatchNorm are (:mod:`mxamp.passes.folded_range`).

    Parameters
    ----------
    plan
        The decisions for the graph the pass will run on.
    arg_params, aux_params
        Its parameters.
    dtype
        The low dtype.
    layers
        The operators to fold into.
    float32
        Whether a BatchNorm that computes in float32 is folded into a float32 layer as well, for a model
        without low precision. MXNet's fusion does so by itself (rightly, in float32), but not in every layer.

    Notes
    -----
    Why: MXNet 1.9.1's fused BF16 Convolution+BatchNorm scales the BF16 weights by truncation, a systematic
    shrink of half an ulp a layer (measured: bias -0.4 to -0.6 ulp, twice the error of the unfused pair);
    folded here, from the FP32 weights, each is rounded once. On GPUs it saves the BatchNorm.

    Numerical effect: scale and shift in float64; the product is rounded once to the low dtype (see
    :class:`mxamp.params.scaled.ScaledParameter`), and so is the shift, which BatchNorm had in FP32.

    Linear in nodes and parameters.

    References
    ----------
    Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only
    inference", 2018, section 3.2.
    """

    def __init__(
        self,
        plan: Plan,
        arg_params: Mapping[str, Parameter],
        aux_params: Mapping[str, Parameter],
        dtype: DType,
        *,
        layers: Sequence[str] = _LAYERS,
        float32: bool = False,
    ) -> None:
        super().__init__(plan, arg_params, aux_params, dtype)
        self._dtypes = (dtype, DType.FLOAT32) if float32 else (dtype,)
        self._layers = frozenset(layers)
        self.folded: Mapping[int, int] = {}
        """BatchNorm -> layer, positions before. Set by :meth:`run`."""
        self.subnormal: dict[int, int] = {}
        """BatchNorm -> layer whose weights would become subnormal, positions before. Set by :meth:`run`."""
        self.biases: Mapping[str, str] = {}
        """New bias -> the weight beside it. Set by :meth:`run`."""

    def run(self, graph: Graph) -> Graph:
        """Return the graph without the BatchNorms that could be folded; they are then at their layers."""
        self.positions = range(len(graph.nodes))
        heads = frozenset(head.node for head in graph.heads)
        candidates = []
        for position, node in enumerate(graph.nodes):
            if node.op == "BatchNorm":
                candidate = self._candidate(graph, heads, position, node)
                if candidate is not None:
                    candidates.append(candidate)
        folds = self._folds(graph, candidates)
        if not folds:
            return graph
        return self._rewrite(graph, folds)

    def folded_norms(self) -> FoldedNorms:
        """Return what :meth:`run` did."""
        biases = {weight: (bias, self.arg_params[bias].shape[0]) for bias, weight in self.biases.items()}
        positions = self.positions or range(len(self.plan.decisions))  # the pass may not have run
        return FoldedNorms(self.plan, positions, self.folded, biases, subnormal=self.subnormal)

    # ------------------------------------------------------------------ what can be folded

    def _candidate(self, graph: Graph, heads: frozenset[int], position: int, node: Node) -> _Candidate | None:
        if len(node.inputs) != 5:
            return None
        layer_position = node.inputs[0].node
        layer = graph.nodes[layer_position]
        op = FACTS.canonical(layer.op)
        if op not in self._layers or len(layer.inputs) < 2:
            return None
        dtype = self._shared_dtype(layer_position, position)
        if dtype is None:
            return None
        if layer_position in heads or position in heads or not _FIRST_OUTPUT.issuperset(graph.uses[position]):
            return None
        if len(graph.uses[layer_position]) != 1 or len(graph.uses_of(node.inputs[0])) != 1:
            return None
        if not _channel_axes_agree(op, layer, node):
            return None
        weight = self._own_parameter(graph, layer.inputs[1])
        bias = self._own_parameter(graph, layer.inputs[2]) if len(layer.inputs) > 2 else None
        if weight is None or (len(layer.inputs) > 2 and bias is None):
            return None
        statistics: list[NDArray[Any]] = []
        for entry in node.inputs[1:]:
            values = self._values(graph, entry)
            if values is None or values.ndim != 1 or (statistics and len(values) != len(statistics[0])):
                return None
            statistics.append(values)
        if bias is not None and bias.shape != statistics[0].shape:
            return None
        return _Candidate(layer_position, position, weight, bias, tuple(statistics), dtype)

    def _folds(self, graph: Graph, candidates: Sequence[_Candidate]) -> dict[int, _Fold]:
        """Return what the values allow, layer by layer. All channels are computed in one go."""
        if not candidates:
            return {}
        gamma, beta, mean, variance = (
            np.concatenate(arrays, dtype=np.float64, casting="unsafe")
            for arrays in zip(*(candidate.statistics for candidate in candidates))
        )
        sizes = [len(candidate.statistics[0]) for candidate in candidates]
        norms = [graph.nodes[candidate.norm] for candidate in candidates]
        is_fixed = [is_true(norm.attrs, "fix_gamma", default=True) for norm in norms]
        if any(is_fixed):
            gamma[np.repeat(is_fixed, sizes)] = 1.0
        epsilons = [float(norm.attrs.get("eps", "0.001")) for norm in norms]
        epsilon: Any = epsilons[0] if len(set(epsilons)) == 1 else np.repeat(epsilons, sizes)
        bias: Any = 0.0
        if any(candidate.bias is not None for candidate in candidates):
            bias = np.concatenate(
                [
                    np.zeros(size) if candidate.bias is None else candidate.bias.values()
                    for candidate, size in zip(candidates, sizes)
                ]
            )
        with np.errstate(all="ignore"):
            scale = gamma / np.sqrt(variance + epsilon)
            exact_shift = bias * scale + (beta - mean * scale)
            shift = float32_rounded_to_odd(exact_shift)
        magnitudes = np.abs(shift)
        # Where no shift at all is near the ends of the range there is nothing to look at one by one.
        in_range = (magnitudes < self._dtype.max_finite) & (
            (magnitudes > self._dtype.smallest_subnormal) | (magnitudes == 0.0)
        )
        all_in_range = bool(in_range.all())
        folds = {}
        end = 0
        for candidate, size in zip(candidates, sizes):
            channels = slice(end, end + size)
            end += size
            layer, weight = graph.nodes[candidate.layer], candidate.weight
            shifted = ArrayParameter(shift[channels])
            if candidate.dtype is DType.FLOAT32:  # rounded once, and not again
                shifted = ArrayParameter(exact_shift[channels].astype(np.float32))
            if not all_in_range and shifted.range_loss(candidate.dtype) is not None:
                continue
            if overflows_folded(weight, scale[channels], candidate.dtype):
                continue
            op = FACTS.canonical(layer.op)
            factors = _broadcast_factors(op, layer, weight.shape, scale[channels])
            if factors is not None:
                groups = int(layer.attrs.get("num_group", "1")) if op == "Deconvolution" else None
                with np.errstate(all="ignore"):
                    of_layer = np.sqrt(variance[channels] + (mean - bias)[channels] ** 2)
                    of_norm = np.hypot(scale[channels] * np.sqrt(variance[channels]), beta[channels])
                if underflows_folded(
                    weight,
                    groups,
                    scale[channels],
                    candidate.dtype,
                    of_layer=of_layer,
                    of_norm=of_norm,
                ):
                    self.subnormal[candidate.norm] = candidate.layer
                    continue
                scaled = ScaledParameter(weight, factors)
                folds[candidate.layer] = _Fold(
                    candidate.layer, candidate.norm, scaled, shifted, candidate.dtype
                )
        return folds

    def _shared_dtype(self, layer: int, norm: int) -> DType | None:
        """Return the dtype, of those that are folded in, that both compute in and hand on."""
        of_layer, of_norm = self._before.decisions[layer], self._before.decisions[norm]
        if of_layer is None or of_norm is None or of_layer.compute is not of_norm.compute:
            return None
        dtype = of_layer.compute
        handed_on = dtype in of_layer.outputs and dtype in of_norm.outputs
        return dtype if dtype in self._dtypes and handed_on else None

    def _own_parameter(self, graph: Graph, entry: Entry) -> Parameter | None:
        """Return the FP32 parameter an entry is, when nothing else reads it and it may be cast offline."""
        node = graph.nodes[entry.node]
        if node.op != VARIABLE or node.name not in self._before.cast_offline:
            return None
        parameter = self._params[node.name]
        alone = len(graph.uses_of(entry)) == 1 and entry not in graph.heads
        return parameter if alone and parameter.dtype is DType.FLOAT32 else None

    def _values(self, graph: Graph, entry: Entry) -> NDArray[Any] | None:
        node = graph.nodes[entry.node]
        parameter = self._params.get(node.name) if node.op == VARIABLE else None
        if parameter is None or not parameter.dtype.is_float:
            return None
        return parameter.values()

    # ------------------------------------------------------------------ the new graph

    def _rewrite(self, graph: Graph, folds: Mapping[int, _Fold]) -> Graph:
        norms = {fold.norm: fold.layer for fold in folds.values()}
        dropped = read_by_norms_alone(graph, norms)
        # A file may hold parameters that the graph does not use; their names are taken too.
        builder = GraphBuilder([*(node.name for node in graph.nodes), *self._params])
        positions: list[int] = []
        decisions: list[Decision | None] = []
        new_bias: dict[str, ArrayParameter] = {}
        new_weight: dict[str, ScaledParameter] = {}
        biases: dict[str, str] = {}
        for position, (node, decision) in enumerate(zip(graph.nodes, self._before.decisions)):
            if position in norms:
                positions.append(positions[norms[position]])  # whoever read it reads the layer now
                continue
            if position in dropped:
                positions.append(-1)  # nobody reads it any more
                continue
            if node.op == VARIABLE and not node.control_deps:
                positions.append(builder.add(node))
                decisions.append(decision)
                continue
            inputs = tuple(
                [new_tuple(Entry, (positions[producer], index)) for producer, index in node.inputs]
            )
            fold = folds.get(position)
            if fold is not None:
                assert decision is not None  # a layer is an operator
                weight = graph.nodes[node.inputs[1].node].name
                new_weight[weight] = fold.weight
                if len(inputs) > 2:
                    bias = graph.nodes[node.inputs[2].node].name
                else:
                    bias = builder.free_name(_bias_name(weight, node.name))
                    shape = f"({fold.bias.shape[0]},)"
                    inputs = (*inputs, Entry(builder.add(Node(VARIABLE, bias, {"__shape__": shape}))))
                    decisions.append(None)
                    node = node._replace(attrs={**node.attrs, "no_bias": "False"})
                    biases[bias] = weight
                new_bias[bias] = fold.bias
                after = self._before.decisions[fold.norm]
                assert after is not None  # a BatchNorm is an operator
                decision = decision._replace(
                    inputs=(*decision.inputs[:2], fold.dtype), outputs=after.outputs[:1]
                )
            deps = node.control_deps and tuple(
                [positions[dep] for dep in node.control_deps if positions[dep] >= 0]
            )
            moved = node.reading(inputs, deps)
            if node.input_versions and len(node.input_versions) != len(inputs):
                moved = moved._replace(input_versions=())
            positions.append(builder.add(moved))
            decisions.append(decision)
        heads = [Entry(positions[head.node], head.output) for head in graph.heads]
        gone = {graph.nodes[position].name for position in dropped}
        self.positions, self.folded, self.biases = positions, norms, biases
        self._replace_params(new_weight, new_bias, biases, gone)
        self.plan = replace(
            self._before,
            decisions=decisions,
            variables_before={
                **{name: dtype for name, dtype in self._before.variables_before.items() if name not in gone},
                **dict.fromkeys(biases, DType.FLOAT32),
            },
            cast_offline=(self._before.cast_offline - gone) | frozenset(biases),
        )
        return builder.build(heads, graph.attrs, graph.head_versions)

    def _replace_params(
        self,
        weights: Mapping[str, ScaledParameter],
        shifts: Mapping[str, ArrayParameter],
        biases: Mapping[str, str],
        gone: set[str],
    ) -> None:
        beside = {weight: bias for bias, weight in biases.items()}
        args: dict[str, Parameter] = {}
        for name, parameter in self.arg_params.items():
            if name in gone:
                continue
            replaced: Any = weights.get(name) or shifts.get(name) or parameter
            args[name] = replaced
            if name in beside:
                args[beside[name]] = shifts[beside[name]]
        self.arg_params = args
        self.aux_params = {name: value for name, value in self.aux_params.items() if name not in gone}


def _channel_axes_agree(op: str, layer: Node, norm: Node) -> bool:
    if norm.attrs.get("axis", "1") != "1":
        return False
    if op == "FullyConnected":
        return is_true(layer.attrs, "flatten", default=True)
    return layer.attrs.get("layout", "None") in _CHANNEL_AXIS_ONE


def _broadcast_factors(
    op: str, layer: Node, shape: tuple[int, ...], scale: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Return one factor an output channel, shaped to multiply the weight; None where sizes do not fit.

    A Convolution's weight is (out, in / groups, kernel), FullyConnected's (out, in), a Deconvolution's
    (in, out / groups, kernel), its input channels grouped one group after the other.
    """
    if op != "Deconvolution":
        if shape[0] != scale.size:
            return None
        return scale.reshape(-1, *(1,) * (len(shape) - 1))
    groups = int(layer.attrs.get("num_group", "1"))
    if shape[1] * groups != scale.size or shape[0] % groups:
        return None
    by_group = np.repeat(scale.reshape(groups, -1), shape[0] // groups, axis=0)
    return by_group.reshape(shape[0], shape[1], *(1,) * (len(shape) - 2))


def _bias_name(weight: str, layer: str) -> str:
    return f"{weight[: -len('_weight')]}_bias" if weight.endswith("_weight") else f"{layer}_bias"


def read_by_norms_alone(graph: Graph, norms: Iterable[int]) -> set[int]:
    """Return the variables that nothing but these BatchNorms reads, and that are no graph outputs."""
    norms = frozenset(norms)
    read_by_norms = {entry.node for position in norms for entry in graph.nodes[position].inputs[1:]}
    heads = {head.node for head in graph.heads}
    return {
        position
        for position in read_by_norms
        if position not in heads
        and all(use.node in norms for places in graph.uses[position].values() for use in places)
    }
