"""What rounding loses for want of range when an emulated model runs: overflow and underflow, node by node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.compare.checked import checked_progress
from mxamp.compare.inputs import as_model, counted, prepare_inputs
from mxamp.dtypes import DType
from mxamp.errors import DataError, OperatorError
from mxamp.graph.graph import Entry, Graph
from mxamp.model.accepted import Device, GivenData, ModelOrTriple
from mxamp.ops.rounding import ROUND, is_rounding
from mxamp.params.ranges import overflow_limit

Progress = Callable[[int, int], None]
"""Called with the samples done and their total."""


@dataclass(frozen=True)
class RoundingLoss:
    """What one rounding met and lost.

    Attributes
    ----------
    node
        The node whose result is rounded, by its name in the FP32 model.
    op
        Its operator.
    rounding
        The name of the node that rounds.
    format
        What it rounds to.
    elements
        How many values came.
    overflowed
        How many finite ones were beyond the largest finite value of the format.
    underflowed
        How many that were not zero became zero.
    largest
        The largest finite magnitude that came.
    smallest
        The smallest magnitude that was not zero; infinite where all were.
    """

    node: str
    op: str
    rounding: str
    format: str
    elements: int
    overflowed: int
    underflowed: int
    largest: float
    smallest: float

    @property
    def overflow_share(self) -> float:
        """The share of values that overflowed, 0 to 1."""
        return self.overflowed / self.elements if self.elements else 0.0

    @property
    def underflow_share(self) -> float:
        """The share of values that became zero without being zero, 0 to 1."""
        return self.underflowed / self.elements if self.elements else 0.0


class LossCounter:
    """Counts over several batches of one rounding's input."""

    def __init__(self, format_: DType) -> None:
        self._limit = np.float32(overflow_limit(format_))
        # Half the smallest value is a tie, and rounds to zero, the even one.
        self._vanishing = format_.smallest_subnormal / 2
        self.elements = self.overflowed = self.underflowed = 0
        self.largest, self.smallest = 0.0, float("inf")

    def add(self, values: NDArray[Any]) -> None:
        """Count what becomes of values."""
        magnitudes = np.abs(np.asarray(values, np.float32)).reshape(-1)
        self.elements += magnitudes.size
        finite = magnitudes[np.isfinite(magnitudes)]
        nonzero = finite[finite > 0]
        if not nonzero.size:
            return
        self.overflowed += int(np.count_nonzero(nonzero >= self._limit))
        self.underflowed += int(np.count_nonzero(nonzero.astype(np.float64) <= self._vanishing))
        self.largest = max(self.largest, float(nonzero.max()))
        self.smallest = min(self.smallest, float(nonzero.min()))


def rounding_losses(
    model: ModelOrTriple,
    data: GivenData,
    *,
    ctx: Device = None,
    batch_size: int | None = 8,
    max_samples: int | None = None,
    progress: Progress | None = None,
) -> tuple[RoundingLoss, ...]:
    """Run an emulated model and count what every rounding loses for want of range.

    Parameters
    ----------
    model
        What :func:`mxamp.emulate` returned: :class:`mxamp.Model` or ``(sym, args, auxs)``.
    data
        Input name -> array, samples along the first axis; or one array for a model with one input.
    ctx
        Where to run; the operator library runs on CPUs.
    batch_size
        Samples a forward pass.
    max_samples
        Use only so many samples, the first ones.
    progress
        Called as the work proceeds.

    Returns
    -------
    tuple of RoundingLoss
        One for every rounding, in graph order. Those inside the bodies of control flow cannot be read, and
        are not among them; one whose input MXNet cannot hand out has no elements.

    Raises
    ------
    DataError
        When the model emulates nothing, or the data does not fit it.
    DeviceError, OperatorError, LibraryError, MxnetMissingError
        When MXNet cannot run it.

    Notes
    -----
    Fusion is off, as for all intermediate values. The counts are of values that are finite before rounding
    and not after, and not zero before and zero after: what an earlier overflow turned into infinity counts
    once, there.
    """
    from mxamp.runtime.executor import batches

    progress = checked_progress(progress)
    checked = as_model(model, "the emulated model")
    inputs = prepare_inputs(checked, data, max_samples=max_samples)
    size = counted(batch_size, "The batch size") if batch_size is not None and inputs.batched else None
    roundings = _roundings(checked.graph)
    if not roundings:
        raise DataError(
            f"The model holds no {ROUND} node, so it emulates nothing. Give what mxamp.emulate returned."
        )
    counters = [LossCounter(dtype) for _, dtype in roundings]
    done = 0
    for batch in batches(inputs.arrays, size):
        _count(checked, batch, roundings, counters, ctx)
        done += min(len(values) for values in batch.values())
        if progress is not None:
            progress(min(done, inputs.samples), inputs.samples)
    return _records(checked.graph, roundings, counters)


