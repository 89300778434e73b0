"""What the reader of a comparison should know besides the numbers."""

from __future__ import annotations

from typing import Mapping, Sequence

from mxamp.compare.fidelity import LayerFidelity, OutputFidelity
from mxamp.compare.metrics import Distance, roundoff
from mxamp.dtypes import DType
from mxamp.graph.graph import Graph
from mxamp.graph.output_names import output_names

_RANKING = frozenset({"_contrib_box_nms", "_contrib_MultiBoxDetection", "topk", "argsort", "sort", "argmax"})
"""Operators whose result depends on the order of their inputs' values."""


def renaming_notes(reference: Graph, converted: Graph) -> list[str]:
    """Say that outputs have other names now, where they do."""
    names, others = output_names(reference), output_names(converted)
    if names == others:
        return []
    pairs = [f"{name!r} with {other!r}" for name, other in zip(names, others) if name != other]
    more = f" and {len(pairs) - 3} more" if len(pairs) > 3 else ""
    return [f"Outputs are paired by their position: {', '.join(pairs[:3])}{more}."]


def folding_notes(reference: Graph, folded: Mapping[int, int]) -> list[str]:
    """Say which layers are compared by what they compute together."""
    if not folded:
        return []
    norm, layer = next(iter(folded.items()))
    names = f"{reference.nodes[norm].name!r} is read from {reference.nodes[layer].name!r}"
    if len(folded) == 1:
        return [f"A BatchNorm was folded into the layer before it, which now computes what it did: {names}."]
    return [
        f"{len(folded)} BatchNorms were folded into the layers before them, which now compute what they did; "
        f"for example, {names}."
    ]


def ranking_notes(records: Sequence[LayerFidelity], threshold: float) -> list[str]:
    """Say so where an error is that of rows that changed places."""
    for layer in records:
        if layer.op in _RANKING and layer.jump >= 2 and layer.distance.relative_l2 > threshold:
            return [
                f"{layer.name!r} ({layer.op}) ranks its input: where values nearly tie, rows change places, "
                "and from there on the distance counts every row that moved. Judge detections by the task's "
                "own metric."
            ]
    return []


def fusion_notes(
    outputs: Sequence[OutputFidelity], first: Sequence[Distance], low: DType | None, converted: Graph
) -> list[str]:
    """Say where fusion makes more of an error than low precision does."""
    notes = []
    if low is DType.BFLOAT16 and any(node.op == "clip" for node in converted.nodes):
        notes.append(
            "Layers are read with fusion off, where some bfloat16 operators differ from the fused ones: clip "
            "outside a fused group truncates instead of rounding to nearest."
        )
    for output, fused in zip(outputs, first):
        unfused = output.unfused_relative_l2
        if unfused is not None and fused.relative_l2 > 2 * unfused and fused.relative_l2 > 2 * roundoff(low):
            notes.append(
                f"Most of the error of {output.name!r} comes from MXNet's fused operators: on the "
                f"same samples it is {fused.relative_l2:.3g} as deployed and {unfused:.3g} with fusion off."
            )
    return notes
