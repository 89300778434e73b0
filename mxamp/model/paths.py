"""What the files of a model are called."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Union

import numpy as np

from mxamp.errors import ExportError
from mxamp.files.names import short
from mxamp.messages.arguments import argument, path_fault

PathLike = Union[str, Path]


def model_paths(prefix: PathLike, epoch: int = 0) -> tuple[Path, Path]:
    """Return the paths of a model's two files.

    Raises
    ------
    ExportError
        When the prefix is no path, or the epoch not a number from 0 to 9999.
    """
    fault = path_fault(prefix)
    if fault is not None:
        raise ExportError(
            f"{argument('prefix')} must be a path, the part of the file names before -symbol.json, and "
            f"{fault}."
        )
    if not isinstance(epoch, (int, np.integer)) or not 0 <= epoch <= 9999:
        raise ExportError(
            f"{argument('epoch')} must be from 0 to 9999, not {short(epoch)}: it is four digits of a file's "
            "name."
        )
    return Path(f"{prefix}-symbol.json"), Path(f"{prefix}-{epoch:04d}.params")


def other_epochs(prefix: PathLike, params_path: Path) -> list[str]:
    """Return the names of the parameter files that share the symbol."""
    pattern = f"{glob.escape(Path(prefix).name)}-[0-9][0-9][0-9][0-9].params"
    return sorted(path.name for path in params_path.parent.glob(pattern) if path != params_path)


def epochs_there(prefix: PathLike, params_path: Path) -> str:
    """Return the sentence that says which other parameter files there are; empty where there is none."""
    others = other_epochs(prefix, params_path)
    return f" There is {', '.join(others[:4])}: give its number as {argument('epoch')}." if others else ""
