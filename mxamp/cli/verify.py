"""``mxamp verify``: whether a pair of files is still what was written."""

from __future__ import annotations

import argparse
from typing import Any

from mxamp.cli.console import print_json
from mxamp.cli.options import add_common
from mxamp.cli.source import split_prefix
from mxamp.model.verification import verify

DIFFERS = 1

_EPILOG = """\
examples:
  mxamp verify resnet50-bf16            compares the pair with resnet50-bf16-mxamp.json
  mxamp verify resnet50-bf16 --json     the same, for a program

Needs no MXNet.
Exit status: 0 the files are what was written, 1 they differ, 2 nothing was recorded, or it cannot be read."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "verify",
        help="check a converted model's files against what was recorded when they were written",
        description="Check PREFIX-symbol.json and PREFIX-0000.params against PREFIX-mxamp.json, which was "
        "written with them.",
        epilog=_EPILOG,
    )
    parser.add_argument("model", metavar="PREFIX", help="the files' path up to -symbol.json and -0000.params")
    parser.add_argument("--epoch", type=int, metavar="N", help="check PREFIX-000N.params (default: 0)")
    parser.add_argument("--quiet", action="store_true", help="print only what differs")
    add_common(parser, "--json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Verify a model."""
    prefix, epoch = split_prefix(args.model)
    found = verify(prefix, args.epoch if args.epoch is not None else epoch or 0)
    if args.json:
        print_json(found.to_mapping())
    elif not args.quiet:
        print(found)
    elif not found:
        print("\n".join(found.differences))
    return 0 if found else DIFFERS
