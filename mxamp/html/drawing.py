"""What the picture of a graph shows: its operators, the values between them, its casts and its groups.

A cast is drawn as the value that it casts, not as a node: what a reader looks for is where precision changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Collection, Mapping, Sequence

from mxamp.compare.fidelity import LayerFidelity
from mxamp.dtypes import DType
from mxamp.graph.graph import Graph
from mxamp.graph.infer import EntryDtypes, infer_dtypes, variable_dtypes
from mxamp.graph.library_operators import emulated_dtypes
from mxamp.graph.output_names import output_names
from mxamp.html.folding import MOST_SHOWN, Folding, fold
from mxamp.ops import FACTS
from mxamp.report.inspection import compute_dtype
from mxamp.report.model import NodeReport, Report

INPUT, OUTPUT = "(input)", "(output)"
"""What stands for an operator where the graph begins and ends."""

_OUTPUT_NUMBER = re.compile(r"\[\d+\]$")


@dataclass(frozen=True)
class Shape:
    """One node of the picture: an operator, an input or an output of the model.

    Attributes
    ----------
    name
        Its name in the model that is drawn.
    op
        Its operator; ``INPUT`` or ``OUTPUT``.
    dtype
        The dtype it computes in; None where only run time can tell.
    is_low
        Whether that is a low one.
    group
        The innermost group that holds it; -1 where none does.
    report
        What the conversion says of it, where that is known.
    holds
        The nodes of the user's model that went into it.
    error
        The relative L2 error of its first output, where it was measured.
    """

    name: str
    op: str
    dtype: str | None
    is_low: bool
    group: int = -1
    report: NodeReport | None = None
    holds: tuple[str, ...] = ()
    error: float | None = None


@dataclass(frozen=True)
class Cast:
    """A cast on the way from one node to others."""

    name: str
    from_dtype: str | None
    to_dtype: str | None


@dataclass(frozen=True)
class Arrow:
    """A value that one node hands to another.

    Attributes
    ----------
    source, target
        The nodes, as positions.
    cast
        The last cast on the way, as a position; -1 where there is none.
    """

    source: int
    target: int
    cast: int = -1


@dataclass(frozen=True)
class Drawing:
    """A picture of a graph, before anybody lays it out.

    Attributes
    ----------
    shapes
        Inputs, then operators in topological order, then outputs.
    arrows
        The values between them, each once a pair of nodes and cast.
    casts
        Every cast between floats on an arrow.
    folding
        The groups; members are counted as ``shapes`` are.
    """

    shapes: tuple[Shape, ...]
    arrows: tuple[Arrow, ...]
    casts: tuple[Cast, ...]
    folding: Folding

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for the page, where a text that repeats is there once."""
        texts: dict[str, int] = {}

        def text(of: str | None) -> int:
            return -1 if not of else texts.setdefault(of, len(texts))

        shapes = []
        for shape in self.shapes:
            plain: dict[str, Any] = {"n": shape.name, "o": text(shape.op), "d": text(shape.dtype)}
            plain.update({"l": int(shape.is_low), "g": shape.group})
            if shape.error is not None:
                plain["e"] = float(f"{shape.error:.3g}") if shape.error < float("inf") else "inf"
            if shape.holds:
                plain["h"] = list(shape.holds)
            if shape.report is not None:
                plain.update(_of_report(shape.report, text))
            shapes.append(plain)
        return {
            "shapes": shapes,
            "arrows": [[arrow.source, arrow.target, arrow.cast] for arrow in self.arrows],
            "casts": [[cast.name, text(cast.from_dtype), text(cast.to_dtype)] for cast in self.casts],
            "groups": [[group.label, group.parent] for group in self.folding.groups],
            "texts": list(texts),
        }


