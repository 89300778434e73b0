"""What compensated weights did, for the report."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Mapping


@dataclass(frozen=True)
class CompensatedLayer:
    """What compensation did to the layers that read one weight.

    Attributes
    ----------
    nodes
        The layers.
    weight
        Their weight.
    bias
        Their bias, where it was chosen with the weight.
    nearest, chosen
        The mean squared change of a layer's outputs, summed over them, on the calibration's samples: with
        nearest rounding and as it was rounded.
    """

    nodes: tuple[str, ...]
    weight: str
    bias: str | None
    nearest: float
    chosen: float


@dataclass(frozen=True)
class CompensationReport:
    """How weights were rounded by a calibration.

    Attributes
    ----------
    mode
        ``"full"`` or ``"mean"``.
    samples
        How many samples the calibration was made with.
    layers
        What was done.
    left
        Layer -> why it was rounded to nearest.
    """

    mode: str
    samples: int
    layers: tuple[CompensatedLayer, ...]
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def gain(self) -> float | None:
        """How many times less the outputs of a layer change, as the geometric mean; None for no layer."""
        ratios = [layer.nearest / layer.chosen for layer in self.layers if layer.chosen and layer.nearest]
        return math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios) / 2) if ratios else None

    @classmethod
    def from_mapping(cls, document: Mapping[str, Any]) -> CompensationReport:
        """Return what :func:`dataclasses.asdict` made a mapping of."""
        return cls(**{**document, "layers": tuple(CompensatedLayer(**each) for each in document["layers"])})


def compensation_lines(report: CompensationReport) -> list[str]:
    """Say what was done, a sentence a line."""
    count = sum(len(layer.nodes) for layer in report.layers)
    what = "Weights and biases rounded" if report.mode == "full" else "Biases corrected"
    text = f"{what} for what {count} layer{'' if count == 1 else 's'} compute{'s' if count == 1 else ''}"
    text += f", by a calibration with {report.samples} sample{'' if report.samples == 1 else 's'}"
    if report.gain is not None:
        text += f": outputs of a layer change {report.gain:.3g} times less than by nearest rounding, on these"
    lines = [f"{text}."]
    if report.left:
        first, why = next(iter(report.left.items()))
        more = f", and {len(report.left) - 1} more" if len(report.left) > 1 else ""
        lines.append(f"Rounded to nearest: {first!r} ({why}){more}.")
    return lines
