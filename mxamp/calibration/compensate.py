"""Give the parameters of a conversion the rounding that changes least what its layers compute."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.calibration.calibration import Calibration
from mxamp.calibration.layers import LAYERS, Layer, as_matrices, from_matrices, layer_of
from mxamp.calibration.moments import Moments
from mxamp.calibration.rounding import DAMPING, Rounded, correct_bias, round_for_output
from mxamp.dtypes import DType
from mxamp.errors import PolicyError
from mxamp.graph.graph import Entry, Graph
from mxamp.ops import FACTS
from mxamp.params.parameter import ArrayParameter, DerivedParameter, Parameter
from mxamp.report.compensation import CompensatedLayer, CompensationReport

FULL, MEAN = "full", "mean"

Progress = Callable[[str, int, int], None]
"""Called with the layer that is being compensated, how many were before it, and how many there are."""


@dataclass(frozen=True)
class Compensation:
    """How to make up for what rounding weights does.

    Attributes
    ----------
    mode
        ``"full"``: every weight is rounded so that what its layer computes changes least, the bias with them.
        ``"mean"``: weights are rounded to nearest, and the bias is moved by what that does to the mean.
    damping
        What is added to the diagonal of a layer's second moments, relative to its mean. More of it where
        samples are few, and less of what they show is believed.
    progress
        ``progress(layer, done, total)`` is called before each layer.

    Raises
    ------
    PolicyError
        When one of them has a value that it cannot have.
    """

    mode: str = FULL
    damping: float = DAMPING
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mode, str) or self.mode not in (FULL, MEAN):
            raise PolicyError(f"compensate must be {FULL!r}, {MEAN!r} or None, not {self.mode!r:.80}.")
        number = isinstance(self.damping, (int, float)) and not isinstance(self.damping, bool)
        if not number or not 0.0 < self.damping < float("inf"):
            raise PolicyError(f"damping must be a positive number, not {self.damping!r:.80}.")
        if self.progress is not None and not callable(self.progress):
            raise PolicyError(f"progress must be a function or None, not {self.progress!r:.80}.")


def as_compensation(given: Any) -> Compensation | None:
    """Return how to compensate, for what the ``compensate`` argument may be.

    Raises
    ------
    PolicyError
        When it is none of ``"full"``, ``"mean"``, None and a :class:`Compensation`.
    """
    return given if given is None or isinstance(given, Compensation) else Compensation(given)


class Compensator:
    """Replaces the parameters of a graph's low layers by ones that are rounded for what the layers compute.

    Parameters
    ----------
    graph
        The graph as it will be, but for casts.
    params
        Its parameters by name, float32: folded, padded, saturated.
    dtypes
        Name -> the dtypes that each is cast to.
    calibration
        What the layers read.
    compensation
        How to compensate.
    exponents
        Entry -> k, for those that are what the calibration saw times 2^-k.

    Notes
    -----
    Nothing is computed here: a layer is when its weight or its bias is asked for, once, and of what lies in a
    file only the weight that is being written is in memory.
    """

    def __init__(
        self,
        graph: Graph,
        params: Mapping[str, Parameter],
        dtypes: Mapping[str, Sequence[DType]],
        calibration: Calibration,
        compensation: Compensation,
        exponents: Mapping[Entry, int],
    ) -> None:
        self.left: dict[str, str] = {}
        """Layer -> why it is rounded to nearest."""
        self._jobs: list[_Job] = []
        self._done: dict[str, CompensatedLayer] = {}
        self._calibration, self._compensation, self._exponents = calibration, compensation, exponents
        self.params = dict(params)
        """The parameters, some of them compensated."""
        shapes = {name: parameter.shape for name, parameter in params.items()}
        readers: dict[str, list[Layer]] = defaultdict(list)
        for position, node in enumerate(graph.nodes):
            if node.is_variable or FACTS.canonical(node.op) not in LAYERS or len(node.inputs) < 2:
                continue
            weight = graph.nodes[node.inputs[1].node].name
            low = [dtype for dtype in dtypes.get(weight, ()) if dtype.is_low_precision]
            if not low:  # the layer stays as it is
                continue
            layer = layer_of(graph, position, shapes)
            if layer is None or len(low) > 1:
                self.left[node.name] = "no matrix stands for it here"
                continue
            readers[weight].append(layer)
        total = len(readers)
        for number, (weight, layers) in enumerate(readers.items()):
            moments = self._moments(graph, layers, params, calibration)
            if isinstance(moments, str):
                self.left.update(dict.fromkeys([layer.name for layer in layers], moments))
                continue
            (dtype,) = (dtype for dtype in dtypes[weight] if dtype.is_low_precision)
            bias = _own_bias(graph, layers, dtypes, dtype)
            job = _Job(
                tuple(layers),
                params[weight],
                None if bias is None else params[bias],
                moments,
                dtype,
                compensation,
                (number, total),
                self._done,
            )
            self._jobs.append(job)
            self.params[weight] = _CompensatedWeight(job)
            if bias is not None:
                self.params[bias] = _CompensatedBias(job)

    def reporting(self) -> Callable[[], CompensationReport]:
        """Return a function that says what was done when it is called; it keeps no parameter alive."""
        mode, samples, left, done = self._compensation.mode, self._calibration.samples, self.left, self._done
        # In the order of the graph, whichever was asked for first; anew where it was computed again.
        order = [job.layers[0].weight for job in self._jobs]

        def report() -> CompensationReport:
            layers = tuple(done[weight] for weight in order if weight in done)
            return CompensationReport(mode, samples, layers, left)

        return report

    def _moments(
        self,
        graph: Graph,
        layers: Sequence[Layer],
        params: Mapping[str, Parameter],
        calibration: Calibration,
    ) -> Moments | str:
        """Return the moments over what all layers read, or why there are none."""
        first = layers[0]
        uses = graph.uses[graph.variables[first.weight]].get(0, ())
        if {use.node for use in uses} != {layer.position for layer in layers}:
            return f"something else reads {first.weight!r} as well"
        if len({(layer.op, layer.groups, layer.columns) for layer in layers}) > 1:
            return f"the layers that read {first.weight!r} read it in different ways"
        merged: Moments | None = None
        for layer in layers:
            name = layer.name if layer.name in calibration.layers else _name_of_slice(graph, layer)
            known = calibration.layers.get(name)
            if known is None or not known.rows:
                return calibration.unseen.get(name, "the calibration does not know it")
            exponent = self._exponents.get(graph.nodes[layer.position].inputs[0], 0)
            seen = known.times_power_of_two(-exponent) if exponent else known
            fitted = _padded(_read_twice(graph, layer, seen), layer)
            if fitted is None or (merged is not None and not merged.has_shape_of(fitted)):
                return (
                    f"the calibration knows a layer of {known.groups} groups of {known.columns} columns by "
                    f"this name, and this one has {layer.groups} of {layer.columns}"
                )
            merged = fitted if merged is None else merged.merged(fitted)
        assert merged is not None  # there is a layer
        return merged


def _own_bias(
    graph: Graph, layers: Sequence[Layer], dtypes: Mapping[str, Sequence[DType]], dtype: DType
) -> str | None:
    """Return the bias that may be chosen with a weight: nobody but these layers reads it."""
    biases = {layer.bias for layer in layers}
    bias = biases.pop() if len(biases) == 1 else None
    if bias is None or tuple(dtypes.get(bias, ())) != (dtype,):
        return None
    readers = {use.node for use in graph.uses[graph.variables[bias]].get(0, ())}
    return bias if readers == {layer.position for layer in layers} else None


def _name_of_slice(graph: Graph, layer: Layer) -> str:
    """Return what a layer was called before it got more channels, if it is an output.

    It has given its name to the slice that takes the channels off.
    """
    uses = graph.uses_of(Entry(layer.position))
    readers = [graph.nodes[use.node] for use in uses]
    return readers[0].name if len(readers) == 1 and readers[0].op == "slice_axis" else layer.name


def _read_twice(graph: Graph, layer: Layer, moments: Moments) -> Moments:
    """Return moments with the channel in front that a layer reads twice since it was calibrated.

    That is what :mod:`mxamp.passes.even_channels` writes. What is in the dearer of the two columns off by
    rounding is carried on to the other, which is finer; where the second moments were cut into blocks, the
    columns in front are one more.
    """
    joined = graph.nodes[graph.nodes[layer.position].inputs[0].node]
    if joined.op != "Concat" or len(joined.inputs) != 2 or layer.columns != moments.columns + layer.taps:
        return moments
    first, rest = joined.inputs
    taken = graph.nodes[first.node]
    if taken.op != "slice_axis" or taken.inputs != (rest,) or taken.attrs["axis"] != "1":
        return moments
    start = int(taken.attrs["begin"]) * layer.taps
    again = np.arange(start, start + layer.taps)
    mean = np.concatenate([moments.mean[:, again], moments.mean], axis=1)
    first_block, *blocks = moments.blocks
    if not blocks:
        order = np.concatenate([again, np.arange(moments.columns)])
        return Moments(moments.rows, mean, (first_block[:, order[:, np.newaxis], order],))
    own = _own_block(moments, again)
    return Moments(moments.rows, mean, (own, *moments.blocks))


def _own_block(moments: Moments, columns: NDArray[np.intp]) -> NDArray[np.float32]:
    """Return the second moments of columns that lie within one block."""
    start = 0
    for block in moments.blocks:
        if columns[0] < start + block.shape[1]:
            inner = columns - start
            return block[:, inner[:, np.newaxis], inner]
        start += block.shape[1]
    raise AssertionError("blocks hold whole channels")


def _padded(moments: Moments, layer: Layer) -> Moments | None:
    """Return moments for a layer that has more channels, of zeros, than when it was calibrated."""
    groups, columns = layer.groups - moments.groups, layer.columns - moments.columns
    if not groups and not columns:
        return moments
    if groups < 0 or columns < 0 or columns % layer.taps or (groups and columns):
        return None
    mean = np.pad(moments.mean, ((0, groups), (0, columns)))
    blocks = [np.pad(block, ((0, groups), (0, 0), (0, 0))) for block in moments.blocks]
    if columns:
        blocks.append(np.zeros((layer.groups, columns, columns), np.float32))
    return Moments(moments.rows, mean, tuple(blocks))


class _Job:
    """One weight to be compensated, with its bias."""

    def __init__(
        self,
        layers: tuple[Layer, ...],
        weight: Parameter,
        bias: Parameter | None,
        moments: Moments,
        dtype: DType,
        compensation: Compensation,
        place: tuple[int, int],
        done: dict[str, CompensatedLayer],
    ) -> None:
        self.layers = layers
        self.weight, self.bias = weight, bias
        self.dtype = dtype
        self._place, self._done = place, done
        self._moments, self._compensation = moments, compensation
        self._lock = threading.Lock()
        self._weight: NDArray[np.float32] | None = None
        self._bias: NDArray[np.float32] | None = None

    def weight_values(self, *, keep: bool = False) -> NDArray[np.float32]:
        """Return the weight; what is not kept is computed anew when it is asked for again."""
        with self._lock:
            if self._weight is None:
                self._compute()
            values = self._weight
            assert values is not None  # just computed
            if not keep:
                self._weight = None
            return values

    def bias_values(self) -> NDArray[np.float32]:
        """Return the bias."""
        with self._lock:
            if self._bias is None:
                self._compute()
            assert self._bias is not None  # just computed
            return self._bias

    def _compute(self) -> None:
        layer, compensation = self.layers[0], self._compensation
        if compensation.progress is not None:
            compensation.progress(layer.name, *self._place)
        values = np.asarray(self.weight.values(), np.float32)
        bias = None if self.bias is None else np.asarray(self.bias.values(), np.float32)
        arrays = [values] if bias is None else [values, bias]
        if any(ArrayParameter(array).range_loss(self.dtype) is not None for array in arrays) or not all(
            np.isfinite(array).all() for array in arrays
        ):
            # Out of the dtype's range: the casts shall see it, and so decide.
            self._weight, self._bias = values, bias
            return
        matrices = as_matrices(layer.op, layer.attrs, values)
        offset = None if bias is None else bias.reshape(matrices.shape[:2])
        rounded = self._rounded(matrices, offset)
        shape = layer.shape
        self._weight = np.ascontiguousarray(from_matrices(layer.op, layer.attrs, rounded.weights, shape))
        self._bias = None if rounded.bias is None else rounded.bias.reshape(-1)
        self._done[layer.weight] = CompensatedLayer(
            tuple(each.name for each in self.layers),
            layer.weight,
            None if bias is None else layer.bias,
            rounded.nearest,
            rounded.chosen,
        )

    def _rounded(self, matrices: NDArray[Any], offset: NDArray[Any] | None) -> Rounded:
        if self._compensation.mode == MEAN:
            return correct_bias(matrices, offset, self._moments, self.dtype)
        return round_for_output(
            matrices, offset, self._moments, self.dtype, damping=self._compensation.damping
        )


class _CompensatedParameter(DerivedParameter):
    """What a job makes of a parameter: float32 values that the dtype holds, so that casting them is exact."""

    def __init__(self, job: _Job, parameter: Parameter) -> None:
        super().__init__(parameter)
        self._job = job

    def cast(self, dtype: DType) -> Parameter:
        """See :class:`Parameter`; in any other dtype than the job's it is what it was."""
        return super().cast(dtype) if dtype is self._job.dtype else self._parameter.cast(dtype)


class _CompensatedWeight(_CompensatedParameter):
    def __init__(self, job: _Job) -> None:
        super().__init__(job, job.weight)

    def values(self) -> NDArray[Any]:
        """See :class:`Parameter`; computed anew each time."""
        return self._job.weight_values()

    def part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """See :class:`Parameter`; kept from the first part to the last."""
        values = self._job.weight_values(keep=True).reshape(-1)
        if stop >= values.size:
            self._job.weight_values()
        return values[start:stop]


class _CompensatedBias(_CompensatedParameter):
    def __init__(self, job: _Job) -> None:
        assert job.bias is not None  # or there is nothing to compensate
        super().__init__(job, job.bias)

    def values(self) -> NDArray[Any]:
        """See :class:`Parameter`."""
        return self._job.bias_values()

    def part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """See :class:`Parameter`."""
        return self._job.bias_values()[start:stop]
