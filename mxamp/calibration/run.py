"""Calibrate: run a model over samples once, and keep what its values were."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.calibration.calibration import Calibration
from mxamp.calibration.layers import LAYERS, Layer, layers_of
from mxamp.calibration.moments import MomentsMeter, block_sizes
from mxamp.calibration.prices import Prices
from mxamp.calibration.pricing import PriceMeter
from mxamp.calibration.record import EntryName, ModelRecord
from mxamp.calibration.samples import Batch, Samples
from mxamp.calibration.statistics import EntryMeter, EntryStatistics
from mxamp.calibration.subject import any_model, observed_entries
from mxamp.compare.inputs import counted, input_names
from mxamp.errors import DataError, MemoryBoundError, OperatorError
from mxamp.graph.control_flow import is_control_flow
from mxamp.graph.graph import Entry, Graph
from mxamp.messages.arguments import check_flag
from mxamp.messages.warn import warn_user
from mxamp.model import Model
from mxamp.model.accepted import AnyModel, BlockShapes, Device, GivenSamples
from mxamp.ops import FACTS

POSITIONS = 512
"""Columns of a layer's input that are taken of one sample.

Those of one image are much alike: more of them take time and tell little.
"""

MEMORY = 1 << 30
"""Bytes that the second moments may take."""

_MOST_COLUMNS = 4608
"""The largest block of second moments: 512 channels under a kernel of 3x3."""

_FEWEST_COLUMNS = 16

_DRAWS = 2
_PRICED = 32
"""Cotangents a batch, and the most samples that are priced with: a price is then known to a fifth."""

Progress = Callable[[int, "int | None"], None]
"""Called with the samples done, and how many there are where that is known."""


def calibrate(
    model: AnyModel,
    data: GivenSamples,
    *,
    ctx: Device = None,
    batch_size: int | None = None,
    max_samples: int | None = None,
    positions: int = POSITIONS,
    memory: int = MEMORY,
    prices: bool = True,
    prices_memory: int | None = None,
    input_shapes: BlockShapes | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Run a model over samples once, in float32, and return what its values were.

    Parameters
    ----------
    model
        The FP32 model: :class:`mxamp.Model`, ``(sym, args, auxs)``, a Gluon block, or the prefix of a pair of
        files. Not changed.
    data
        Samples as the model meets them in use; no labels are needed. A mapping from input names to arrays, an
        array, an ``.npz`` or ``.npy`` file, a folder of them, a Gluon DataLoader, a DataIter, an iterable of
        batches, or a function that returns one: see :class:`mxamp.calibration.Samples`.
    ctx
        Where to run: ``"cpu"`` (the default), ``"gpu(0)"``, or an ``mx.Context``.
    batch_size
        Samples a forward pass; by default as many as keep the tensors below 256 MB.
    max_samples
        Use only so many samples, the first ones.
    positions
        The most columns of a layer's input that are taken of one sample: places of an image, tokens. Drawn
        anew for every sample, and the same each time.
    memory
        The most bytes that the second moments of all layers together may take. Where whole matrices do not
        fit, they are kept in blocks along the diagonal, of as many channels as do.
    prices
        Whether to run backward as well, over at most the first 32 samples, which tells what every rounding
        costs in accuracy.
    prices_memory
        The most bytes that running backward may take; by default those that are available. It takes up to 11
        times the values of a sample and 9 times the parameters. Where that is more, prices are left out, and
        a warning and ``why_unpriced`` say so.
    input_shapes
        For a block that has not run yet; see :func:`mxamp.convert_block`.
    progress
        ``progress(done, total)`` is called with the samples done, and their number or None.

    Returns
    -------
    Calibration
        Serves any conversion of the model: ``convert_model(..., calibration=...)``.

    Raises
    ------
    DataError
        When model and data do not fit together, or the data hold NaN.
    DeviceError, OperatorError
        When the device is not here, or MXNet cannot run the model.
    MxnetMissingError
        When MXNet cannot be imported.

    Warns
    -----
    MxampWarning
        For a single sample, samples that are all the same, and inputs that are constant; where prices
        are left out since memory does not suffice.

    Notes
    -----
    Fusion is off, so that every tensor is there to be read. The time is that of the forward passes, of
    ``rows x columns^2`` multiply-adds for each layer, where rows are positions times samples, and for prices
    of two passes forward and backward.

    Examples
    --------
    >>> calibration = mxamp.calibrate((sym, args, auxs), {"data": images})  # doctest: +SKIP
    >>> calibration.save("resnet50.calibration")  # doctest: +SKIP
    """
    model = any_model(model, input_shapes=input_shapes)
    positions, memory = counted(positions, "positions"), counted(memory, "memory")
    if batch_size is not None:
        batch_size = counted(batch_size, "The batch size")
    samples = Samples(model, data, batch_size=batch_size, max_samples=max_samples)
    if progress is not None and not callable(progress):
        raise DataError(f"progress must be a function or None, not {progress!r:.80}.")
    check_flag(prices, "prices")
    if prices_memory is not None:
        prices_memory = counted(prices_memory, "prices_memory")
    observer = _Observer(model, positions, memory, ctx)
    pricer = _Pricer(model, ctx, is_wanted=prices, memory=prices_memory)
    done = 0
    for batch in samples.batches():
        for part in batch.parts(batch_size or observer.samples_a_pass(batch)):
            observer.see(part)
            pricer.see(part)
            done += part.samples
            if progress is not None:
                progress(done, samples.total)
    for note in [*samples.notes, *pricer.notes]:
        warn_user(note)
    return replace(observer.calibration(samples), prices=pricer.prices(), why_unpriced=pricer.why_not)


