"""``mxamp debug``: which nodes make the difference between a model and its conversion."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mxamp.cli.console import print_json, show_comparison_progress, supports_progress
from mxamp.cli.html import check_new_file, findings_of, write_page
from mxamp.cli.options import add_common
from mxamp.cli.source import add_source_options, read_source, require_mxnet
from mxamp.compare.data_files import load_data
from mxamp.debug import debug_models
from mxamp.debug.run import DEFAULT_SAMPLES, DEFAULT_TRIALS
from mxamp.debug.text import format_suspects, suspects_section

_EPILOG = """\
The FP32 model is converted again and again, each time with other nodes in low precision and everything else
in float32, and run beside FP32. The part with the largest error is split in halves until the trials are used
up. float16 is emulated on a CPU, which cannot run it."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "debug",
        help="find the nodes whose low precision makes most of the error",
        description="Find the nodes whose low precision makes most of a conversion's error.",
        epilog=_EPILOG,
    )
    parser.add_argument("prefix", metavar="PREFIX", help="the FP32 model's files, or zoo:NAME")
    parser.add_argument("converted", metavar="OUT", help="the converted model's files")
    add_source_options(parser)
    add_common(parser, "--out-epoch")
    add_common(parser, "--data", required=True)
    add_common(parser, "--ctx")
    parser.add_argument(
        "--emulate", action="store_true", default=None, help="emulate low precision in float32"
    )
    parser.add_argument(
        "--trials", type=int, metavar="N", help=f"how many models to run at most (default: {DEFAULT_TRIALS})"
    )
    add_common(parser, "--max-samples", help=f"use the first N samples (default: {DEFAULT_SAMPLES})")
    add_common(parser, "--json", "--html", "--force")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Find them.

    Raises
    ------
    MxampError
        When the models cannot be run.
    """
    check_new_file(args.html, args)
    require_mxnet()
    reference = read_source(args.prefix, epoch=args.epoch, pretrained=args.pretrained)
    source = read_source(args.converted, epoch=args.out_epoch, epoch_option="--out-epoch")
    found = debug_models(
        reference.model,
        source.model,
        load_data(args.data),
        ctx=args.ctx,
        emulate=args.emulate,
        trials=args.trials,
        max_samples=args.max_samples,
        progress=show_comparison_progress if supports_progress(sys.stderr) else None,
    )
    if args.html is not None:
        write_page(args, source.model, source.label, findings_of(source, sections=(suspects_section(found),)))
    if args.json:
        print_json(found.to_mapping())
    else:
        print(format_suspects(found))
    return 0
