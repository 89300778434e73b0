"""Compare a model with its conversion: outputs first, then layer by layer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Callable, Mapping, Protocol, Sequence

from numpy.typing import NDArray

from mxamp.compare.checked import checked_number, checked_progress
from mxamp.compare.fidelity import Fidelity, LayerFidelity, OutputFidelity
from mxamp.compare.inputs import Inputs, as_model, check_same_interface, counted, fed_inputs, prepare_inputs
from mxamp.compare.latency import time_models
from mxamp.compare.matching import Match, match_entries
from mxamp.compare.metrics import Distance, DistanceMeter, distance, roundoff, top1_agreement
from mxamp.compare.notes import folding_notes, fusion_notes, ranking_notes, renaming_notes
from mxamp.compare.rounding_losses import measure_losses
from mxamp.compare.samples import SampleErrors, share_bounds
from mxamp.dtypes import DType
from mxamp.errors import DataError, OperatorError
from mxamp.graph.graph import Entry, Graph
from mxamp.graph.infer import EntryDtypes, infer_dtypes, variable_dtypes
from mxamp.graph.library_operators import emulated_dtypes, emulated_formats
from mxamp.graph.output_names import output_names
from mxamp.messages.arguments import check_flag
from mxamp.messages.warn import warn_user
from mxamp.model import Model
from mxamp.model.accepted import Device, GivenData, ModelOrTriple

DEFAULT_BATCH_SIZE = 8

_THRESHOLD_IN_ROUNDINGS = 16
"""Deep networks of correctly rounded layers stay below this many times the error of one rounding."""


Progress = Callable[[str, int, int], None]
"""Called with what is being measured, how much is done, and how much there is."""


def compare_models(
    fp32_model: ModelOrTriple,
    converted_model: ModelOrTriple,
    data: GivenData,
    *,
    ctx: Device = None,
    layers: bool = True,
    batch_size: int | None = None,
    max_samples: int | None = None,
    threshold: float | None = None,
    progress: Progress | None = None,
    latency_seconds: float = 0.0,
    by_position: bool = False,
) -> Fidelity:
    """Measure the fidelity of a conversion: how far its outputs and layers are from the FP32 model's.

    Parameters
    ----------
    fp32_model, converted_model
        :class:`mxamp.Model` or ``(sym, args, auxs)``. Neither is changed.
    data
        Input name -> array, samples along the first axis; or one array for a model with one input.
    ctx
        Where to run: ``"cpu"`` (the default), ``"gpu(0)"``, or an ``mx.Context``.
    layers
        Whether to compare intermediate entries too, on the first batch.
    batch_size
        Samples a forward pass; 8 by default.
    max_samples
        Use only so many samples, the first ones.
    threshold
        The relative L2 error from which an entry counts as different; by default 16 times the largest error
        of rounding to the low dtype (0.0625 for bfloat16, 0.0078 for float16).
    progress
        Called as the work proceeds.
    by_position
        Whether the outputs of the two models belong together in their order, whatever they are called. By
        default they must have the same names; MXNet's own converter renames outputs.
    latency_seconds
        About how long to time both models by turns, on the first batch; 0 for not at all. It ends early where
        the answer is clear.

    Returns
    -------
    Fidelity
        Prints as a table; ``.to_json()`` for machines.

    Raises
    ------
    DataError
        When data and models do not fit together.
    DeviceError
        When the device is not here, or cannot run the model's dtype.
    OperatorError
        When MXNet cannot run a model.
    MxnetMissingError
        When MXNet cannot be imported.

    Notes
    -----
    The FP32 reference runs with fusion off, the converted model as deployed; layers are read with fusion off
    in both, because MXNet 1.9.1 computes wrong values where a fused intermediate tensor is read.
    """
    reference, converted = (
        as_model(fp32_model, "the FP32 model"),
        as_model(converted_model, "the converted model"),
    )
    check_flag(layers, "layers", DataError)
    check_flag(by_position, "by_position", DataError)
    progress = checked_progress(progress)
    check_same_interface(reference, converted, fed=fed_inputs(reference, data), by_position=by_position)
    inputs = prepare_inputs(reference, data, max_samples=max_samples)
    size = _batch_size(inputs, batch_size)
    dtypes = _dtypes(converted)
    low = _low_dtype(dtypes)
    threshold = rounding_threshold(low) if threshold is None else checked_number(threshold, "The threshold")

    from mxamp.runtime.device import parse_context
    from mxamp.runtime.executor import BoundModel, batches, is_fusion_on

    latency_seconds = checked_number(latency_seconds, "latency_seconds")
    if math.isinf(latency_seconds):
        raise DataError("latency_seconds must be a finite number of seconds.")
    context = parse_context("cpu" if ctx is None else ctx)
    for warning in inputs.warnings:
        warn_user(warning)
    notes = [*inputs.warnings, *inputs.notes, *renaming_notes(reference.graph, converted.graph)]
    outputs, first = compare_outputs(
        BoundModel(reference, ctx=context, fusion=False, label="the FP32 model"),
        BoundModel(converted, ctx=context, fusion=True, label="the converted model"),
        output_names(reference.graph),
        inputs,
        size,
        progress,
    )
    records: tuple[LayerFidelity, ...] | None = None
    unmatched: tuple[str, ...] = ()
    batch = next(batches(inputs.arrays, size))
    layer_samples = 0
    if layers:
        matched, missing, folded = match_entries(reference.graph, converted.graph)
        unmatched = tuple(reference.graph.describe(entry) for entry in missing)
        notes += folding_notes(reference.graph, folded)
        try:
            measured = _compare_layers(reference, converted, matched, batch, context, progress)
        except OperatorError as error:
            notes.append(f"Layers could not be compared, because they must be read with fusion off: {error}")
        else:
            records = _layer_records(
                reference.graph, converted.graph, matched, measured, dtypes, roundoff(low)
            )
            layer_samples = min(size or 1, inputs.samples)
            outputs = _with_unfused(outputs, reference.graph, matched, measured)
            notes += ranking_notes(records, threshold)
            notes += fusion_notes(outputs, first, low, converted.graph)
    emulated = tuple(emulated_formats(converted.graph))
    losses = measure_losses(converted, batch, context) if emulated else None
    latency = None
    if latency_seconds and emulated:
        notes.append("Not timed: an emulated model shows what the numbers do, and not how fast they come.")
    elif latency_seconds:
        try:
            latency = time_models(
                reference,
                converted,
                batch,
                ctx=context,
                seconds=latency_seconds,
                batch_size=min(size or 1, inputs.samples),
            )
        except OperatorError as error:
            notes.append(f"The models could not be timed: {error}")
    return Fidelity(
        outputs=outputs,
        layers=records,
        unmatched=unmatched,
        samples=inputs.samples,
        batch_size=min(size or 1, inputs.samples),
        layer_samples=layer_samples,
        ctx=str(context),
        low_dtype=None if low is None else low.label,
        threshold=threshold,
        fusion=is_fusion_on(),
        notes=tuple(notes),
        emulated=emulated,
        losses=losses,
        latency=latency,
    )


def _batch_size(inputs: Inputs, wanted: int | None) -> int | None:
    """Return the samples a forward pass; None where the inputs cannot be cut."""
    if wanted is not None:
        wanted = counted(wanted, "The batch size")
    if inputs.batched:
        return wanted or DEFAULT_BATCH_SIZE
    if wanted is not None:
        shapes = ", ".join(f"{name} {values.shape}" for name, values in inputs.arrays.items())
        raise DataError(
            f"The inputs cannot be cut into batches, because they differ in their first axes: {shapes}."
        )
    return None


def _dtypes(model: Model) -> EntryDtypes:
    stored = {**model.arg_params, **model.aux_params}
    known = {name: value.dtype for name, value in stored.items()}
    return emulated_dtypes(model.graph, infer_dtypes(model.graph, variable_dtypes(model.graph, known)))


def _low_dtype(dtypes: EntryDtypes) -> DType | None:
    for entries in dtypes:
        for dtype in entries:
            if dtype is not None and dtype.is_low_precision:
                return dtype
    return None


def rounding_threshold(low: DType | None) -> float:
    """Return the relative L2 error from which an entry counts as different, for a low dtype."""
    return _THRESHOLD_IN_ROUNDINGS * roundoff(low)


# ---------------------------------------------------------------------- outputs


class Runner(Protocol):
    """What runs a batch: a bound model, or an ONNX file."""

    def run(self, data: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the outputs for input name -> values."""


