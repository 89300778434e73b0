"""The report of a run, as Markdown and HTML with plots: failures first, then a table for every task."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from pathlib import Path
from typing import Any, Mapping, Sequence, Union

from model_zoo_eval.accuracy.tables import accuracy_parts, accuracy_rows
from model_zoo_eval.build import RANDOM
from model_zoo_eval.job import FP32
from model_zoo_eval.journal import Results
from model_zoo_eval.registry import Entry, registry
from model_zoo_eval.rows import OK, UNAVAILABLE, worst_error
from model_zoo_eval.tables import Heading, Image, Paragraph, Table, to_html, to_markdown
from model_zoo_eval.task_tables import SHORT, dtypes_of, speeds, task_parts, text_of
from mxamp.files import atomic_write

__all__ = ["report_parts", "write_report"]

TITLE = "GluonCV model zoo: what conversion does to every model"

_EXTREMES = 10
"""How many of the largest errors to name."""

Part = Union[Heading, Paragraph, Image, Table]
Row = Mapping[str, Any]


def write_report(results: Results, folder: Path) -> list[Path]:
    """Write ``report.md``, ``report.html`` and the plots.

    Parameters
    ----------
    results
        What journals hold.
    folder
        Where to; it is made.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ExportError
        When they cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    images = _images(_of_fidelity(results))
    parts = report_parts(results, images)
    texts = {
        folder / "report.md": to_markdown(parts),
        folder / "report.html": to_html(TITLE, parts),
        **{folder / image.file: image.svg + "\n" for image in images},
    }
    with atomic_write(*texts) as files:
        for file, text in zip(files, texts.values()):
            file.write(text.encode("utf-8"))
    return list(texts)


def report_parts(results: Results, images: Sequence[Image] = ()) -> list[Part]:
    """Return what the report says, in order."""
    accuracy = accuracy_parts(results.rows)
    results = _of_fidelity(results)
    rows = results.rows
    if not rows:
        return [Heading(TITLE, 1), *accuracy]
    parts: list[Part] = [Heading(TITLE, 1), *_summary(results), *_failures(rows), *_not_evaluated(rows)]
    parts += accuracy
    parts += [*_new_non_finite(rows), *_slower(rows), *_largest_errors(rows)]
    if images:
        parts += [Heading("Every model at a glance"), *images]
    for task in dict.fromkeys(entry.task for entry in registry().values()):
        of_task = [
            (key, row, _entry(key))
            for key, row in rows.items()
            if row["status"] == OK and _entry(key).task == task
        ]
        if of_task:
            parts += [Heading(f"{task.capitalize()}: {len(of_task)}"), *task_parts(of_task)]
    return parts


def _of_fidelity(results: Results) -> Results:
    """Return results without those of accuracy, which have a table of their own."""
    accuracy = accuracy_rows(results.rows)
    kept = {key: row for key, row in results.rows.items() if key not in accuracy}
    return Results(results.runs, kept, results.run_of)


def _entry(key: str) -> Entry:
    return registry()[_name(key)]


def _name(key: str) -> str:
    return key.partition("+")[0]


# ---------------------------------------------------------------------- what it all amounts to


def _summary(results: Results) -> list[Part]:
    rows = results.rows
    parts: list[Part] = [Paragraph(text) for text in (_coverage(rows), *_skipped(rows)) if text]
    parts.append(_counts(rows))
    parts.append(
        Paragraph(
            "Fidelity is how far a converted model's outputs are from the FP32 model's, on the same weights "
            "and photographs. It is not accuracy, which needs trained weights and labels. Errors are "
            "relative L2, the worst output's; for a detector, of the tensors that enter its first ranking. "
            "dB is the signal to quantization noise ratio of the same tensors. The error of FP32 is that of "
            "the FP32 model, fused as deployed, against itself with fusion off: what it differs by is no "
            "loss of any conversion. Speed is how many times as fast as FP32 the converted model is."
        )
    )
    weights = Counter(row["weights"] for row in rows.values() if "weights" in row)
    if weights.get(RANDOM):
        parts.append(
            Paragraph(
                f"{weights[RANDOM]} of {sum(weights.values())} results are of random weights with random "
                "BatchNorm statistics. They show rounding error and failures; that a trained network loses "
                "no more they cannot show, since trained networks have outliers that random ones lack."
            )
        )
    if results.runs:
        parts.append(Paragraph(_circumstances(results.runs[-1]["environment"], len(results.runs))))
    return parts


