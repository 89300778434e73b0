"""``mxamp sensitivity``: the nodes whose rounding hurts, ranked."""

from __future__ import annotations

import argparse
from typing import Any

from mxamp.cli.console import Steps
from mxamp.cli.data import add_samples_options
from mxamp.cli.options import add_common
from mxamp.cli.source import add_model_argument, add_source_options, read_source, require_mxnet

_EPILOG = """\
examples:
  mxamp sensitivity resnet50 --data images.npz
  mxamp sensitivity resnet50 --data images.npz --target cpu-bf16-amx --all --json > prices.json

One backward pass prices every rounding: what it adds to the squared error of the outputs. Shares add up.
`to avoid` is what the fastest placement without that rounding takes longer, as the target estimates.
mxamp tune weighs all of them at once."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "sensitivity",
        help="rank the nodes whose rounding hurts, and what FP32 would cost",
        description="Price every rounding of a conversion on samples of your data, and rank them, results\n"
        "of nodes and weights apart, with what avoiding each would cost in time.",
        epilog=_EPILOG,
    )
    add_model_argument(parser)
    add_samples_options(parser)
    add_source_options(parser)
    add_common(parser, "--dtype", "--target")
    add_common(parser, "--max-samples", help="use the first N (default: 32)", default=32)
    add_common(parser, "--ctx")
    parser.add_argument("--all", action="store_true", help="show every rounding, not only the dearest")
    add_common(parser, "--json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand and return its exit status."""
    from mxamp.tuning import sensitivity

    require_mxnet()
    steps = Steps(quiet=args.json)
    with steps.step(f"reading {args.model}"):
        model = read_source(args.model, epoch=args.epoch, pretrained=args.pretrained).model

    def progress(done: int, total: int | None) -> None:
        steps.now(f"pricing roundings: sample {done}" + (f" of {total}" if total is not None else ""))

    with steps.step("pricing roundings"):
        found = sensitivity(
            model,
            args.data,
            target_dtype=args.dtype,
            target=args.target,
            max_samples=args.max_samples,
            ctx=args.ctx,
            progress=progress,
        )
    print(found.to_json() if args.json else found.text(None if args.all else 15))
    return 0