def compare_outputs(
    left: Runner,
    right: Runner,
    names: Sequence[str],
    inputs: Inputs,
    size: int | None,
    progress: Progress | None,
) -> tuple[tuple[OutputFidelity, ...], list[Distance]]:
    """Return the fidelity of every output, and its distance on the first batch alone."""
    from mxamp.runtime.executor import batches

    meters = [DistanceMeter() for _ in names]
    of_samples = [SampleErrors() for _ in names]
    first: list[Distance] = []
    shapes: list[tuple[int, ...]] = []
    votes = [[0, 0] for _ in names]
    done = 0
    for batch in batches(inputs.arrays, size):
        pairs = list(zip(left.run(batch), right.run(batch)))
        for name, (expected, got) in zip(names, pairs):
            if expected.shape != got.shape:
                raise DataError(
                    f"The output {name!r} has the shape {expected.shape} in the FP32 model and "
                    f"{got.shape} in the converted one. Is the second one a conversion of the first?"
                )
        samples = min(len(values) for values in batch.values())
        for number, (expected, got) in enumerate(pairs):
            meters[number].add(expected, got)
            of_samples[number].add(expected, got, samples if inputs.batched else None)
            if expected.ndim == 2 and expected.shape[1] > 1 and expected.size:
                agreeing, rows = top1_agreement(expected, got)
                votes[number][0] += agreeing
                votes[number][1] += rows
        if not first:
            first = [meter.result() for meter in meters]
        shapes = _joined_shapes(shapes, [expected.shape for expected, _ in pairs])
        done += samples
        if progress is not None:
            progress("outputs", min(done, inputs.samples), inputs.samples)
    outputs = []
    for number, (name, shape, (agreeing, rows)) in enumerate(zip(names, shapes, votes)):
        low, high = of_samples[number].bounds() or (None, None)
        top1_low, top1_high = share_bounds(agreeing, rows) if rows else (None, None)
        outputs.append(
            OutputFidelity(
                name=name,
                shape=shape,
                distance=meters[number].result(),
                top1_agreement=agreeing / rows if rows else None,
                relative_l2_low=low,
                relative_l2_high=high,
                top1_low=top1_low,
                top1_high=top1_high,
            )
        )
    return tuple(outputs), first


