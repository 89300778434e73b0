"""Fold BatchNorm into the layer before it, in the parameters."""

from __future__ import annotations

from typing import Any, Collection, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.decisions import Decision
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.ops.casts import CAST_OPERATORS
from mxamp.ops.parameters import LAYERS
from mxamp.params.cast import float32_rounded_to_odd
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.params.scaled import ScaledParameter
from mxamp.passes.edit import Edited, GraphEdit
from mxamp.passes.folded_range import overflows_folded, underflows_folded
from mxamp.passes.planned import PlannedPass
from mxamp.passes.records import PlannedNode
from mxamp.passes.state import Done, State
from mxamp.targets import folded_patterns, fuses_batch_norm

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


class FoldBatchNorm(PlannedPass):
    """Fold a BatchNorm into the layer before it, of those that compute low or in a model that is FP32.

    Before::

        x -> Convolution(w[, b]) -> BatchNorm(gamma, beta, mean, variance) -> y

    After::

        x -> Convolution(w * s, (b - mean) * s + beta) -> y        s = gamma / sqrt(variance + eps)

    Refuses: where the layer is none of ``layers``; where one of the two stays FP32 and the other does not;
    where both do, by a rule of the user's that picks one of them, or in a model of which anything is low and
    where the backend fuses them by itself or none at all, unless ``float32`` is given; where anything but the
    BatchNorm reads the layer, or the layer is a graph output; where the BatchNorm is a graph output (its name
    would go), or in FP32 what a cast makes one of, or its statistics are read; where the layer's weight or
    bias has other readers, is no parameter, or is not FP32; where the BatchNorm's axis is not the layer's
    channel axis; where the folded weight would leave the dtype's range, or have so many subnormal values that
    it would be less precise than the layer and the BatchNorm are (:mod:`mxamp.passes.folded_range`).

    Parameters
    ----------
    layers
        The operators to fold into.
    float32
        Whether a BatchNorm that computes in FP32 is folded into an FP32 layer beside low ones, too. In a
        model without low precision it always is. MXNet's fusion does so by itself (rightly, in FP32), but not
        for every layer: not for those of sequences, which are folded into beside low ones as well.

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

    step = "fold_batch_norm"

    def __init__(self, layers: Collection[str] = LAYERS, *, float32: bool = False) -> None:
        self._layers = frozenset(layers)
        self._float32 = float32

    def run(self, state: State) -> Done | None:
        """Return the graph without the BatchNorms that could be folded; their layers have their values."""
        graph = state.graph
        heads = frozenset(head.node for head in graph.heads)
        behind_casts = frozenset(
            entry.node
            for head in heads
            if FACTS.canonical(graph.nodes[head].op) in CAST_OPERATORS
            for entry in graph.nodes[head].inputs
        )
        candidates = [
            candidate
            for position, node in enumerate(graph.nodes)
            if node.op == "BatchNorm"
            for candidate in [self._candidate(state, heads, position, node)]
            if candidate is not None
            # It was a graph output itself before outputs were cast, and is to stay as it was then.
            and not (candidate.dtype is DType.FLOAT32 and position in behind_casts)
        ]
        if not candidates:
            return None
        folds, subnormal = _folds(state, candidates)
        records = [
            *[self._folded(state, fold) for fold in folds],
            *[self._left(state, candidate) for candidate in subnormal],
        ]
        return (
            Done(self._edited(state, folds), tuple(records), self._decisions(state, folds))
            if records
            else None
        )

    def _folded(self, state: State, fold: _Fold) -> PlannedNode:
        layer = state.graph.nodes[fold.layer].name
        reason = f"folded into the weights of {layer!r}, each rounded once; it costs nothing any more"
        return self.changed(state, fold.norm, reason, is_gone=True)

    def _left(self, state: State, candidate: _Candidate) -> PlannedNode:
        layer = state.graph.nodes[candidate.layer].name
        reason = f"not folded into {layer!r}, whose weights would become subnormal"
        return self.changed(state, candidate.norm, reason)

    # ------------------------------------------------------------------ what can be folded

    def _candidate(self, state: State, heads: frozenset[int], position: int, node: Node) -> _Candidate | None:
        graph = state.graph
        if len(node.inputs) != 5:
            return None
        layer_position = node.inputs[0].node
        layer = graph.nodes[layer_position]
        op = FACTS.canonical(layer.op)
        if op not in self._layers or len(layer.inputs) < 2:
            return None
        dtype = self._shared_dtype(state, layer_position, position)
        if dtype is None:
            return None
        if layer_position in heads or position in heads or not _FIRST_OUTPUT.issuperset(graph.uses[position]):
            return None
        if len(graph.uses[layer_position]) != 1 or len(graph.uses_of(node.inputs[0])) != 1:
            return None
        if not _channel_axes_agree(op, layer, node):
            return None
        weight = self._own_parameter(state, layer.inputs[1], dtype)
        bias = self._own_parameter(state, layer.inputs[2], dtype) if len(layer.inputs) > 2 else None
        if weight is None or (len(layer.inputs) > 2 and bias is None):
            return None
        statistics: list[NDArray[Any]] = []
        for entry in node.inputs[1:]:
            values = _values(state, entry)
            if values is None or values.ndim != 1 or (statistics and len(values) != len(statistics[0])):
                return None
            statistics.append(values)
        if bias is not None and bias.shape != statistics[0].shape:
            return None
        return _Candidate(layer_position, position, weight, bias, tuple(statistics), dtype)

    def _shared_dtype(self, state: State, layer: int, norm: int) -> DType | None:
        """Return the dtype, of those that are folded in, that both compute in and hand on."""
        decisions = self.plan(state).decisions
        of_layer, of_norm = decisions[layer], decisions[norm]
        if of_layer is None or of_norm is None or of_layer.compute is not of_norm.compute:
            return None
        dtype = of_layer.compute
        handed_on = dtype in of_layer.outputs and dtype in of_norm.outputs
        is_folded = dtype is state.policy.target_dtype or (
            dtype is DType.FLOAT32
            and (
                self._float32
                or (
                    (self.plan(state).is_float32 or _is_left_to_us(state, layer))
                    and not _is_users(state, layer, norm)
                )
            )
        )
        return dtype if is_folded and handed_on else None

    def _own_parameter(self, state: State, entry: Entry, dtype: DType) -> Parameter | None:
        """Return the FP32 parameter an entry is, when nothing else reads it and it may become a dtype."""
        name = state.graph.nodes[entry.node].name
        if dtype is not DType.FLOAT32 and name not in self.plan(state).cast_offline:
            return None
        return state.own_parameter(entry)

    # ------------------------------------------------------------------ the new graph

    def _edited(self, state: State, folds: Sequence[_Fold]) -> Edited | None:
        graph, edit = state.graph, GraphEdit(state.graph, state.params)
        for fold in sorted(folds):
            layer = graph.nodes[fold.layer]
            weight = graph.nodes[layer.inputs[1].node].name
            edit.change_parameter(layer.inputs[1].node, fold.weight)
            if len(layer.inputs) > 2:
                edit.change_parameter(layer.inputs[2].node, fold.bias)
            else:
                name = _bias_name(weight, layer.name)
                bias = edit.add_parameter(name, fold.bias, [weight], before=fold.layer)
                attrs = {**layer.attrs, "no_bias": "False"}
                edit.replace(fold.layer, layer._replace(attrs=attrs, inputs=(*layer.inputs, bias)))
            edit.merge(fold.norm, into=fold.layer)
        return edit.finish() if folds else None

    def _decisions(self, state: State, folds: Sequence[_Fold]) -> Mapping[int, Decision]:
        """Return the decisions for the layers, which hand on what the BatchNorms did."""
        decisions, found = self.plan(state).decisions, {}
        for fold in folds:
            layer, norm = decisions[fold.layer], decisions[fold.norm]
            assert layer is not None  # a layer is an operator, and so is a BatchNorm
            assert norm is not None
            inputs = (*layer.inputs[:2], fold.dtype)
            found[fold.layer] = layer._replace(inputs=inputs, outputs=norm.outputs[:1])
        return found


def _is_left_to_us(state: State, layer: int) -> bool:
    """Return whether the backend fuses a BatchNorm with layers, and not with this one, as of sequences."""
    node, target = state.graph.nodes[layer], state.target
    return bool(folded_patterns(target)) and not fuses_batch_norm(
        target, FACTS.canonical(node.op), node.attrs
    )


def _is_users(state: State, *positions: int) -> bool:
    """Return whether a rule of the user's, or anything else, says that one of the nodes stays as it is."""
    return any(state.is_fixed(position, updating=False) for position in positions)


