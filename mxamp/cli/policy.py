"""``mxamp policy``: print a built-in policy, to read it or to start one's own."""

from __future__ import annotations

import argparse
from typing import Any

from mxamp.policy.policy import Policy

_EPILOG = """\
examples:
  mxamp policy --dtype bfloat16 | less
  mxamp policy --dtype float16 > my.toml      then edit it, and: mxamp convert ... --policy my.toml

A file may also hold only what differs:
  target_dtype = "float16"
  extends = "default"
  [red]
  LayerNorm = "our sums overflow"
  [[rule]]
  globs = ["*_head_*"]
  color = "red"
  reason = "the head is sensitive\""""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "policy",
        help="print a built-in policy as TOML",
        description="Print the built-in policy for a dtype as TOML: the color of every operator, and why.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--dtype",
        required=True,
        metavar="DTYPE",
        help="bfloat16 or float16; tfloat32, float8_e4m3fn or float8_e5m2",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the policy."""
    print(Policy.default(args.dtype).to_toml(), end="")
    return 0
