"""What was measured of a model, as sections of a page: speed, and fidelity layer by layer."""

from __future__ import annotations

from typing import Mapping, NamedTuple

from mxamp.compare.fidelity import Fidelity, LayerFidelity, OutputFidelity
from mxamp.compare.latency import Latency
from mxamp.compare.text import format_number
from mxamp.html.sections import Figure, Plot, Point, Section, Table
from mxamp.messages.counts import count_of
from mxamp.report.guard import MeasuredRatio
from mxamp.report.model import Report

_JUMPS = 8


class _Speed(NamedTuple):
    """FP32 and this model, timed by turns: on what occasion, how fast, and where."""

    what: str
    ratio: MeasuredRatio
    where: str


def _speeds(report: Report | None, timed: Mapping[str, Latency | None]) -> list[_Speed]:
    found = []
    for what, latency in timed.items():
        if latency is None:
            continue
        ratio = MeasuredRatio(
            float32_ms=latency.float32_ms,
            own_ms=latency.converted_ms,
            ratio=latency.ratio,
            low=latency.low,
            high=latency.high,
            median_low=latency.median_low,
            median_high=latency.median_high,
            rounds=latency.rounds,
        )
        found.append(_Speed(f"{what}, batch {latency.batch_size}", ratio, latency.machine))
    if report is not None and report.guard is not None and report.guard.result is not None:
        machine = report.guard.machine or {}
        threads = machine.get("threads", "?")
        where = f"{machine.get('cpu', 'unknown')}, {threads} thread{'' if threads == '1' else 's'}"
        if machine.get("device", "cpu(0)") != "cpu(0)":
            where = machine["device"]
        found.append(_Speed("when converted (guard)", report.guard.result, where))
    return found


def speed_figure(
    report: Report | None, timed: Mapping[str, Latency | None], tuned: Figure | None = None
) -> Figure | None:
    """Return how many times as fast the model is: measured, else estimated; None where nothing is known.

    ``tuned`` is what was measured when it was tuned, if it was.
    """
    speeds = _speeds(report, timed)
    if speeds:
        best = speeds[0].ratio
        return Figure(
            "Speed, measured",
            f"{best.ratio:.2f}\u00d7",
            f"{_ms(best.float32_ms)} to {_ms(best.own_ms)}; {best.low:.2f} to {best.high:.2f} over rounds",
            is_bad=best.median_high < 1,
        )
    if tuned is not None:
        return tuned
    if report is not None and report.time is not None and report.time.mixed_us:
        ratio = report.time.float32_us / report.time.mixed_us
        kind = f"estimated for {report.time.machine}, not measured"
        if report.time.measured_nodes:
            kind = "the sum of measured nodes"
        return Figure("Speed", f"{ratio:.2f}\u00d7", kind)
    return None


def speed_section(report: Report | None, timed: Mapping[str, Latency | None]) -> Section | None:
    """Return how fast both models are; None where nothing is known."""
    tables = []
    speeds = _speeds(report, timed)
    if speeds:
        rows = [
            (
                what,
                _ms(ratio.float32_ms),
                _ms(ratio.own_ms),
                f"{ratio.ratio:.2f}",
                f"{ratio.median_low:.2f} to {ratio.median_high:.2f}",
                f"{ratio.low:.2f} to {ratio.high:.2f}",
                str(ratio.rounds),
                where,
            )
            for what, ratio, where in speeds
        ]
        tables.append(
            Table(
                (
                    "Measured",
                    ">FP32",
                    ">This model",
                    ">Times as fast",
                    ">95 % bounds of the median",
                    ">10th to 90th percentile",
                    ">Rounds",
                    "Where",
                ),
                tuple(rows),
            )
        )
    if report is not None and report.race:
        rows_of_plans = tuple(
            (
                f"{plan.name} (chosen)" if plan.is_chosen else plan.name,
                "" if plan.median_ms is None else _ms(plan.median_ms),
                "" if plan.ratio is None else f"{plan.ratio:.2f}",
                str(plan.low_nodes),
                str(plan.casts),
                plan.problem,
            )
            for plan in report.race
        )
        columns = ("Plan", ">Median", ">Times as fast", ">Low nodes", ">Casts", "Problem")
        tables.append(Table(columns, rows_of_plans, caption="Plans that were run against each other"))
    if report is not None and report.time is not None:
        time = report.time
        kind = (
            f"sum of {count_of(time.measured_nodes, 'measured node')}"
            if time.measured_nodes
            else f"estimate by costs of {time.machine}, "
            f"{'measured there' if time.is_measured else 'computed from published rates'}"
        )
        tables.append(
            Table(
                ("Expected", ">FP32", ">This model", ">Of which casts"),
                ((kind, _ms(time.float32_us / 1e3), _ms(time.mixed_us / 1e3), _ms(time.casts_us / 1e3)),),
            )
        )
    if not tables:
        return None
    if speeds:
        paragraphs = ["One forward pass; both models by turns, each as deployed."]
    elif report is not None and report.race:
        paragraphs = ["One forward pass; the plans by turns."]
    elif report is not None and report.curve is not None and report.curve.is_timed:
        paragraphs = ["These are expectations; what was measured when tuning is below."]
    else:
        paragraphs = ["Nothing was measured; these are expectations. Measure with mxamp compare."]
    notes = []
    if report is not None and report.guard is not None:
        notes.append(f"Guard: {report.guard.reason}.")
    return Section("Speed", tuple(paragraphs), tuple(tables), notes=tuple(notes))


