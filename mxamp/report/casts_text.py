"""Casts as text: in groups of one direction and one reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mxamp.messages.counts import count_of, shown_of, some_of
from mxamp.report.table import format_bytes, paragraph

if TYPE_CHECKING:
    from mxamp.report.model import CastReport, NodeReport, Report


_CASTS_SHOWN = 4


def cast_lines(report: Report, width: int) -> list[str]:
    """Return what is said of the casts, the largest groups first."""
    if not report.casts:
        return ["No casts at run time."]
    down = sum(cast.direction == "down" for cast in report.casts)
    heading = f"{count_of(len(report.casts), 'cast')} at run time: {down} down, {len(report.casts) - down} up"
    moved = [cast.bytes for cast in report.casts if cast.bytes is not None]
    if moved:
        heading += f", {format_bytes(sum(moved))} read and written by a forward pass"
    lines = paragraph(heading, width)
    ordered = cast_groups(report)
    shown_reasons = shown_of(ordered)
    for (kind, why), casts in ordered[:shown_reasons]:
        count = f"{len(casts)} x " if len(casts) > 1 else ""
        lines += paragraph(f"{count}{kind}: {why}", width, indent="  ", hanging="    ")
        # "and 1 more" takes a line too.
        shown = len(casts) if len(casts) <= _CASTS_SHOWN + 1 else _CASTS_SHOWN
        for cast in casts[:shown]:
            place = f"{cast.entry} for {some_of(cast.consumers, 3)}"
            lines += paragraph(place, width, indent="      ", hanging="        ")
        if len(casts) > shown:
            lines.append(f"      and {len(casts) - shown} more")
    if len(ordered) > shown_reasons:
        left = sum(len(casts) for _, casts in ordered[shown_reasons:])
        lines += paragraph(
            f"and {count_of(left, 'cast')} for {len(ordered) - shown_reasons} other reasons.",
            width,
            indent="  ",
        )
    return lines


def cast_groups(report: Report) -> list[tuple[tuple[str, str], list[CastReport]]]:
    """Return the casts by what they do and why they are there, the most frequent first."""
    by_name = {node.name: node for node in report.nodes}
    groups: dict[tuple[str, str], list[CastReport]] = {}
    for cast in report.casts:
        kind = f"{cast.from_dtype or 'whatever comes'} -> {cast.to_dtype}"
        groups.setdefault((kind, why_cast(cast, report, by_name)), []).append(cast)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def why_cast(cast: CastReport, report: Report, by_name: dict[str, NodeReport]) -> str:
    """Return why a cast is there: the reason of the side that stays out of low precision."""
    if cast.direction == "down":
        producer = by_name.get(cast.entry) or by_name.get(re.sub(r"\[\d+\]$", "", cast.entry))
        if producer is not None:
            return f"what makes it stays {cast.from_dtype or 'as it is'}: {producer.reason}"
        if cast.entry in report.inputs:
            return f"an input of the model, which stays {cast.from_dtype}"
        if _in_body(cast, by_name):
            return f"an input of a control-flow body, which stays {cast.from_dtype}"
        return "a parameter that is cast at every forward pass"
    for name in cast.consumers:
        consumer = by_name.get(name)
        if consumer is not None:
            return f"what reads it needs {cast.to_dtype}: {consumer.reason}"
    if _in_body(cast, by_name):
        return f"a result of a control-flow body, which stays {cast.to_dtype}"
    return f"an output of the model, which stays {cast.to_dtype}"


def _in_body(cast: CastReport, by_name: dict[str, NodeReport]) -> bool:
    """Whether a cast stands in the body of a control-flow node: ``loop/name``."""
    return by_name.get(cast.name.rpartition("/")[0]) is not None