def measure_losses(model: Any, batch: Mapping[str, NDArray[Any]], ctx: Any) -> tuple[RoundingLoss, ...]:
    """Count on one batch of checked inputs; nothing where the model emulates nothing."""
    roundings = _roundings(model.graph)
    counters = [LossCounter(dtype) for _, dtype in roundings]
    _count(model, batch, roundings, counters, ctx)
    return _records(model.graph, roundings, counters)


def _roundings(graph: Graph) -> list[tuple[int, DType]]:
    return [
        (position, DType.parse(node.attrs["format"], emulated=True))
        for position, node in enumerate(graph.nodes)
        if is_rounding(node.op)
    ]


def _count(
    model: Any,
    batch: Mapping[str, NDArray[Any]],
    roundings: Sequence[tuple[int, DType]],
    counters: Sequence[LossCounter],
    ctx: Any,
) -> None:
    graph = model.graph
    readers: dict[Entry, list[LossCounter]] = {}
    for (position, _), counter in zip(roundings, counters):
        source = graph.nodes[position].inputs[0]
        readers.setdefault(source, []).append(counter)
    computed = [entry for entry in readers if not graph.nodes[entry.node].is_variable]
    for entry in readers:
        name = graph.nodes[entry.node].name
        if graph.nodes[entry.node].is_variable:
            values = batch[name] if name in batch else {**model.arg_params, **model.aux_params}[name].numpy()
            for counter in readers[entry]:
                counter.add(np.asarray(values))
    for entry, values in _read(model, batch, computed, ctx):
        for counter in readers[entry]:
            counter.add(values)


def _read(
    model: Any, batch: Mapping[str, NDArray[Any]], entries: Sequence[Entry], ctx: Any
) -> Iterator[tuple[Entry, NDArray[Any]]]:
    """Yield the values of entries, those excepted that MXNet cannot hand out.

    MXNet 1.9.1 fails on some sets of intermediate tensors that it hands out in smaller sets: it mistakes the
    layout of one of them.
    """
    from mxamp.runtime.entries import run_entries

    waiting = [list(entries)]
    while waiting:
        group = waiting.pop()
        done = 0
        try:
            for entry, values in run_entries(model, batch, group, ctx=ctx, label="the emulated model"):
                yield entry, values
                done += 1
        except (DataError, OperatorError):
            left = group[done:]
            if len(left) == len(entries) == 1:
                raise
            half = len(left) // 2
            waiting += [part for part in (left[half:], left[:half]) if part and len(left) > 1]


def _records(
    graph: Graph, roundings: Sequence[tuple[int, DType]], counters: Sequence[LossCounter]
) -> tuple[RoundingLoss, ...]:
    records = []
    for (position, dtype), counter in zip(roundings, counters):
        node = graph.nodes[position]
        source = graph.nodes[node.inputs[0].node]
        # A graph output that is cast back gives its name to the rounding, and is called by the format itself.
        name = node.name if source.name == f"{node.name}_{dtype}" else source.name
        records.append(
            RoundingLoss(
                node=name,
                op="input" if source.is_variable else source.op,
                rounding=node.name,
                format=dtype.label,
                elements=counter.elements,
                overflowed=counter.overflowed,
                underflowed=counter.underflowed,
                largest=counter.largest,
                smallest=counter.smallest,
            )
        )
    return tuple(records)
