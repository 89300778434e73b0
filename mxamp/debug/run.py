"""Run a model with a part of its conversion at a time, and measure each against FP32."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any, Callable, Iterator, Sequence

from numpy.typing import NDArray

from mxamp.compare.inputs import as_model, check_same_interface, counted, fed_inputs, prepare_inputs
from mxamp.compare.metrics import DistanceMeter
from mxamp.convert import convert_model
from mxamp.debug.bisect import Part, bisect_parts
from mxamp.dtypes import DType
from mxamp.errors import DataError, MxampWarning
from mxamp.messages.warn import warn_user
from mxamp.model import Model
from mxamp.model.accepted import Device, GivenData, ModelOrTriple
from mxamp.policy import Color, NodeView
from mxamp.report.inspection import inspect_model

DEFAULT_TRIALS = 32
DEFAULT_SAMPLES = 8

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Suspect:
    """Consecutive nodes, and what they do when nothing else is low.

    Attributes
    ----------
    nodes
        Their names in the FP32 model.
    error
        The relative L2 error of the worst output with these nodes alone in low precision.
    share
        Their squared error as a share of that of all suspects; None where one is not finite.
    """

    nodes: tuple[str, ...]
    error: float
    share: float | None


@dataclass(frozen=True)
class Suspects:
    """Which nodes make the difference between a model and its conversion.

    Attributes
    ----------
    dtype
        The low dtype.
    is_emulated
        Whether it was emulated in float32.
    low_nodes
        How many nodes the conversion has in it.
    converted
        The error of the conversion itself.
    together
        The error with all of these nodes low, as converted here.
    suspects
        Parts of them, which together are all, the largest error first.
    without_first
        The error with all but the first suspect low.
    trials
        How many models were run.
    samples
        On how many samples.
    """

    dtype: str
    is_emulated: bool
    low_nodes: int
    converted: float
    together: float
    suspects: tuple[Suspect, ...]
    without_first: float
    trials: int
    samples: int

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for JSON; what is not finite is a string."""
        plain = asdict(self)
        for record in (plain, *plain["suspects"]):
            record.update(
                {
                    key: str(value)
                    for key, value in record.items()
                    if isinstance(value, float) and not math.isfinite(value)
                }
            )
        return plain


def debug_models(
    fp32_model: ModelOrTriple,
    converted_model: ModelOrTriple,
    data: GivenData,
    *,
    ctx: Device = None,
    emulate: bool | None = None,
    trials: int | None = None,
    max_samples: int | None = None,
    progress: Progress | None = None,
) -> Suspects:
    """Find the nodes whose low precision makes most of a conversion's error.

    The FP32 model is converted again and again, each time with other nodes of the conversion in low precision
    and everything else in FP32, and run beside FP32.

    Parameters
    ----------
    fp32_model, converted_model
        :class:`mxamp.Model` or ``(sym, args, auxs)``. Neither is changed.
    data
        Input name -> array, samples along the first axis; or one array for a model with one input.
    ctx
        Where to run: ``"cpu"`` (the default), ``"gpu(0)"``, or an ``mx.Context``.
    emulate
        Whether to emulate the low dtype in float32; by default where it cannot run: float16 on a CPU.
    trials
        How many models to run at most; 32 by default.
    max_samples
        Use only so many samples, the first ones; 8 by default.
    progress
        Called with what is done, how much of it, and how much there is at most.

    Raises
    ------
    DataError
        When data and models do not fit together, or nothing of the conversion is low.
    DeviceError, OperatorError
        When a model cannot run there.
    MxnetMissingError
        When MXNet cannot be imported.
    """
    reference = as_model(fp32_model, "the FP32 model")
    converted = as_model(converted_model, "the converted model")
    check_same_interface(reference, converted, fed=fed_inputs(reference, data))
    trials = DEFAULT_TRIALS if trials is None else counted(trials, "The number of trials")
    samples = DEFAULT_SAMPLES if max_samples is None else max_samples
    inputs = prepare_inputs(reference, data, max_samples=samples)
    for warning in inputs.warnings:
        warn_user(warning)
    low, nodes = _low_nodes(reference, converted)

    from mxamp.runtime.executor import BoundModel

    on_cpu = ctx is None or str(ctx).strip().lower().startswith("cpu")
    is_emulated = (low is DType.FLOAT16 and on_cpu) or low.is_emulated_only if emulate is None else emulate
    expected = BoundModel(reference, ctx=ctx, fusion=False, label="the FP32 model").run(inputs.arrays)
    errors: list[float] = []

    def error_of(model: Model) -> float:
        got = BoundModel(model, ctx=ctx, label="a trial").run(inputs.arrays)
        return max(_distances(expected, got), default=0.0)

    def error_with(names: Sequence[str]) -> float:
        errors.append(error_of(_variant(reference, frozenset(names), low, emulate=is_emulated)))
        if progress is not None:
            progress("models", min(len(errors), trials), trials)
        return errors[-1]

    parts = bisect_parts(
        len(nodes), lambda first, last: error_with(nodes[first:last]), trials=max(1, trials - 1)
    )
    together = errors[0]
    first = parts[0]
    without = error_with([*nodes[: first.first], *nodes[first.last :]])
    emulates = converted.report is not None and converted.report.emulated is not None
    is_runnable = emulates or not (low is DType.FLOAT16 and on_cpu)
    return Suspects(
        dtype=low.label,
        is_emulated=bool(is_emulated),
        low_nodes=len(nodes),
        converted=error_of(converted) if is_runnable else together,
        together=together,
        suspects=tuple(_suspects(parts, nodes)),
        without_first=without,
        trials=len(errors),
        samples=inputs.samples,
    )


