"""What the report says of accuracy: a table with a line for every conversion of every network."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from model_zoo_eval.accuracy.evaluate import FP32
from model_zoo_eval.accuracy.job import ACCURACY
from model_zoo_eval.rows import OK
from model_zoo_eval.tables import Heading, Paragraph, Table

__all__ = ["accuracy_parts", "accuracy_rows", "is_within_chance", "verdict"]

Row = Mapping[str, Any]

_NAMES = {
    "bfloat16": "BF16, executed",
    "float16": "FP16, emulated",
    "float16 pure": "pure FP16, emulated",
}


def accuracy_rows(rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return those rows that are of accuracy."""
    return {key: row for key, row in rows.items() if row.get("kind") == ACCURACY}


def is_within_chance(row: Row) -> bool:
    """Say whether every difference of a row has an interval with zero in it, where there is an interval."""
    return all(found.get("inside", True) for found in row.get("results", {}).values())


def verdict(rows: Mapping[str, Row]) -> str:
    """Say in one sentence whether conversion made a difference to any network."""
    found = [
        (key, variant, one)
        for key, row in rows.items()
        for variant, one in row.get("results", {}).items()
        if "inside" in one
    ]
    outside = [f"{key} in {variant}" for key, variant, one in found if not one["inside"]]
    if outside:
        return (
            f"{len(outside)} of {len(found)} differences to FP32 are more than chance, their 95 % interval "
            f"does not contain zero: {', '.join(outside)}."
        )
    return (
        f"Every one of {len(found)} differences to FP32 is inside its 95 % confidence interval around zero."
    )


def accuracy_parts(rows: Mapping[str, Row]) -> list[Heading | Paragraph | Table]:
    """Return the report's part about accuracy; empty where there are no rows of it."""
    own = accuracy_rows(rows)
    done = {key: row for key, row in own.items() if row["status"] == OK}
    if not own:
        return []
    parts: list[Heading | Paragraph | Table] = [Heading(f"Accuracy: {len(done)} networks")]
    failed = [(key, row["status"], row["reason"]) for key, row in own.items() if row["status"] != OK]
    if failed:
        parts.append(Table(("network", "end", "why"), failed, left=3))
    if not done:
        return parts
    parts.append(Paragraph(verdict(done)))
    published = any(row.get("published") for row in done.values())
    header = ["network", "data", "samples", "metric", *(["published"] if published else []), "FP32", "dtype"]
    header += ["value", "difference", "95 % interval", "lost", "gained", "of", "McNemar's p"]
    lines = [line for key, row in done.items() for line in _lines(key, row, published=published)]
    parts.append(Table(header, lines, left=2))
    parts += [
        Paragraph(
            "Metrics are in percent, differences and intervals in percentage points. FP32 is the model "
            "itself, fused as deployed. Pure FP16 is all that can be FP16; the others keep in FP32 what "
            "mxamp keeps by default. Lost and gained are the items that only FP32, and only the conversion, "
            "gets right; p is McNemar's exact test of them. Intervals are Newcombe's for paired shares, and "
            "for mAP and mIoU percentiles of a bootstrap over the samples."
        )
    ]
    parts += [Paragraph(f"{key}: {note}.") for key, row in done.items() for note in row.get("notes", ())]
    return parts


def _lines(key: str, row: Row, *, published: bool) -> list[Sequence[str]]:
    results = row["results"]
    metric, base = next(iter(results[FP32]["metrics"].items()))
    lines = []
    for variant, found in results.items():
        if variant == FP32:
            continue
        first = not lines
        flips = found.get("flips")
        interval = found.get("interval")
        line = [key, row["data"], str(row["samples"]), metric] if first else ["", "", "", ""]
        if published:
            line.append(row.get("published", "") if first else "")
        line += [
            _percent(base) if first else "",
            _NAMES.get(variant, variant),
            _percent(found["metrics"][metric]),
            _points(found["difference"]),
            f"{_points(interval[0])} to {_points(interval[1])}" if interval else "-",
            *([str(flips["lost"]), str(flips["gained"])] if flips else ["-", "-"]),
            f"{flips['count']} {flips['items']}" if flips else "-",
            f"{found['p']:.2g}" if flips else "-",
        ]
        lines.append(line)
    return lines


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _points(value: float) -> str:
    return f"{100 * value:+.2f}" if round(100 * value, 2) else "0.00"
