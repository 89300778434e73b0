"""What a command reads is not written over, not with ``--force`` either."""

from __future__ import annotations

import argparse
import glob
import os
from typing import Iterable

from mxamp.cli.source import split_prefix
from mxamp.errors import ExportError

_MODELS = ("model", "models", "prefix", "converted", "against")
"""Arguments that name models: by a prefix, or by one of the two files."""

_FILES = ("data", "labels", "calibration", "merge", "show", "policy", "target", "for_target", "profile")
"""Arguments that name files, or are no name of one (the target of this machine, a built-in policy)."""


def files_read(args: argparse.Namespace) -> set[str]:
    """Return the files that a command's arguments name, whether they exist or not.

    The symbol belongs to all epochs of a model, so none of them may lose it or be replaced.
    """
    models, files = _given(args, _MODELS), _given(args, _FILES)
    for prefix in {split_prefix(model)[0] for model in models}:
        files += [f"{prefix}-symbol.json", *glob.glob(glob.escape(prefix) + "-[0-9][0-9][0-9][0-9].params")]
    return {*models, *files}


def is_one_of(path: str | os.PathLike[str], files: Iterable[str]) -> bool:
    """Whether a path is one of some files, under this or another name (a link)."""
    real, exists = os.path.realpath(path), os.path.exists(path)
    return any(
        os.path.realpath(file) == real or (exists and os.path.exists(file) and os.path.samefile(path, file))
        for file in files
    )


def check_not_read(path: str, args: argparse.Namespace) -> None:
    """Refuse to write over a file that an argument names: a model's, samples, labels, a calibration.

    Raises
    ------
    ExportError
        When it is one of those that are read.
    """
    if is_one_of(path, files_read(args)):
        raise ExportError(f"Writing {path!r} would overwrite what is read. Choose another name.")


def _given(args: argparse.Namespace, options: Iterable[str]) -> list[str]:
    values: list[str] = []
    for option in options:
        given = getattr(args, option, None)
        values += [
            value for value in (given if isinstance(given, list) else [given]) if isinstance(value, str)
        ]
    return values
