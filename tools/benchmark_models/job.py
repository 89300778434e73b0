"""What to measure, and how: all that the process which measures needs to know."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Mapping

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """What to measure, and how.

    Attributes
    ----------
    name, form
        The model, and its graph form.
    batch
        Samples a forward pass; 0 for the time of conversion instead.
    seconds
        About how long to time forward passes, all variants together.
    rounds
        How often to time each variant; None for as often as ``seconds`` allow.
    seed
        Of random weights, and of the order in which the variants run.
    draws
        For how many draws of random weights errors are measured, with a batch of one.
    residual_scale
        How large residual branches end with random weights, relative to their trunk.
    pretrained
        Whether to use trained weights where they can be had.
    without
        Variants to leave out, with the reason.
    """

    name: str
    form: str = ""
    batch: int = 1
    seconds: float = 15.0
    rounds: int | None = None
    seed: int = 0
    draws: int = 1
    residual_scale: float = 1.0
    pretrained: bool = False
    without: tuple[tuple[str, str], ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """Return the job as plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Job:
        """Return the job of :meth:`to_mapping`."""
        return cls(**{**values, "without": tuple((variant, why) for variant, why in values["without"])})
