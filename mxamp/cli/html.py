"""``--html FILE``: the HTML report of what a command found."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Sequence

from mxamp.cli.reads import check_not_read
from mxamp.cli.source import Source, recorded_provenance
from mxamp.errors import ExportError
from mxamp.html import Findings, write_html
from mxamp.model import Model
from mxamp.model.provenance import Provenance


def check_new_file(path: str | None, args: argparse.Namespace) -> None:
    """Refuse a file that cannot be written, before any time is spent.

    Parameters
    ----------
    path
        The file; nothing is checked for None.
    args
        The command's arguments: ``--force`` says whether one that exists is replaced, which what the others
        name never is.

    Raises
    ------
    ExportError
        When it exists, its folder does not, or it is one of the files that are read.
    """
    if path is None:
        return
    file = Path(path)
    if not file.parent.is_dir():
        raise ExportError(
            f"The folder {str(file.parent)!r} does not exist, so {file.name!r} cannot be written there. "
            "Create it first."
        )
    if file.is_dir():
        raise ExportError(f"Cannot write {path!r}: a folder has this name. Choose another name.")
    check_not_read(path, args)
    if file.exists() and not args.force:
        raise ExportError(f"{path!r} already exists. Give --force to overwrite, or choose another name.")


def findings_of(source: Source, *, cautions: Sequence[str] = (), **more: Any) -> Findings:
    """Return what is known of a model that was read, beside what a command found."""
    return Findings(provenance=recorded_provenance(source), cautions=(*cautions, *_cautions(source)), **more)


def _cautions(source: Source) -> list[str]:
    if not source.has_random_weights:
        return []
    return [f"{source.label} has random weights: this is no trained network."]


def write_page(args: argparse.Namespace, model: Model, label: str, findings: Findings) -> None:
    """Write what ``--html`` asked for, if it did.

    Parameters
    ----------
    args
        The command line.
    model
        What the page is about.
    label
        What it is called.
    findings
        What is known of it.
    """
    if args.html is not None:
        write_html(args.html, model, os.path.basename(label) or label, findings)


def write_converted_page(
    args: argparse.Namespace, source: Source, model: Model, prefix: str | None, record: Provenance | None
) -> None:
    """Write what ``--html`` asked for about a model that was just made.

    Parameters
    ----------
    args
        The command line.
    source
        What it was made from.
    model
        The model.
    prefix
        Where its files are; None where none were written.
    record
        What was recorded about them.
    """
    label = f"{source.label} in {args.dtype}" if prefix is None else prefix
    write_page(args, model, label, Findings(provenance=record, cautions=tuple(_cautions(source))))
