"""What got worse in the export to ONNX since a baseline."""

from __future__ import annotations

from typing import Any, Mapping

from model_zoo_eval.job import FP32
from model_zoo_eval.onnx.job import LIMIT, PASSES

__all__ = ["onnx_regressions"]

Row = Mapping[str, Any]

_LARGER = 10
"""How many times the baseline's an error may be where the network amplifies: it hangs on last bits."""


def onnx_regressions(before: Row, row: Row) -> list[tuple[str, str]]:
    """Return the kind of each regression, and what it was and is.

    A model that passed and does not any more, other outputs, a newer opset; where a network amplifies, an
    error ten times the baseline's.
    """
    old, new = before["results"][FP32], row["results"][FP32]
    found = []
    if new["outputs"] != old["outputs"]:
        found.append(("onnx", f"the outputs were {old['outputs']}, and are {new['outputs']}"))
    if new["opset"] > old["opset"]:
        found.append(("onnx", f"opset {old['opset']} was enough, and it is written at {new['opset']}"))
    was, now = max(old["errors"]), max(new["errors"])
    if old["verdict"] == PASSES and new["verdict"] != PASSES:
        found.append(("onnx", f"the worst error was {was:.1e}, and is {now:.1e}, beyond {LIMIT:g}"))
    elif now > max(LIMIT, _LARGER * was):
        found.append(("onnx", f"the worst error was {was:.1e}, and is {now:.1e}"))
    return found