def _suspects(parts: Sequence[Part], nodes: Sequence[str]) -> Iterator[Suspect]:
    total = sum(part.error**2 for part in parts)
    for part in parts:
        share = part.error**2 / total if math.isfinite(total) and total > 0 else None
        yield Suspect(tuple(nodes[part.first : part.last]), part.error, share)


def _low_nodes(reference: Model, converted: Model) -> tuple[DType, list[str]]:
    """Return the low dtype of a conversion, and the nodes of the FP32 model that it computes in it, in order.

    Raises
    ------
    DataError
        When there are none.
    """
    report = converted.report
    operators = [node.name for node in reference.graph.nodes if not node.is_variable]
    if report is not None:
        low = DType.parse(report.emulated or report.target_dtype, emulated=True)
        chosen = {node.name for node in report.nodes if node.compute == report.target_dtype}
        nodes = [name for name in operators if name in chosen]
    else:
        found = inspect_model(converted.graph, {**converted.arg_params, **converted.aux_params})
        computes = {node.name: node.compute for node in found.nodes}
        labels = [label for label in ("bfloat16", "float16") if label in computes.values()]
        low = DType.parse(labels[0] if labels else "bfloat16")
        nodes, before = [], ""
        for name in operators:
            # What was folded into the node before it has its dtype.
            before = computes.get(name, before)
            if before == low.label:
                nodes.append(name)
    if not nodes:
        raise DataError(
            "Nothing of the converted model is in low precision, so nothing can make a difference."
        )
    return low, nodes


def _variant(reference: Model, names: frozenset[str], low: DType, *, emulate: bool) -> Model:
    """Return the conversion in which these nodes are low, as far as that is safe, and no others."""

    def color(node: NodeView) -> Color:
        return Color.GREEN if node.name in names else Color.RED

    with warnings.catch_warnings():
        # That a trial has few low nodes, or the target is not this machine's, is no news here.
        warnings.simplefilter("ignore", MxampWarning)
        return convert_model(
            reference.graph,
            reference.arg_params,
            reference.aux_params,
            low,
            color=color,
            low_precision="required",
            emulate=emulate,
        )


def _distances(expected: Sequence[NDArray[Any]], got: Sequence[NDArray[Any]]) -> Iterator[float]:
    for left, right in zip(expected, got):
        meter = DistanceMeter()
        meter.add(left, right)
        yield meter.result().relative_l2