def _folds(state: State, candidates: Sequence[_Candidate]) -> tuple[Sequence[_Fold], Sequence[_Candidate]]:
    """Return what the values allow, and where a weight would become subnormal; all channels in one go."""
    graph, low = state.graph, state.policy.target_dtype
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
    in_range = (magnitudes < low.max_finite) & ((magnitudes > low.smallest_subnormal) | (magnitudes == 0.0))
    all_in_range = bool(in_range.all())
    folds, subnormal = [], []
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
                subnormal.append(candidate)
                continue
            scaled = ScaledParameter(weight, factors)
            folds.append(_Fold(candidate.layer, candidate.norm, scaled, shifted, candidate.dtype))
    return folds, subnormal


def _values(state: State, entry: Entry) -> NDArray[Any] | None:
    parameter = state.parameter(entry)
    return parameter.values() if parameter is not None and parameter.dtype.is_float else None


def _channel_axes_agree(op: str, layer: Node, norm: Node) -> bool:
    axis = norm.attrs.get("axis", "1")
    if op == "FullyConnected":  # what is flattened has two axes
        return axis == "-1" or (axis == "1" and is_true(layer.attrs, "flatten", default=True))
    return axis == "1" and layer.attrs.get("layout", "None") in _CHANNEL_AXIS_ONE


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