def _coverage(rows: Mapping[str, Row]) -> str:
    """Say how many names were converted and run, and what became of the rest."""
    names = {_name(key) for key in rows}
    zoo = len(registry())
    which = (
        f"All {zoo} names of GluonCV's zoo" if len(names) == zoo else f"{len(names)} of the zoo's {zoo} names"
    )
    counts = []
    for dtype in dtypes_of(rows):
        measured = {_name(key) for key, row in rows.items() if _is_measured(row, dtype)}
        counts.append((f"converted to {dtype} and {_verb(rows, dtype)}", len(measured)))
    for what, statuses in (("cannot be evaluated", {UNAVAILABLE}), ("failed", _failures_of(rows))):
        counts.append((what, len({_name(key) for key, row in rows.items() if row["status"] in statuses})))
    return f"{which}: {', '.join(f'{what} {count}' for what, count in counts)}."


def _failures_of(rows: Mapping[str, Row]) -> set[str]:
    return {row["status"] for row in rows.values()} - {OK, UNAVAILABLE}


def _verb(rows: Mapping[str, Row], dtype: str) -> str:
    how = _how(rows, dtype)
    return {"executed": "run", "emulated": "run in emulation", "executed on a GPU": "run on it"}.get(how, how)


def _skipped(rows: Mapping[str, Row]) -> list[str]:
    reasons = Counter(item for row in rows.values() for item in row.get("skipped", {}).items())
    return [f"Not run: {what}, because {why} ({count} cases)." for (what, why), count in reasons.items()]


def _counts(rows: Mapping[str, Row]) -> Table:
    names = {_name(key) for key in rows}
    lines = []
    for dtype in dtypes_of(rows):
        done = [key for key, row in rows.items() if _is_measured(row, dtype)]
        errors = [worst_error(rows[key]["results"][dtype]) for key in done]
        finite = [error for error in errors if math.isfinite(error)]
        ratios = [float(latency["ratio"]) for latency in speeds(rows, dtype).values()]
        took = [float(rows[key]["results"][dtype].get("conversion_seconds", math.nan)) for key in done]
        lines.append(
            (
                dtype,
                _how(rows, dtype),
                f"{len({_name(key) for key in done})} of {len(names)}",
                str(len(done)),
                text_of(statistics.median(finite)) if finite else "-",
                text_of(max(finite)) if finite else "-",
                f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-",
                f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)}" if ratios else "-",
                f"{statistics.median(took):.2f} s" if took else "-",
            )
        )
    header = ("dtype", "how", "models", "cases", "median error", "largest error", "mean speed", "slower")
    return Table((*header, "median conversion"), lines, left=2)


def _is_measured(row: Row, dtype: str) -> bool:
    return "heads" in row.get("results", {}).get(dtype, {})


def _circumstances(environment: Row, runs: int) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in environment["packages"].items())
    flags = f" ({', '.join(environment['cpu_flags'])})" if environment["cpu_flags"] else ""
    several = f" The journal holds {runs} runs; this is the last one's." if runs > 1 else ""
    return (
        f"mxamp {environment['mxamp']} at commit {environment['commit'] or 'unknown'}, Python "
        f"{environment['python']}, {packages}. {environment['cpu']}{flags}, {environment['cores']} cores, "
        f"{environment['threads']} threads a model, seed {environment['seed']}, {environment['started']}."
        f"{several}"
    )


def _how(rows: Mapping[str, Row], dtype: str) -> str:
    found = (row.get("results", {}).get(dtype, {}).get("how") for row in rows.values())
    return next(filter(None, found), "")


# ---------------------------------------------------------------------- what needs a look


def _failures(rows: Mapping[str, Row]) -> list[Part]:
    failed = {key: row for key, row in rows.items() if row["status"] not in (OK, UNAVAILABLE)}
    if not failed:
        return []
    lines = [(key, row["status"], row["reason"]) for key, row in sorted(failed.items())]
    return [Heading(f"Failures: {len(failed)}"), Table(("model", "end", "why"), lines, left=3)]


def _not_evaluated(rows: Mapping[str, Row]) -> list[Part]:
    reasons: dict[str, list[str]] = {}
    for key, row in rows.items():
        if row["status"] == UNAVAILABLE:
            reasons.setdefault(row["reason"], []).append(key)
    if not reasons:
        return []
    lines = [(str(len(keys)), why, ", ".join(keys)) for why, keys in reasons.items()]
    count = sum(len(keys) for keys in reasons.values())
    return [Heading(f"Not evaluated: {count}"), Table(("models", "why", "which"), lines, left=3)]


