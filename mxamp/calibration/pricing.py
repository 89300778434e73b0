"""What every rounding of a model costs in accuracy, by one backward pass.

A rounding changes an entry by e, and the outputs by J e to first order, where J is how they answer to that
entry. With a cotangent r of random signs, r . (J e) = (J^T r) . e, and the mean of its square over r is the
squared length of J e: so one backward pass, which gives J^T r at every entry, prices all roundings at once.
Errors of different roundings are as good as independent, so that the squared error of a plan is the sum of
the prices of what it rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.calibration.pass_memory import PassMemory
from mxamp.calibration.priced_heads import priced_heads
from mxamp.calibration.prices import LABELS, Prices
from mxamp.calibration.record import EntryName
from mxamp.calibration.samples import Samples
from mxamp.calibration.subject import any_model, observed_entries
from mxamp.compare.checked import checked_progress, checked_seed
from mxamp.compare.inputs import counted, input_names
from mxamp.dtypes import DType
from mxamp.errors import DataError
from mxamp.graph.graph import Entry, Graph
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.model import Model
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.params.cast import cast_array
from mxamp.params.parameter import Parameter

DRAWS = 4
"""Cotangents a batch. A price is a mean of squares: its relative error is the root of 2 over the number of
cotangents times samples."""

Progress = Callable[[int, "int | None"], None]


def price_roundings(
    model: Any,
    data: Any,
    *,
    draws: int = DRAWS,
    max_samples: int | None = None,
    batch_size: int | None = None,
    memory: int | None = None,
    seed: int = 0,
    ctx: Any = None,
    progress: Progress | None = None,
) -> Prices:
    """Price every rounding that a conversion could make.

    Parameters
    ----------
    model, data, ctx, progress
        As for :func:`mxamp.calibrate`.
    draws
        Random cotangents for every batch.
    max_samples
        Use only so many samples, the first ones.
    batch_size
        Samples a pass; by default up to four, as long as a pass takes less than 3 GiB.
    memory
        The most bytes that a pass may take; by default those that are available.
    seed
        Of the cotangents.

    Returns
    -------
    Prices
        For bfloat16 and float16.

    Raises
    ------
    DataError
        When model and data do not fit together, or nothing in the model has a gradient.
    MemoryBoundError
        When a pass does not fit into memory.
    OperatorError
        When MXNet cannot run it.
    """
    model = any_model(model)
    draws, seed = counted(draws, "draws"), checked_seed(seed)
    if memory is not None:
        memory = counted(memory, "memory")
    if batch_size is not None:
        batch_size = counted(batch_size, "The batch size")
    progress = checked_progress(progress)
    samples = Samples(model, data, batch_size=batch_size, max_samples=max_samples)
    meter = PriceMeter(model, draws, seed, ctx, memory=memory)
    done = 0
    for batch in samples.batches():
        for part in batch.parts(meter.samples_a_pass(batch.arrays, batch_size)):
            meter.see(part.arrays, part.samples)
            done += part.samples
            if progress is not None:
                progress(done, samples.total)
    return meter.prices(done)


def rounding_error(values: NDArray[np.float32], dtype: DType) -> NDArray[np.float32]:
    """Return what rounding to a dtype adds; 0 for what it makes infinite, which ranges decide."""
    with np.errstate(all="ignore"):
        error = cast_array(cast_array(values, dtype), DType.FLOAT32) - values
    return np.where(np.isfinite(error), error, np.float32(0))


class PriceMeter:
    """Adds up the prices over batches.

    Parameters
    ----------
    model
        The model.
    draws
        Cotangents a batch.
    seed
        Of the cotangents.
    ctx
        Where to run.
    memory
        The most bytes that a pass may take; by default those that are available.

    Raises
    ------
    DataError
        When nothing in the model has a gradient.
    MemoryBoundError
        When the parameters alone take more memory than a pass may.
    """

    def __init__(self, model: Model, draws: int, seed: int, ctx: Any, *, memory: int | None = None) -> None:
        from mxamp.runtime.gradients import GradientReader

        graph = model.graph
        self._memory = PassMemory(model, memory)
        params = {**model.arg_params, **model.aux_params}
        self._graph, self._draws, self._random = graph, draws, np.random.default_rng(seed)
        self._heads = priced_heads(graph)
        if not self._heads:
            raise DataError(
                "No output of the model has a gradient, nor has what is ranked on the way to them, so its "
                "roundings cannot be priced."
            )
        before = _before(graph, self._heads)
        dtypes = infer_dtypes(graph, variable_dtypes(graph, {n: p.dtype for n, p in params.items()}))
        inputs = [
            Entry(graph.variables[name])
            for name in input_names(model)
            if graph.uses[graph.variables[name]] and dtypes[graph.variables[name]][0] is DType.FLOAT32
        ]
        wanted = [*inputs, *observed_entries(model)]
        self._entries = [
            entry
            for entry in wanted
            if self._leads(entry, before) and dtypes[entry.node][entry.output] is DType.FLOAT32
        ]
        self._unpriced = {
            EntryName.of(graph, entry): "no output that has a gradient depends on it"
            for entry in wanted
            if not self._leads(entry, before)
        }
        self._model = model
        self._weights = _parameter_errors(graph, params, before)
        self._stored = {name: np.asarray(params[name].numpy(), np.float32) for name in self._weights}
        self._reader = GradientReader(model, self._entries, list(self._weights), self._heads, ctx=ctx)
        self._of_entries = {label: np.zeros(len(self._entries)) for label in LABELS}
        self._of_weights = {label: dict.fromkeys(self._weights, 0.0) for label in LABELS}
        self._together = dict.fromkeys(LABELS, 0.0)
        self._passes = 0.0

    def _leads(self, entry: Entry, before: frozenset[int]) -> bool:
        """Whether a priced head depends on an entry; of a node with several some may lead nowhere."""
        return entry in self._heads or any(use.node in before for use in self._graph.uses_of(entry))

    def samples_a_pass(self, arrays: Mapping[str, NDArray[Any]], wanted: int | None = None) -> int:
        """Return how many samples to take at a time.

        Parameters
        ----------
        arrays
            A batch.
        wanted
            How many the user wants.

        Raises
        ------
        MemoryBoundError
            When they do not fit.
        """
        shapes = {name: values.shape for name, values in arrays.items()}
        return self._memory.samples(shapes, self._entries, wanted)

    def see(self, arrays: Mapping[str, NDArray[Any]], samples: int) -> None:
        """Price on one batch."""
        for draw in range(self._draws):
            heads, values = self._reader.forward(arrays)
            if draw == 0:
                errors = {
                    label: [rounding_error(value, DType.parse(label)) for value in values] for label in LABELS
                }
                scales = [1 / max(float(np.linalg.norm(head.astype(np.float64))), 1e-30) for head in heads]
            del values
            found = self._reader.backward(
                [
                    (self._random.integers(0, 2, head.shape) * 2 - 1).astype(np.float32) * np.float32(scale)
                    for head, scale in zip(heads, scales)
                ]
            )
            for label in LABELS:
                for number, (gradient, error) in enumerate(zip(found.entries, errors[label])):
                    self._of_entries[label][number] += samples * _squared(gradient, error, samples)
                for name, gradient in found.parameters.items():
                    effect = float(np.vdot(gradient.astype(np.float64), self._weights[name][label]))
                    self._of_weights[label][name] += samples * effect**2
            if draw == 0:
                exact = heads
        for label in LABELS:
            self._together[label] += samples * self._draws * self._of_all_weights(arrays, exact, label)
        self._passes += samples * self._draws

    def _of_all_weights(
        self, arrays: Mapping[str, NDArray[Any]], exact: Sequence[NDArray[np.float32]], label: str
    ) -> float:
        """Return the squared relative errors of the heads, added up, with all parameters rounded.

        A gradient of parameters is one number a pass, since it is summed over its samples: a handful of them
        would tell the square of what all parameters do together no better than to a factor of two.
        """
        if not self._weights:
            return 0.0
        rounded = {name: self._stored[name] + error[label] for name, error in self._weights.items()}
        found = self._reader.heads_with(arrays, rounded)
        return sum(
            float(np.linalg.norm((own - head).astype(np.float64))) ** 2
            / max(float(np.linalg.norm(head.astype(np.float64))), 1e-30) ** 2
            for own, head in zip(found, exact)
        )

    def prices(self, samples: int) -> Prices:
        """Return what was seen."""
        count = self._passes * len(self._heads)
        names = [EntryName.of(self._graph, entry) for entry in self._entries]
        entries = {label: _by_name(names, self._of_entries[label] / count) for label in LABELS}
        weights = {label: {n: p / count for n, p in self._of_weights[label].items()} for label in LABELS}
        infinite = [name for name in names if not all(math.isfinite(entries[x][name]) for x in LABELS)]
        return Prices(
            {
                label: {n: float(p) for n, p in own.items() if n not in infinite}
                for label, own in entries.items()
            },
            {label: {n: p for n, p in own.items() if math.isfinite(p)} for label, own in weights.items()},
            tuple(EntryName.of(self._graph, head) for head in self._heads),
            samples,
            self._draws,
            {**self._unpriced, **dict.fromkeys(infinite, "its gradient is not finite")},
            {label: p / count for label, p in self._together.items() if math.isfinite(p)},
        )


def _by_name(names: Sequence[EntryName], prices: NDArray[np.float64]) -> dict[EntryName, float]:
    """Return a price for each name: where nodes share one the mean, so that together they have their sum."""
    found: dict[EntryName, list[float]] = {}
    for name, price in zip(names, prices.tolist()):
        found.setdefault(name, []).append(price)
    return {name: sum(own) / len(own) for name, own in found.items()}


def _squared(gradient: NDArray[np.float32], error: NDArray[np.float32], samples: int) -> float:
    """Return the square of (gradient . error), sample by sample where the first axis is that of samples."""
    if gradient.ndim > 1 and len(gradient) == samples > 1:
        own = np.einsum("ij,ij->i", gradient.reshape(samples, -1), error.reshape(samples, -1))
        return float(np.sum(own.astype(np.float64) ** 2))
    return float(np.vdot(gradient, error)) ** 2


def _before(graph: Graph, heads: Sequence[Entry]) -> frozenset[int]:
    """Return the nodes that lead to some entries, with those that make them."""
    found = {head.node for head in heads}
    for position in range(len(graph.nodes) - 1, -1, -1):
        if position in found:
            found.update(entry.node for entry in graph.nodes[position].inputs)
    return frozenset(found)


# ---------------------------------------------------------------------- parameters

_READS_PARAMETERS = frozenset(
    {"Convolution", "Deconvolution", "FullyConnected", "dot", "batch_dot", "Embedding", "RNN"}
)


def _parameter_errors(
    graph: Graph, params: Mapping[str, Parameter], before: frozenset[int]
) -> dict[str, Mapping[str, NDArray[np.float32]]]:
    """Return for the parameters that are stored low what rounding adds to each, in its own scale."""
    found: dict[str, Mapping[str, NDArray[np.float32]]] = {}
    for position, node in enumerate(graph.nodes):
        if position not in before or node.is_variable:
            continue
        op = FACTS.canonical(node.op)
        folded = _folded(graph, position, params) if op in ("Convolution", "FullyConnected") else None
        names = [graph.nodes[entry.node].name for entry in node.inputs if graph.nodes[entry.node].is_variable]
        if op not in _READS_PARAMETERS:
            facts = FACTS.of(node.op, node.attrs)
            roles = () if facts is None else facts.all_roles(len(node.inputs), node.attrs)
            names = [
                graph.nodes[entry.node].name
                for entry, role in zip(node.inputs, roles)
                if graph.nodes[entry.node].is_variable and role.value == "data"
            ]
        for name in names:
            if name not in params or name in found or params[name].is_sparse:
                continue
            if params[name].dtype is not DType.FLOAT32:
                continue
            values = np.asarray(params[name].numpy(), np.float32)
            scale: NDArray[np.float32] = np.ones(1, np.float32)
            if folded is not None and values.ndim > 1:
                scale = folded.scale.reshape(-1, *[1] * (values.ndim - 1))
            elif folded is not None:
                continue  # the bias goes into that of the fold
            found[name] = {
                label: rounding_error(values * scale, DType.parse(label)) / scale for label in LABELS
            }
        if folded is not None:
            found[folded.beta] = {label: rounding_error(folded.bias, DType.parse(label)) for label in LABELS}
    return found


@dataclass(frozen=True)
class _Fold:
    """What a BatchNorm behind a layer does to its weight and bias."""

    scale: NDArray[np.float32]
    bias: NDArray[np.float32]
    beta: str


def _folded(graph: Graph, position: int, params: Mapping[str, Parameter]) -> _Fold | None:
    """Return what folding makes of a layer; None where no BatchNorm reads it alone."""
    uses = graph.uses_of(Entry(position))
    if len(uses) != 1 or uses[0].input != 0 or Entry(position) in graph.heads:
        return None
    norm, layer = graph.nodes[uses[0].node], graph.nodes[position]
    if norm.op != "BatchNorm" or norm.attrs.get("axis", "1") != "1":
        return None
    if layer.op == "FullyConnected" and not is_true(layer.attrs, "flatten", default=True):
        return None  # its units may be another axis, and folding leaves it alone
    names = [graph.nodes[entry.node].name for entry in norm.inputs[1:]]
    if any(name not in params for name in names):
        return None
    gamma, beta, mean, variance = (np.asarray(params[name].numpy(), np.float64) for name in names)
    if norm.attrs.get("fix_gamma", "True") in ("True", "1", "true"):
        gamma = np.ones_like(gamma)
    scale = gamma / np.sqrt(variance + float(norm.attrs.get("eps", "1e-3")))
    bias = beta - mean * scale
    if len(layer.inputs) > 2:
        own = params.get(graph.nodes[layer.inputs[2].node].name)
        bias = bias if own is None else bias + np.asarray(own.numpy(), np.float64) * scale
    safe = np.where(scale == 0, 1, scale)
    return _Fold(safe.astype(np.float32), bias.astype(np.float32), names[1])
