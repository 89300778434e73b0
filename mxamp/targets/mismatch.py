"""Where the machine at hand is not the one that a target describes, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from mxamp.dtypes import DType
from mxamp.measuring.machine import NEEDS, cpu_name, unmet_need
from mxamp.targets.choose import AUTO, automatic_target
from mxamp.targets.target import Target


@dataclass(frozen=True)
class Mismatch:
    """How this machine contradicts a target.

    Attributes
    ----------
    target
        The target.
    here
        The built-in target that describes this machine best.
    why
        What is not as the target says, as the end of a sentence about it.
    """

    target: Target
    here: Target
    why: str

    @property
    def warning(self) -> str:
        """What to tell the user: what is different here, by how much, and what to do."""
        if self.here.runs_nothing_low:
            return (
                f"The target {self.target.name} is for {self.why}. MXNet cannot run the model here at all, "
                f"for that takes {unmet_need(NEEDS)}. With the target {AUTO!r} (--target {AUTO}) it stays "
                "float32, and its graph is prepared for this machine."
            )
        cost = f" {self.here.warning[0].upper()}{self.here.warning[1:]}" if self.here.warning else ""
        return (
            f"The target {self.target.name} is for {self.why}. This machine is what the target "
            f"{self.here.name} describes.{cost.rstrip('.')}{'.' if cost else ''} The target {AUTO!r} "
            f"(--target {AUTO}), with the shapes of the inputs, decides for this machine."
        )


def machine_mismatch(target: Target) -> Mismatch | None:
    """Return how this machine contradicts a target that computes in bfloat16 on CPUs; None where it does not.

    It does where it lacks what the target needs, where it computes in float32 alone, or where low precision
    is slower than float32 although the target's costs say that it is faster. A generic target is for no
    machine in particular, so none contradicts it. Nothing is asked of GPUs: that would initialise CUDA.

    Parameters
    ----------
    target
        What is converted for.
    """
    if target.dtype is not DType.BFLOAT16 or target.device != "cpu":
        return None
    if target.cost is None and not target.measured_on:  # a generic one, which no machine contradicts
        return None
    here = automatic_target(target.dtype)
    missing = unmet_need(target.needs)
    if missing is not None:
        return Mismatch(target, here, missing)
    if here.name in (target.name, *target.based_on) or target.cost is None or here.cost is None:
        return None
    if here.runs_nothing_low and not target.runs_nothing_low:
        return Mismatch(
            target, here, f"CPUs that compute in bfloat16, unlike this one ({cpu_name()}) with MXNet"
        )
    if target.cost.gain_of_products > 1 > here.cost.gain_of_products:
        return Mismatch(
            target, here, f"CPUs that compute bfloat16 faster than float32, unlike this one ({cpu_name()})"
        )
    return None