def _new_non_finite(rows: Mapping[str, Row]) -> list[Part]:
    lines = [
        (key, SHORT.get(dtype, dtype), head["name"], str(head["nan"]), str(head["inf"]))
        for key, row in sorted(rows.items())
        for dtype, found in row.get("results", {}).items()
        for head in (*found.get("before_ranking", ()), *found.get("heads", ()))
        if head["nan"] > head.get("fp32_nan", 0) or head["inf"] > head.get("fp32_inf", 0)
    ]
    if not lines:
        return []
    header = ("model", "dtype", "output", "NaN", "Inf")
    return [Heading(f"NaN and Inf that FP32 does not have: {len(lines)}"), Table(header, lines, left=3)]


def _slower(rows: Mapping[str, Row]) -> list[Part]:
    """Name what is slower than FP32; where the spread of its timing includes 1, say so."""
    lines = []
    for dtype in dtypes_of(rows):
        for key, latency in sorted(speeds(rows, dtype).items(), key=lambda each: float(each[1]["ratio"])):
            ratio, low, high = (float(latency[name]) for name in ("ratio", "ratio_low", "ratio_high"))
            if ratio < 1:
                times = [f"{float(latency[name]):.2f}" for name in ("fp32_ms", "converted_ms")]
                numbers = (f"{ratio:.2f}", f"{low:.2f} to {high:.2f}", "yes" if high < 1 else "no")
                lines.append((key, SHORT.get(dtype, dtype), *times, *numbers))
    if not lines:
        return []
    header = ("model", "dtype", "FP32, ms", "converted, ms", "speed", "10 to 90 %", "beyond the spread")
    return [Heading(f"Slower than FP32: {len(lines)}"), Table(header, lines, left=2)]


def _largest_errors(rows: Mapping[str, Row]) -> list[Part]:
    """Name the largest errors of each dtype: there a model's outputs or a conversion deserve a look."""
    found = [
        (worst_error(row["results"][dtype]), key, dtype)
        for dtype in dtypes_of(rows)
        for key, row in rows.items()
        if _is_measured(row, dtype)
    ]
    lines = []
    for dtype in dtypes_of(rows):
        largest = sorted((each for each in found if each[2] == dtype), key=_by_error)[:_EXTREMES]
        for error, key, _ in largest:
            results = rows[key]["results"]
            heads = results[dtype].get("before_ranking") or results[dtype]["heads"]
            worst = max(heads, key=lambda head: float(head["relative_l2"]))
            fused = text_of(worst_error(results.get(FP32, {})))
            numbers = (text_of(error), _scale_share(worst), fused)
            lines.append((key, SHORT.get(dtype, dtype), worst["name"], *numbers))
    if len(found) <= 2 * _EXTREMES:
        return []
    header = ("model", "dtype", "output", "error", "of it a scale", "FP32's own")
    said = (
        "Rounding turns an output. What multiplies all of it by one number is no rounding, but a defect of "
        "an operator or of a conversion. FP32's own error says how far the model magnifies any rounding."
    )
    return [Heading("Largest errors"), Paragraph(said), Table(header, lines, left=3)]


def _scale_share(head: Row) -> str:
    """Say how much of an error is along the output: what a wrong scale makes, and rounding hardly does."""
    error, cosine = float(head["relative_l2"]), float(head.get("cosine", math.nan))
    if not (math.isfinite(error) and math.isfinite(cosine)) or not error:
        return "-"
    return f"{100 * math.sqrt(max(0.0, 1 - (1 - cosine**2) / error**2)):.0f} %"


def _by_error(found: tuple[float, str, str]) -> tuple[float, str]:
    return -found[0] if math.isfinite(found[0]) else -math.inf, found[1]


def _images(results: Results) -> list[Image]:
    try:
        from model_zoo_eval.plots import error_plot, speed_plot

        drawn = [
            Image("error.svg", "Relative L2 error of every model, by task", error_plot(results.rows)),
            Image("speed.svg", "Speed of every model, by task", speed_plot(results.rows)),
        ]
    except ImportError:  # matplotlib comes with the extra "zoo"; the tables need no plots
        return []
    return [image for image in drawn if image.svg]
