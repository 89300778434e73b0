"""``mxamp zoo``: the evaluation over GluonCV's model zoo, which is beside the package in its repository."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from mxamp.errors import ModelFileNotFoundError

_PACKAGE = "model_zoo_eval"

ROOT = Path(__file__).resolve().parents[2]
"""The repository's folder, where mxamp runs from one; an installed program does not look there by itself."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "zoo",
        help="evaluate conversions over GluonCV's model zoo (in a checkout of mxamp)",
        # Everything after the word is for the evaluation's own parser, --help included.
        add_help=False,
        prefix_chars="\0",
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand and return its exit status.

    Raises
    ------
    ModelFileNotFoundError
        When the evaluation is not here.
    """
    if importlib.util.find_spec(_PACKAGE) is None and (ROOT / _PACKAGE / "cli.py").is_file():
        sys.path.append(str(ROOT))
    if importlib.util.find_spec(_PACKAGE) is None:
        raise ModelFileNotFoundError(
            "`mxamp zoo` runs model_zoo_eval, which is in mxamp's repository and is not installed with it. "
            "Run it in the repository's folder: python -m model_zoo_eval --help"
        )
    if "--strict" in args.arguments:  # which is mxamp's own, and stands behind every other command
        args.shown_warnings.strict = True
    arguments = [argument for argument in args.arguments if argument != "--strict"]
    cli = importlib.import_module(f"{_PACKAGE}.cli")
    return int(cli.main(arguments, program="mxamp zoo"))