def worst_error(fidelity: Fidelity) -> Figure:
    """Return the largest error of any output."""
    worst = fidelity.worst_output
    detail = f"relative L2 distance from FP32, {count_of(fidelity.samples, 'sample')}"
    if len(fidelity.outputs) > 1:
        detail += f", worst of {len(fidelity.outputs)} outputs"
    return Figure("Error", format_number(worst.distance.relative_l2), detail, is_bad=not _is_close(worst))


def _is_close(output: OutputFidelity) -> bool:
    return output.distance.relative_l2 < 0.5 and not (
        output.distance.converted_nan > output.distance.reference_nan
        or output.distance.converted_inf > output.distance.reference_inf
    )


def fidelity_section(fidelity: Fidelity) -> Section:
    """Return how far the outputs are from the FP32 model's."""
    rows = []
    for output in fidelity.outputs:
        measured = output.distance
        low, high = output.relative_l2_low, output.relative_l2_high
        votes = ""
        if output.top1_agreement is not None:
            votes = f"{100 * output.top1_agreement:.1f} %"
            if output.top1_low is not None and output.top1_high is not None:
                votes += f" ({100 * output.top1_low:.1f} to {100 * output.top1_high:.1f})"
        bad = measured.converted_nan + measured.converted_inf
        rows.append(
            (
                output.name,
                "x".join(map(str, output.shape)) or "scalar",
                format_number(measured.relative_l2),
                "" if low is None or high is None else f"{format_number(low)} to {format_number(high)}",
                format_number(measured.max_abs),
                format_number(measured.mean_error, signed=True),
                f"{measured.sqnr_db:.1f} dB",
                votes,
                str(bad) if bad else "none",
            )
        )
    columns = (
        "Output",
        "Shape",
        ">Relative L2",
        ">95 % bounds",
        ">Largest",
        ">Bias",
        ">SQNR",
        ">Same top-1 (95 % bounds)",
        ">NaN, Inf",
    )
    return Section(
        "Fidelity",
        (
            f"Distance from the FP32 outputs on the same {count_of(fidelity.samples, 'sample')} "
            f"({fidelity.ctx}). This is not accuracy, which needs labels. Bounds are those of the mean over "
            "samples like these.",
        ),
        (Table(columns, tuple(rows)),),
        notes=fidelity.notes,
    )


def layer_section(fidelity: Fidelity) -> Section | None:
    """Return the error layer by layer; None where layers were not compared."""
    layers = fidelity.layers
    if not layers:
        return None
    points = tuple(
        Point(number, layer.distance.relative_l2, layer.name, layer.dtype or "")
        for number, layer in enumerate(layers)
    )
    plot = Plot(
        "layers, in topological order",
        "relative L2 error",
        points,
        log_y=True,
        limit=fidelity.threshold,
    )
    tables = []
    jumps = fidelity.largest_jumps(_JUMPS)
    if jumps:
        rows = tuple([(*_layer_cells(layer), f"x{format_number(layer.jump)}") for layer in jumps])
        columns = ("Layer", "Operator", "Computed in", ">Relative L2", ">Growth")
        tables.append(Table(columns, rows, caption="Where the error grows most"))
    tables.append(
        Table(
            ("Layer", "Operator", "Computed in", ">Relative L2"),
            tuple([_layer_cells(layer) for layer in layers]),
            caption=f"All {len(layers)} layers",
            folded=True,
        )
    )
    start, first = fidelity.first_difference, fidelity.first_above_threshold
    said = "Both models with fusion off, on the first samples. "
    said += "No layer differs." if start is None else f"Starts to differ at {start.name}. "
    if start is not None and first is not None:
        said += f"First above {fidelity.threshold:.3g}: {first.name}."
    elif start is not None:
        said += f"None is above {fidelity.threshold:.3g}."
    if any(layer.distance.relative_l2 < 1e-8 for layer in layers):
        said += " Layers that are equal, or nearer than 1e-8, stand on the lower edge."
    return Section("Error, layer by layer", (said,), tuple(tables), plot)


def _layer_cells(layer: LayerFidelity) -> tuple[str, str, str, str]:
    return layer.name, layer.op, layer.dtype or "?", format_number(layer.distance.relative_l2)


def _ms(milliseconds: float) -> str:
    if milliseconds < 1:
        return f"{1e3 * milliseconds:.3g} \u00b5s"
    return f"{milliseconds:.2f} ms" if milliseconds < 100 else f"{milliseconds:.0f} ms"
