"""What got worse in accuracy since a baseline."""

from __future__ import annotations

from typing import Any, Mapping

from model_zoo_eval.accuracy.evaluate import FP32

__all__ = ["accuracy_regressions"]

Row = Mapping[str, Any]

_TOLERANCE = 0.005
"""By how much, of 1, a difference may be lower than the baseline's: processors add up in different orders."""


def accuracy_regressions(before: Row, row: Row) -> list[tuple[str, str]]:
    """Return the kind of each regression, and what it was and is.

    A difference to FP32 that is more than chance, a loss larger than the baseline's by more than half a
    percentage point, a conversion that is missing, and more casts.
    """
    found: list[tuple[str, str]] = []
    for variant, old in before["results"].items():
        new = row["results"].get(variant)
        if new is None:
            found.append(("accuracy", f"{variant} is missing"))
            continue
        metric, was = next(iter(old["metrics"].items()))
        if variant == FP32:
            if new["metrics"][metric] < was - _TOLERANCE:
                now = new["metrics"][metric]
                found.append(("accuracy", f"FP32's {metric} was {was:.4f}, and is {now:.4f}"))
            continue
        if old.get("inside", True) and not new.get("inside", True):
            low, high = new["interval"]
            found.append(
                (
                    "accuracy",
                    f"{variant} differs from FP32 by {new['difference']:+.4f} ({low:+.4f} to {high:+.4f}), "
                    "which is more than chance",
                )
            )
        elif new["difference"] < old["difference"] - _TOLERANCE:
            said = f"{variant} differed from FP32 by {old['difference']:+.4f}, and differs by "
            found.append(("accuracy", f"{said}{new['difference']:+.4f}"))
        if new["casts"] > old["casts"]:
            found.append(("casts", f"{variant} had {old['casts']}, and has {new['casts']}"))
    return found