class _Pricer:
    """Prices the roundings of a model, as far as that can be done."""

    def __init__(self, model: Model, ctx: Any, *, is_wanted: bool, memory: int | None) -> None:
        self.why_not = "" if is_wanted else "that was left out"
        self.notes: list[str] = []
        """What the user should be warned of."""
        self._done = 0
        self._meter: PriceMeter | None = None
        if is_wanted:
            with self._excused():
                self._meter = PriceMeter(model, _DRAWS, 0, ctx, memory=memory)

    @contextmanager
    def _excused(self) -> Iterator[None]:
        """Do without prices where there is no gradient; all else that is calibrated needs none."""
        try:
            yield
        except (DataError, OperatorError) as error:
            self._meter, self.why_not = None, str(error)
            if isinstance(error, MemoryBoundError):
                self.notes.append(f"This calibration has no prices of roundings. {error}")

    def see(self, batch: Batch) -> None:
        """Price on one batch."""
        meter = self._meter
        if meter is None or self._done >= _PRICED:
            return
        with self._excused():
            for part in batch.parts(meter.samples_a_pass(batch.arrays)):
                meter.see(part.arrays, part.samples)
                self._done += part.samples
                if self._done >= _PRICED:
                    break

    def prices(self) -> Prices | None:
        """Return what was found; None where nothing was."""
        return None if self._meter is None else self._meter.prices(self._done)


class _Observer:
    """Looks at what a model computes, batch after batch."""

    def __init__(self, model: Model, positions: int, memory: int, ctx: Any) -> None:
        from mxamp.runtime.entries import ENTRY_BYTES, EntryReader

        self._model, self._positions = model, positions
        self._inputs = input_names(model)
        params = {**model.arg_params, **model.aux_params}
        self._record = ModelRecord.of(model.graph, params)
        shapes = {name: parameter.shape for name, parameter in params.items()}
        layers = layers_of(model.graph, shapes)
        self._unseen = _unseen(model.graph, layers)
        layers = [layer for layer in layers if layer.name not in self._unseen]
        self._meters: dict[Entry, EntryMeter] = {}
        self._moments = _moments_meters(layers, memory)
        self._readers: dict[Entry, list[Layer]] = defaultdict(list)
        for layer in layers:
            self._readers[model.graph.nodes[layer.position].inputs[0]].append(layer)
        self._bytes = ENTRY_BYTES
        self._reader = EntryReader(model, observed_entries(model), ctx=ctx)

    def samples_a_pass(self, batch: Batch) -> int:
        """Return how many samples of such a batch fit into memory together."""
        if not batch.batched:
            return batch.samples
        one = {name: values[:1] for name, values in batch.arrays.items()}
        return max(1, self._bytes // max(self._reader.bytes_of(one), 1))

    def see(self, batch: Batch) -> None:
        """Run the model and look at everything."""
        variables = self._model.graph.variables
        for name in self._inputs:
            values = batch.arrays[name]
            if values.dtype.kind in "fVuib":
                self._look(Entry(variables[name]), values.astype(np.float32), batch)
        for entry, values in self._reader.read(batch.arrays):
            if values.dtype.kind == "f":
                self._look(entry, values.astype(np.float32, copy=False), batch)

    def _look(self, entry: Entry, values: NDArray[np.float32], batch: Batch) -> None:
        meter = self._meters.setdefault(entry, EntryMeter())
        meter.add(values, first=batch.first, samples=batch.samples)
        for layer in self._readers.get(entry, ()):
            columns = layer.sampled(values, self._positions, batch.first)
            if np.isfinite(columns).all():
                self._moments[layer.name].add(columns)
            else:
                self._unseen[layer.name] = "it read NaN or an infinity"

    def calibration(self, samples: Samples) -> Calibration:
        """Return what was seen."""
        return Calibration(
            self._record,
            (samples.description,),
            self._entries(),
            {name: meter.moments() for name, meter in self._moments.items() if name not in self._unseen},
            dict(self._unseen),
            self._positions,
        )

    def _entries(self) -> Mapping[EntryName, EntryStatistics]:
        """Return what was seen by names, of which a layer that is called twice has one."""
        found: dict[EntryName, EntryStatistics] = {}
        for entry, meter in self._meters.items():
            if meter.statistics is not None:
                name = EntryName.of(self._model.graph, entry)
                other = found.get(name)
                found[name] = meter.statistics if other is None else other.merged(meter.statistics, samples=0)
        return found


def _moments_meters(layers: Sequence[Layer], memory: int) -> Mapping[str, MomentsMeter]:
    """Return a meter for each layer, with the largest blocks that fit into memory together."""

    def sizes(most: int) -> list[tuple[int, ...]]:
        return [block_sizes(layer.columns, layer.taps, most) for layer in layers]

    most = _MOST_COLUMNS
    found = sizes(most)
    while most > _FEWEST_COLUMNS and memory < sum(
        4 * layer.groups * sum(size * size for size in blocks) for layer, blocks in zip(layers, found)
    ):
        most //= 2
        found = sizes(most)
    return {layer.name: MomentsMeter(layer.groups, blocks) for layer, blocks in zip(layers, found)}


def _unseen(graph: Graph, layers: Sequence[Layer]) -> dict[str, str]:
    known = {layer.position for layer in layers}
    found = {}
    weights: dict[str, str] = {}
    for layer in layers:
        if weights.setdefault(layer.name, layer.weight) != layer.weight:
            found[layer.name] = "another layer with other weights has its name"
    for position, node in enumerate(graph.nodes):
        if is_control_flow(node):
            found[node.name] = "what runs in the bodies of control flow is not observed"
        elif not node.is_variable and FACTS.canonical(node.op) in LAYERS and position not in known:
            found[node.name] = "its weight is no parameter, or its channels come last"
    return found
