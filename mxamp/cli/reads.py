"""What a command reads is not written over, with ``--force`` neither."""

from __future__ import annotations

import argparse
import glob
import os
from typing import Iterator

from mxamp.errors import ExportError

_WRITTEN = frozenset({"output", "html", "report", "onnx"})
"""Options that name what is written."""


def check_not_read(path: str | None, args: argparse.Namespace) -> None:
    """Refuse to write over a file that an argument names: a model's, samples, labels, a calibration.

    Parameters
    ----------
    path
        The file that is to be written; nothing is checked for None.
    args
        The arguments of the command.

    Raises
    ------
    ExportError
        When it is one of those that are read.
    """
    if path is None or not os.path.exists(path):
        return
    if any(os.path.samefile(path, other) for other in _read(args)):
        raise ExportError(f"Writing {path!r} would overwrite what is read. Choose another name.")


def _read(args: argparse.Namespace) -> Iterator[str]:
    for option, given in vars(args).items():
        values = given if isinstance(given, (list, tuple)) else [given]
        for value in values if option not in _WRITTEN else ():
            if not isinstance(value, str) or "\0" in value:
                continue
            files = [value, f"{value}-symbol.json", *glob.glob(glob.escape(value) + "-*.params")]
            yield from (file for file in files if os.path.isfile(file))
