"""The report's table of a task: FP32, BF16 and FP16 beside each other, a line for every model."""

from __future__ import annotations

import math
from typing import Any, Mapping, Sequence

from model_zoo_eval.job import FP32, ON_GPU
from model_zoo_eval.registry import Entry
from model_zoo_eval.rows import worst_error
from model_zoo_eval.tables import Paragraph, Table

__all__ = ["SHORT", "dtypes_of", "speeds", "task_parts", "text_of"]

SHORT = {"bfloat16": "BF16", "float16": "FP16", ON_GPU: "FP16 on GPU"}
"""What tables call a dtype."""

_MEASURES = {
    "classification": "same class",
    "action recognition": "same class",
    "detection": "boxes matched",
    "instance segmentation": "boxes matched",
    "segmentation": "same pixels",
    "pose": "shift, px",
    "depth": "difference",
}

_SAME_CLASS = (
    "Same class: for how many samples the first class is FP32's. To random weights classes are nearly "
    "equally likely, so that the first may change without meaning anything."
)

_BOXES = (
    "Boxes matched: how many of FP32's boxes the converted model finds too, of one class and with an IoU of "
    "0.5 or more. Errors are those of the tensors that enter the first ranking. To random weights hundreds "
    "of candidates nearly tie, and change places."
)

_EXPLAINED = {
    "classification": _SAME_CLASS,
    "action recognition": _SAME_CLASS,
    "detection": _BOXES,
    "instance segmentation": _BOXES,
    "segmentation": "Same pixels: to how many the converted model gives FP32's class. To random weights a "
    "pixel's classes are nearly equally likely.",
    "pose": "Shift: how far keypoints are from FP32's, on average, in pixels of the input. A heat map of "
    "random weights has several peaks of nearly one height, and a keypoint may go from one to another.",
    "depth": "Difference: of the disparities, relative, on average.",
}

Row = Mapping[str, Any]


def dtypes_of(rows: Mapping[str, Row]) -> list[str]:
    """Return what the rows have results of beside FP32."""
    found = dict.fromkeys(dtype for row in rows.values() for dtype in row.get("results", {}))
    return [dtype for dtype in found if dtype != FP32]


def speeds(rows: Mapping[str, Row], dtype: str) -> dict[str, Row]:
    """Return the latencies of a dtype by case, where there are any."""
    found = {key: row.get("results", {}).get(dtype, {}).get("latency") for key, row in rows.items()}
    return {key: latency for key, latency in found.items() if latency}


def text_of(value: float | str | None) -> str:
    """Return a number as tables have it: two digits, and a dash where there is none."""
    if value is None or math.isnan(float(value)):
        return "-"
    return "0" if float(value) == 0 else f"{float(value):.1e}"


def task_parts(found: Sequence[tuple[str, Row, Entry]]) -> list[Paragraph | Table]:
    """Return the table of a task, what its columns mean, and the notes on its rows.

    Parameters
    ----------
    found
        The key, the row and the registry's entry of every case, all of one task and all of them done.
    """
    rows = {key: row for key, row, _ in found}
    dtypes = dtypes_of(rows)
    task = found[0][2].task
    timed = {dtype: bool(speeds(rows, dtype)) for dtype in dtypes}
    weights = sorted({row["weights"] for row in rows.values()})
    header, groups = _header(task, timed, several_weights=len(weights) > 1)
    lines = [
        _line(key, row, entry, timed, len(weights) > 1) for key, row, entry in sorted(found, key=_by_key)
    ]
    parts: list[Paragraph | Table] = []
    explained = [_EXPLAINED[task]] if task in _EXPLAINED else []
    if len(weights) == 1:
        explained.append(f"All of them have {_WEIGHTS[weights[0]]}.")
    if explained:
        parts.append(Paragraph(" ".join(explained)))
    parts.append(Table(header, lines, left=4 if len(weights) > 1 else 3, groups=groups))
    noted: dict[str, list[str]] = {}
    for key, row, _ in found:
        for note in row.get("notes", ()):
            noted.setdefault(note, []).append(key)
    parts += [Paragraph(f"{', '.join(keys)}: {note}.") for note, keys in noted.items()]
    return parts


_WEIGHTS = {
    "random": "random weights",
    "trained": "GluonCV's trained weights",
    "file": "the weights of files",
}


def _by_key(found: tuple[str, Row, Entry]) -> str:
    return found[0]


def _header(
    task: str, timed: Mapping[str, bool], *, several_weights: bool
) -> tuple[list[str], list[tuple[str, int]]]:
    first = ["model", "input", *(["weights"] if several_weights else []), "published"]
    header = [*first, "error"]
    groups = [("", len(first)), ("FP32", 1)]
    for dtype, has_speed in timed.items():
        measure = [_MEASURES[task]] if task in _MEASURES else []
        columns = ["error", "dB", *measure, "casts", *(["speed"] if has_speed else [])]
        header += columns
        groups.append((SHORT.get(dtype, dtype), len(columns)))
    return [*header, "low operations", "parameters, MB"], [*groups, ("", 2)]


def _line(
    key: str, row: Row, entry: Entry, timed: Mapping[str, bool], several_weights: bool
) -> Sequence[str]:
    results = row["results"]
    cells = [key, " and ".join("x".join(map(str, shape[1:])) for shape in row["inputs"].values())]
    if several_weights:
        cells.append(row["weights"])
    cells += [
        f"{entry.published.metric} {entry.published.value:g}" if entry.published else "",
        text_of(worst_error(results.get(FP32, {}))),
    ]
    for dtype, has_speed in timed.items():
        one = results.get(dtype, {})
        cells += [
            text_of(worst_error(one)),
            _decibel(one),
            *([_measure(one.get("task", {}))] if entry.task in _MEASURES else []),
            str(one.get("casts", "-")),
        ]
        if has_speed:
            cells.append(f"{one['latency']['ratio']:.2f}" if "latency" in one else "-")
    first: Row = next((results[dtype] for dtype in timed if dtype in results), {})
    share = first.get("low_multiply_adds")
    return [
        *cells,
        "-" if share is None else f"{100 * share:.1f} %",
        f"{row['parameter_bytes'] / 1e6:.1f} to {first.get('parameter_bytes', 0) / 1e6:.1f}",
    ]


def _measure(measures: Row) -> str:
    if "same_top1" in measures:
        return f"{measures['same_top1']}/{measures['samples']}"
    if "boxes" in measures:
        return f"{measures['matched']}/{measures['boxes']}"
    if "same_pixels" in measures:
        return f"{100 * measures['same_pixels']:.2f} %"
    if "mean_shift_pixels" in measures:
        return f"{measures['mean_shift_pixels']:.2f}"
    return text_of(measures.get("mean_relative_difference"))


def _decibel(found: Row) -> str:
    heads = found.get("before_ranking") or found.get("heads")
    return f"{min(float(head['sqnr_db']) for head in heads):.1f}" if heads else "-"
