"""What makes no sense as an argument."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def fails(_: Any) -> None:
    raise ZeroDivisionError("by zero")


def junk() -> list[Any]:
    """Return things that are an argument of nothing."""
    return [
        0,
        -1,
        3.5,
        float("nan"),
        True,
        "",
        "nonsense",
        "a\0b",
        ".",
        b"first",
        [],
        (),
        {},
        set(),
        [1],
        [None],
        [b"first"],
        (name for name in ["nonsense"]),
        {1: 2},
        {None: "low"},
        {"data": None},
        {"nonsense": 1},
        Path("nonsense"),
        np.zeros(3),
        np.array(["nonsense"]),
        object(),
        lambda: None,
        fails,
        int,
    ]
