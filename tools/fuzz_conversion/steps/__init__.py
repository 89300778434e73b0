"""What a random model is made of: steps by family. A step reads values of a draft and returns a symbol."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from tools.fuzz_conversion.draft import Draft
from tools.fuzz_conversion.steps import (
    arithmetic,
    attention,
    control_flow,
    detection,
    forms,
    indexing,
    layers,
    normalization,
    numpy_mode,
    recurrent,
    reductions,
    sequences,
    shapes,
)

__all__ = ["FORMS", "LEGACY", "NUMPY", "Step"]

Step = Callable[[Draft], Any]

FORMS = "forms"
"""The family whose steps need large tensors."""

LEGACY: Mapping[str, Sequence[Step]] = {
    "arithmetic": arithmetic.STEPS,
    "layers": layers.STEPS,
    "normalization": normalization.STEPS,
    "shapes": shapes.STEPS,
    "reductions": reductions.STEPS,
    "indexing": indexing.STEPS,
    "attention": attention.STEPS,
    "recurrent": recurrent.STEPS,
    "sequences": sequences.STEPS,
    "detection": detection.STEPS,
    "control flow": control_flow.STEPS,
    FORMS: forms.STEPS,
}
"""Family -> steps of MXNet's operators."""

NUMPY: Mapping[str, Sequence[Step]] = {"numpy": numpy_mode.STEPS}
"""Family -> steps in NumPy mode."""
