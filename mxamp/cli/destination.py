"""Where a conversion's results go, and what may not be overwritten."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from mxamp.cli.reads import files_read, is_one_of
from mxamp.cli.source import split_prefix
from mxamp.errors import ExportError
from mxamp.messages.arguments import as_options
from mxamp.model import model_paths
from mxamp.model.provenance import provenance_path


@dataclass(frozen=True)
class Destination:
    """Where the results go."""

    prefix: str | None
    paths: tuple[Path, ...]
    report: Path | None
    onnx: Path | None = None
    epoch: int = 0
    html: Path | None = None

    @property
    def files(self) -> list[Path]:
        """All files that are written."""
        return [*self.paths, *(path for path in (self.report, self.onnx, self.html) if path is not None)]


def destination_of(args: argparse.Namespace) -> Destination:
    """Return where the results go.

    Raises
    ------
    ExportError
        When nothing says so, or two options contradict each other.
    """
    report = Path(args.report) if args.report else None
    onnx = Path(args.onnx) if args.onnx else None
    html = Path(args.html) if args.html else None
    if args.output is None:
        if onnx is None:
            raise ExportError(
                "It is not said where the result goes. Give -o OUT for MXNet's files, --onnx FILE.onnx, or "
                "both."
            )
        return Destination(None, (), report, onnx, html=html)
    if not args.output:
        raise ExportError("-o is empty. Give the first part of the names of the files, such as -o net-bf16.")
    prefix, epoch = split_prefix(args.output)
    given = args.out_epoch
    if given is not None and epoch is not None and given != epoch:
        raise ExportError(f"-o names epoch {epoch}, and --out-epoch {given}. Leave one of the two out.")
    if given is None:
        given = epoch
    if given is None:
        given = args.epoch if args.epoch is not None else split_prefix(args.model)[1] or 0
    with as_options(epoch="--epoch" if args.out_epoch is None else "--out-epoch"):
        paths: tuple[Path, ...] = model_paths(prefix, given)
    if args.provenance:
        paths = (*paths, provenance_path(prefix, given))
    return Destination(prefix, paths, report, onnx, given, html)


def check_destination(destination: Destination, args: argparse.Namespace) -> None:
    """Refuse what would overwrite something, before any time is spent.

    Raises
    ------
    ExportError
        When a file would be written over the input, over another result, or over a file without ``--force``,
        or its folder does not exist.
    """
    given, epoch = split_prefix(args.model)
    inputs = files_read(args)
    if not args.model.startswith("zoo:"):
        inputs.update(str(path) for path in model_paths(given, args.epoch or epoch or 0))
    outputs = destination.files
    for number, path in enumerate(outputs):
        if is_one_of(path, inputs):
            raise ExportError(
                f"Writing {str(path)!r} would overwrite the input. Give -o another name, such as "
                f"{os.path.basename(given)}-{args.dtype}."
            )
        if os.path.realpath(path) in [os.path.realpath(other) for other in outputs[:number]]:
            raise ExportError(f"{str(path)!r} would be written twice. Give --report a name of its own.")
        if not path.parent.is_dir():
            raise ExportError(
                f"The folder {str(path.parent)!r} does not exist, so {path.name!r} cannot be written there. "
                "Create it first."
            )
        if path.is_dir():
            raise ExportError(f"Cannot write {str(path)!r}: a folder has this name. Choose another name.")
    taken = [str(path) for path in outputs if path.exists()]
    if taken and not args.force:
        raise ExportError(
            f"{' and '.join(repr(path) for path in taken)} already "
            f"exist{'s' if len(taken) == 1 else ''}. Give --force to overwrite, or choose another name."
        )
