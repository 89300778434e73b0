"""How to install what is missing, in words that are true where they are read."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout, where mxamp runs from one."""

_FIRST_WITHOUT_MXNET = (3, 12)

_WITHOUT_MXNET = frozenset({"onnx", "openvino"})
"""The extras that are worth something where MXNet cannot be."""


def install_hint(extra: str) -> str:
    """Return how to install what one of mxamp's extras brings, as a sentence.

    Parameters
    ----------
    extra
        Its name in ``setup.py``.

    Returns
    -------
    str
        What works with this Python. mxamp is on no package index, so its extras come from a checkout.
    """
    version = ".".join(str(part) for part in sys.version_info[:2])
    where = f"in {ROOT}" if (ROOT / "setup.py").is_file() else "in a checkout of mxamp"
    if mxnet_cannot_be_here() and extra not in _WITHOUT_MXNET:
        return (
            f"MXNet 1.9.1 runs on Python 3.8 to 3.11, and this is {version}: use one of those. `make "
            f"environment` ({where}) sets one up with all that mxamp works with."
        )
    return f"Install it with: pip install -c constraints/python{version}.txt '.[{extra}]' ({where})."


def mxnet_cannot_be_here() -> bool:
    """Return whether there is no MXNet for this Python."""
    return sys.version_info[:2] >= _FIRST_WITHOUT_MXNET


def why_no_mxnet() -> str | None:
    """Return why MXNet cannot be imported, as far as that is known without trying; None where it may be."""
    try:
        found = importlib.util.find_spec("mxnet") is not None
    except (ImportError, ValueError):  # it was put into sys.modules as None
        found = False
    if found:
        return None
    return f"this needs MXNet, which is not installed. {install_hint('mxnet')}"
