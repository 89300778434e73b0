"""The report of a run, as Markdown and HTML with plots: failures first, then a table for every task."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from pathlib import Path
from typing import Any, Mapping, Sequence, Union

from model_zoo_eval.build import RANDOM
from model_zoo_eval.job import FP32
from model_zoo_eval.journal import Results
from model_zoo_eval.registry import Entry, registry
from model_zoo_eval.rows import OK, UNAVAILABLE, worst_error
from model_zoo_eval.tables import Heading, Image, Paragraph, Table, to_html, to_markdown
from mxamp.files import atomic_write

__all__ = ["report_parts", "write_report"]

TITLE = "GluonCV model zoo: what conversion does to every model"

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
    images = _images(results)
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
    rows = results.rows
    parts: list[Part] = [Heading(TITLE, 1), *_summary(results)]
    failed = {key: row for key, row in rows.items() if row["status"] not in (OK, UNAVAILABLE)}
    if failed:
        parts += [
            Heading(f"Failures: {len(failed)}"),
            Table(
                ("model", "end", "why"),
                [(key, row["status"], row["reason"]) for key, row in sorted(failed.items())],
                left=3,
            ),
        ]
    parts += images
    for task in dict.fromkeys(entry.task for entry in registry().values()):
        of_task = [
            (key, row, _entry(key))
            for key, row in rows.items()
            if row["status"] == OK and _entry(key).task == task
        ]
        if of_task:
            parts += [Heading(f"{task.capitalize()}: {len(of_task)}"), *_task_tables(of_task)]
    absent = [(key, row) for key, row in rows.items() if row["status"] == UNAVAILABLE]
    if absent:
        reasons: dict[str, list[str]] = {}
        for key, row in absent:
            reasons.setdefault(row["reason"], []).append(key)
        parts += [
            Heading(f"Not evaluated: {len(absent)}"),
            Table(("why", "models"), [(why, ", ".join(keys)) for why, keys in reasons.items()], left=2),
        ]
    return parts


def _entry(key: str) -> Entry:
    return registry()[key.partition("+")[0]]


# ---------------------------------------------------------------------- what it all amounts to


def _summary(results: Results) -> list[Part]:
    rows = results.rows
    names = {key.partition("+")[0] for key in rows}
    parts: list[Part] = []
    if results.runs:
        parts.append(Paragraph(_circumstances(results.runs[-1]["environment"], len(results.runs))))
    parts.append(
        Paragraph(
            "Fidelity is how far a converted model's outputs are from the FP32 model's, on the same weights "
            "and photographs. It is not accuracy, which needs trained weights and labels. The column FP32 is "
            "the FP32 model itself, fused as deployed, against itself with fusion off: what it differs "
            "by is no "
            "loss of any conversion. Errors are relative L2, the worst output's; for a detector, of the "
            "tensors that enter its first ranking."
        )
    )
    weights = Counter(row["weights"] for row in rows.values() if "weights" in row)
    if weights.get(RANDOM):
        parts.append(
            Paragraph(
                f"{weights[RANDOM]} of {sum(weights.values())} results are of random weights with random "
                "BatchNorm statistics. They show rounding error and failures; that a trained network "
                "loses no "
                "more they cannot show, since trained networks have outliers that random ones lack."
            )
        )
    counts = []
    for dtype in _dtypes(rows):
        done = [key for key, row in rows.items() if "heads" in row.get("results", {}).get(dtype, {})]
        errors = [worst_error(rows[key]["results"][dtype]) for key in done]
        finite = [error for error in errors if math.isfinite(error)]
        speeds = _speeds(rows, dtype)
        counts.append(
            (
                dtype,
                _how(rows, dtype),
                f"{len({key.partition('+')[0] for key in done})} of {len(names)}",
                str(len(done)),
                _number(statistics.median(finite)) if finite else "-",
                _number(max(finite)) if finite else "-",
                f"{statistics.geometric_mean(speeds):.2f}" if speeds else "-",
                f"{sum(speed < 1 for speed in speeds)} of {len(speeds)}" if speeds else "-",
            )
        )
    header = ("dtype", "how", "models", "cases", "median error", "largest error", "mean speed", "slower")
    parts.append(Table(header, counts, left=2))
    return parts


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


def _dtypes(rows: Mapping[str, Row]) -> list[str]:
    found = dict.fromkeys(dtype for row in rows.values() for dtype in row.get("results", {}))
    return [dtype for dtype in found if dtype != FP32]


def _how(rows: Mapping[str, Row], dtype: str) -> str:
    found = (row.get("results", {}).get(dtype, {}).get("how") for row in rows.values())
    return next(filter(None, found), "")


def _speeds(rows: Mapping[str, Row], dtype: str) -> list[float]:
    found = (row.get("results", {}).get(dtype, {}).get("latency") for row in rows.values())
    return [float(latency["ratio"]) for latency in found if latency]


def _images(results: Results) -> list[Image]:
    try:
        from model_zoo_eval.plots import error_plot, speed_plot

        drawn = [
            Image("error.svg", "The error of every model, sorted", error_plot(results.rows)),
            Image("speed.svg", "The speed of every model, sorted", speed_plot(results.rows)),
        ]
    except ImportError:  # matplotlib comes with the extra "zoo"; the tables need no plots
        return []
    return [image for image in drawn if image.svg]


# ---------------------------------------------------------------------- the table of a task


def _task_tables(found: Sequence[tuple[str, Row, Entry]]) -> list[Part]:
    rows = {key: row for key, row, _ in found}
    dtypes = _dtypes(rows)
    header = ["model", "weights", "input", "published", "FP32"]
    for dtype in dtypes:
        short = {"bfloat16": "BF16", "float16": "FP16", "float16 on a GPU": "FP16 GPU"}.get(dtype, dtype)
        header += [short, f"{short} dB", f"{short}: {_task_heading(found[0][2].task)}", f"{short} casts"]
        if _speeds(rows, dtype):
            header.append(f"{short} speed")
    header += ["low multiply-adds", "parameters, MB"]
    lines = []
    for key, row, entry in sorted(found, key=lambda each: each[0]):
        results = row["results"]
        cells = [
            key,
            row["weights"],
            " and ".join("x".join(map(str, shape[1:])) for shape in row["inputs"].values()),
            f"{entry.published.metric} {entry.published.value:g}" if entry.published else "",
            _number(worst_error(results[FP32])),
        ]
        for dtype in dtypes:
            one = results.get(dtype, {})
            cells += [
                _number(worst_error(one)) if one else "-",
                _decibel(one),
                _task_cell(one.get("task", {})),
                str(one.get("casts", "-")),
            ]
            if _speeds(rows, dtype):
                latency = one.get("latency")
                cells.append(f"{latency['ratio']:.2f}" if latency else "-")
        first = results.get(dtypes[0], {}) if dtypes else {}
        share = first.get("low_multiply_adds")
        cells += [
            "-" if share is None else f"{100 * share:.1f} %",
            f"{row['parameter_bytes'] / 1e6:.1f} to {first.get('parameter_bytes', 0) / 1e6:.1f}",
        ]
        lines.append(cells)
    parts: list[Part] = [Table(header, lines, left=3)]
    noted: dict[str, list[str]] = {}
    for key, row, _ in found:
        for note in row.get("notes", ()):
            noted.setdefault(note, []).append(key)
    parts += [Paragraph(f"{', '.join(keys)}: {note}.") for note, keys in noted.items()]
    return parts


def _task_heading(task: str) -> str:
    return {
        "classification": "same class",
        "action recognition": "same class",
        "detection": "boxes matched",
        "instance segmentation": "boxes matched",
        "segmentation": "same pixels",
        "pose": "shift, px",
        "depth": "relative difference",
    }.get(task, "of the task")


def _task_cell(measures: Row) -> str:
    if "same_top1" in measures:
        return f"{measures['same_top1']}/{measures['samples']}"
    if "boxes" in measures:
        return f"{measures['matched']}/{measures['boxes']}"
    if "same_pixels" in measures:
        return f"{100 * measures['same_pixels']:.2f} %"
    if "mean_shift_pixels" in measures:
        return f"{measures['mean_shift_pixels']:.2f}"
    if "mean_relative_difference" in measures:
        return _number(measures["mean_relative_difference"])
    return "-"


def _decibel(found: Row) -> str:
    heads = found.get("before_ranking") or found.get("heads")
    if not heads:
        return "-"
    return f"{min(float(head['sqnr_db']) for head in heads):.1f}"


def _number(value: float) -> str:
    return "-" if value is None or math.isnan(float(value)) else f"{float(value):.2g}"