def _of_report(report: NodeReport, text: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {"w": text(report.reason), "r": text(report.rule), "c": text(report.color)}
    if report.accumulation not in (None, report.compute):
        plain["a"] = text(report.accumulation)
    if report.float32_us is not None and report.mixed_us is not None:
        plain["t"] = [report.float32_us, report.mixed_us, report.cast_us or 0.0, int(report.is_time_measured)]
    return plain


def draw(
    graph: Graph,
    stored: Mapping[str, DType],
    *,
    report: Report | None = None,
    layers: Sequence[LayerFidelity] | None = None,
    most: int = MOST_SHOWN,
) -> Drawing:
    """Draw a model.

    Parameters
    ----------
    graph
        Its graph, casts included.
    stored
        Parameter name -> dtype; every other variable is an input.
    report
        What its conversion did.
    layers
        How far its layers are from the FP32 model's.
    most
        The most that a group holds.
    """
    dtypes = emulated_dtypes(graph, infer_dtypes(graph, variable_dtypes(graph, stored)))
    inputs = [position for name, position in graph.variables.items() if name not in stored]
    cast_of = {position for position in range(len(graph.nodes)) if _is_plain_cast(graph, position, dtypes)}
    operators = [
        position
        for position, node in enumerate(graph.nodes)
        if not node.is_variable and position not in cast_of
    ]
    place = {position: number for number, position in enumerate([*inputs, *operators])}
    casts: list[Cast] = []
    reached = _behind_casts(graph, cast_of, place, dtypes, casts)

    arrows: dict[Arrow, None] = {}
    for position in operators:
        for entry in graph.nodes[position].inputs:
            source, cast = reached.get(entry.node, (-1, -1))
            if source >= 0:
                arrows.setdefault(Arrow(source, place[position], cast))
    heads = [*zip(output_names(graph), graph.heads)]
    for number, (_, head) in enumerate(heads):
        source, cast = reached.get(head.node, (-1, -1))
        if source >= 0:
            arrows.setdefault(Arrow(source, len(place) + number, cast))

    names = [graph.nodes[position].name for position in operators]
    crossings = _crossings(len(operators), len(inputs), arrows)
    folding = fold(names, crossings, most=most)
    members = [-1] * len(inputs) + list(folding.members) + [-1] * len(heads)
    told, holds = _told_by(report)
    errors = _errors(layers)
    shapes = [_variable(graph.nodes[position].name, INPUT, dtypes[position][0]) for position in inputs]
    for position, group in zip(operators, folding.members):
        node = graph.nodes[position]
        incoming = [dtypes[entry.node][entry.output] for entry in node.inputs]
        dtype = compute_dtype(node, incoming, dtypes[position])
        shapes.append(
            Shape(
                name=node.name,
                op=node.op,
                dtype=None if dtype is None else dtype.label,
                is_low=dtype is not None and dtype.is_low_precision,
                group=group,
                report=told.get(node.name),
                holds=tuple(holds.get(node.name, ())),
                error=errors.get(node.name),
            )
        )
    shapes += [_variable(name, OUTPUT, dtypes[head.node][head.output]) for name, head in heads]
    return Drawing(tuple(shapes), tuple(arrows), tuple(casts), Folding(folding.groups, tuple(members)))


def _variable(name: str, kind: str, dtype: DType | None) -> Shape:
    is_low = dtype is not None and dtype.is_low_precision
    return Shape(name, kind, None if dtype is None else dtype.label, is_low)


def _is_plain_cast(graph: Graph, position: int, dtypes: EntryDtypes) -> bool:
    """Whether a node only changes the precision of floats: a cast to integers is part of the computation."""
    node = graph.nodes[position]
    if not FACTS.is_cast(node.op):
        return False
    source = node.inputs[0]
    ends = (dtypes[source.node][source.output], dtypes[position][0])
    return all(dtype is not None and dtype.is_float for dtype in ends)


def _behind_casts(
    graph: Graph,
    cast_of: Collection[int],
    place: Mapping[int, int],
    dtypes: EntryDtypes,
    casts: list[Cast],
) -> dict[int, tuple[int, int]]:
    """Return for every node what is drawn for it, and the cast on the way; casts are added to the list."""
    reached = {position: (number, -1) for position, number in place.items()}
    for position in sorted(cast_of):
        node = graph.nodes[position]
        entry = node.inputs[0]
        source, _ = reached.get(entry.node, (-1, -1))
        if source < 0:  # a parameter, which is not drawn
            continue
        before, after = dtypes[entry.node][entry.output], dtypes[position][0]
        casts.append(Cast(node.name, *(None if dtype is None else dtype.label for dtype in (before, after))))
        reached[position] = source, len(casts) - 1
    return reached


def _crossings(operators: int, inputs: int, arrows: Collection[Arrow]) -> list[int]:
    """Return for every operator how many values of others before it are read at it or behind it."""
    last_read: dict[int, int] = {}
    for arrow in arrows:
        source, target = arrow.source - inputs, min(arrow.target - inputs, operators - 1)
        if source >= 0:
            last_read[source] = max(last_read.get(source, 0), target)
    change = [0] * (operators + 1)
    for source, target in last_read.items():
        change[source + 1] += 1
        change[target + 1] -= 1
    crossing, found = 0, []
    for step in change[:operators]:
        crossing += step
        found.append(crossing)
    return found


def _told_by(report: Report | None) -> tuple[dict[str, NodeReport], dict[str, list[str]]]:
    """Return node -> what was decided for it, and node -> the user's nodes that went into it."""
    told: dict[str, NodeReport] = {}
    holds: dict[str, list[str]] = {}
    for node in () if report is None else report.nodes:
        if node.name == node.name_after:
            told[node.name] = node
        else:
            told.setdefault(node.name_after, node)
            holds.setdefault(node.name_after, []).append(node.name)
    return told, holds


def _errors(layers: Sequence[LayerFidelity] | None) -> dict[str, float]:
    """Return node of the converted model -> relative L2 error."""
    errors: dict[str, float] = {}
    for layer in layers or ():
        errors.setdefault(_OUTPUT_NUMBER.sub("", layer.converted_name), layer.distance.relative_l2)
        errors.setdefault(_OUTPUT_NUMBER.sub("", layer.name), layer.distance.relative_l2)
    return errors
