"""A target by whose costs a network of microseconds gains, as large ones do by those of real machines."""

from __future__ import annotations

import json
from pathlib import Path

from mxamp.targets import Target

_BUILTIN = Target.builtin_document("cpu-bf16")

DOCUMENT = {
    **_BUILTIN,
    "name": "roofline-bf16",
    "cost": {name: value for name, value in _BUILTIN["cost"].items() if name != "kernels"},
}

ROOFLINE = Target.from_document(DOCUMENT, source="tests")


def write_roofline(folder: Path) -> str:
    """Return the path of the target's file."""
    path = folder / "roofline.json"
    path.write_text(json.dumps(DOCUMENT), "utf-8")
    return str(path)