def _joined_shapes(
    before: Sequence[tuple[int, ...]], shapes: Sequence[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Add the samples of one more batch to the first axes."""
    if not before:
        return list(shapes)
    return [(old[0] + new[0], *old[1:]) if old else old for old, new in zip(before, shapes)]


# ---------------------------------------------------------------------- layers


def _compare_layers(
    reference: Model,
    converted: Model,
    matched: Sequence[Match],
    batch: Mapping[str, NDArray[Any]],
    ctx: Any,
    progress: Progress | None,
) -> list[tuple[tuple[int, ...], Distance | None]]:
    """Return shape and distance for every match; None where the shapes differ."""
    from mxamp.runtime.entries import run_entries

    # One entry of the converted model may stand for several of the FP32 model's; each is read once.
    wanted = list(dict.fromkeys(match.converted for match in matched))
    left = run_entries(
        reference, batch, [match.reference for match in matched], ctx=ctx, label="the FP32 model"
    )
    right = run_entries(converted, batch, wanted, ctx=ctx, label="the converted model")
    held: dict[Entry, NDArray[Any]] = {}
    last_use = {match.converted: number for number, match in enumerate(matched)}
    measured: list[tuple[tuple[int, ...], Distance | None]] = []
    for number, (match, (_, expected)) in enumerate(zip(matched, left)):
        while match.converted not in held:
            entry, values = next(right)
            held[entry] = values
        got = held[match.converted]
        if last_use[match.converted] == number:
            del held[match.converted]
        same = expected.shape == got.shape
        measured.append((expected.shape, distance(expected, got) if same else None))
        if progress is not None:
            progress("layers", number + 1, len(matched))
    return measured


def _layer_records(
    reference: Graph,
    converted: Graph,
    matched: Sequence[Match],
    measured: Sequence[tuple[tuple[int, ...], Distance | None]],
    dtypes: EntryDtypes,
    roundoff: float,
) -> tuple[LayerFidelity, ...]:
    by_entry = {match.reference: found for match, found in zip(matched, measured)}
    own = {match.reference: match for match in matched}
    errors: dict[Entry, float] = {}
    records = []
    for position, node in enumerate(reference.nodes):
        if node.is_variable:
            continue
        incoming = max((errors.get(entry, 0.0) for entry in node.inputs), default=0.0)
        for output in range(node.num_outputs):
            entry = Entry(position, output)
            shape, found = by_entry.get(entry, ((), None))
            if found is None:
                errors[entry] = incoming  # nothing is known of it, so it hands on what came in
                continue
            errors[entry] = found.relative_l2
            producer = dtypes[own[entry].producer.node][own[entry].producer.output]
            records.append(
                LayerFidelity(
                    name=reference.describe(entry),
                    op=node.op,
                    converted_name=converted.describe(own[entry].converted),
                    dtype=None if producer is None else producer.label,
                    shape=shape,
                    distance=found,
                    jump=_jump(found.relative_l2, incoming, roundoff),
                )
            )
    return tuple(records)


def _jump(error: float, incoming: float, roundoff: float) -> float:
    """Return the growth of an error, counting one rounding as no growth: every low node adds that much."""
    if error <= incoming:
        return 1.0
    return math.inf if math.isinf(error) else (error + roundoff) / (incoming + roundoff)


def _with_unfused(
    outputs: tuple[OutputFidelity, ...],
    reference: Graph,
    matched: Sequence[Match],
    measured: Sequence[tuple[tuple[int, ...], Distance | None]],
) -> tuple[OutputFidelity, ...]:
    by_entry = {match.reference: found for match, (_, found) in zip(matched, measured)}
    completed = []
    for output, head in zip(outputs, reference.heads):
        found = by_entry.get(head)
        completed.append(replace(output, unfused_relative_l2=None if found is None else found.relative_l2))
    return tuple(completed)
