"""Accuracy on labelled samples, as a section of a page."""

from __future__ import annotations

from mxamp.evaluation import Evaluation, MetricComparison
from mxamp.html.sections import Figure, Section, Table
from mxamp.messages.counts import count_of


def accuracy_figure(evaluation: Evaluation) -> Figure:
    """Return the main metric."""
    main = evaluation.metrics[0]
    detail = count_of(main.samples, "labelled sample")
    if main.converted is None or main.difference_interval is None:
        return Figure(f"Accuracy ({main.name})", _percent(main.value), f"{_bounds(main)}, {detail}")
    low, high = main.difference_interval
    return Figure(
        f"Accuracy ({main.name})",
        _percent(main.converted),
        f"FP32 {_percent(main.value)}; {_points(low)} to {_points(high)} points (95 %), {detail}",
        is_bad=high < 0,
    )


def accuracy_section(evaluation: Evaluation) -> Section:
    """Return the accuracy of both models, or of one."""
    metrics = evaluation.metrics
    said = f"On {count_of(evaluation.samples, 'labelled sample')}; intervals are of 95 %."
    if all(metric.converted is None for metric in metrics):
        columns: tuple[str, ...] = ("Metric", ">This model", ">95 % bounds")
        rows: list[tuple[str, ...]] = [(each.name, _percent(each.value), _bounds(each)) for each in metrics]
    else:
        said += " Both models see the same samples, so differences are paired."
        columns = ("Metric", ">FP32", ">This model", ">Difference, points", ">95 % bounds")
        is_counted = any(metric.lost is not None for metric in metrics)
        columns += (">Lost, gained", ">p (McNemar)") if is_counted else ()
        rows = [_compared(metric)[: len(columns)] for metric in metrics]
    return Section(
        "Accuracy", (said, *_verdict(metrics[0])), (Table(columns, tuple(rows)),), notes=evaluation.notes
    )


def _compared(metric: MetricComparison) -> tuple[str, ...]:
    flips, chance = "", ""
    if metric.lost is not None:
        flips = f"{metric.lost:,}, {metric.gained:,}"
    if metric.p_value is not None:
        chance = f"{metric.p_value:.2g}"
    low, high = metric.difference_interval or (0.0, 0.0)
    return (
        metric.name,
        f"{_percent(metric.value)} ({_bounds(metric)})",
        "" if metric.converted is None else _percent(metric.converted),
        _points(metric.difference or 0.0),
        f"{_points(low)} to {_points(high)}",
        flips,
        chance,
    )


def _verdict(metric: MetricComparison) -> tuple[str, ...]:
    """Say what the interval of the main metric means."""
    if metric.difference_interval is None:
        return ()
    low, high = metric.difference_interval
    if high < 0:
        least = _points(-high, signed=False)
        return (f"This model does worse: it loses at least {least} points of {metric.name}.",)
    if low > 0:
        return (f"This model does better on {metric.name}: by {_points(low, signed=False)} points or more.",)
    if low == high:
        return (
            f"No difference in {metric.name}, whichever of these samples are drawn: they are too few or too "
            "alike to bound it.",
        )
    most = _points(abs(low), signed=False)
    return (
        f"The difference in {metric.name} is within chance; a loss of more than {most} points is ruled out.",
    )


def _bounds(metric: MetricComparison) -> str:
    low, high = metric.interval
    return f"{100 * low:.2f} to {100 * high:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _points(share: float, *, signed: bool = True) -> str:
    return f"{100 * share:+.2f}" if signed else f"{100 * share:.2f}"
