"""``mxamp report``: one HTML file about a model, to be read and forwarded."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from mxamp.cli.console import Steps, show_comparison_progress, supports_progress
from mxamp.cli.html import check_new_file, findings_of, write_page
from mxamp.cli.source import Source, add_model_argument, add_source_options, read_source, require_mxnet
from mxamp.compare.data_files import load_data
from mxamp.compare.fidelity import Fidelity
from mxamp.compare.measure import DEFAULT_BATCH_SIZE, compare_models
from mxamp.errors import DataError
from mxamp.model import model_paths
from mxamp.model.source_files import hash_file
from mxamp.report.table import format_bytes

__all__ = ["add_parser"]

_LATENCY_SECONDS = 10.0

_EPILOG = """\
examples:
  mxamp report resnet50-bf16 -o report.html
      what was recorded when resnet50-bf16 was written: decisions, casts, sizes, what the guard measured
  mxamp report resnet50-bf16 --data images.npz -o report.html
      also runs it and the FP32 model it was converted from: fidelity, layer by layer, and speed

The file needs nothing from elsewhere: it can be mailed, printed and read on a phone. It is made from files
alone; MXNet is needed with --data. The FP32 model is looked for beside PREFIX under the name that was
recorded; --against says where it is."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "report",
        help="write an HTML report about a converted model, to read and forward",
        description="Write one HTML file about a model: what was converted and why, how fast and how\n"
        "large it is, how far from FP32, layer by layer, and an interactive picture of its graph.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_argument(parser)
    parser.add_argument("-o", "--output", "--html", dest="html", metavar="FILE.html", required=True)
    add_source_options(parser)
    parser.add_argument("--data", metavar="FILE", help=".npz with arrays named like the inputs, or .npy")
    parser.add_argument(
        "--against", metavar="FP32", help="--data: the prefix of the FP32 model to compare with"
    )
    parser.add_argument("--ctx", default="cpu", metavar="DEVICE", help="--data: cpu (default) or gpu(0)")
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help=f"samples a forward pass (default: {DEFAULT_BATCH_SIZE})"
    )
    parser.add_argument("--max-samples", type=int, metavar="N", help="use only the first N samples")
    parser.add_argument(
        "--latency-seconds",
        type=float,
        metavar="SECONDS",
        default=_LATENCY_SECONDS,
        help="--data: about how long to time both models by turns; 0 leaves it out (default: %(default).0f)",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE.html where it exists")
    parser.add_argument("--quiet", action="store_true", help="print nothing but warnings and errors")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    if args.against is not None and args.data is None:
        raise DataError("--against goes with --data: comparing runs both models.")
    if args.data is not None:
        require_mxnet()
    steps = Steps(quiet=args.quiet)
    check_new_file(args.html, force=args.force)
    with steps.step(f"reading {args.model}"):
        source = read_source(args.model, epoch=args.epoch, pretrained=args.pretrained)
    check_new_file(args.html, force=args.force, beside=source.paths)
    findings = findings_of(source)
    if args.data is not None:
        fidelity = _compare(args, source, findings.provenance)
        findings = findings_of(source, fidelity=fidelity)
    with steps.step(f"writing {args.html}"):
        write_page(args, source.model, source.label, findings)
    if not args.quiet:
        print(f"Wrote {args.html} ({format_bytes(Path(args.html).stat().st_size)}).")
    return 0


def _compare(args: argparse.Namespace, source: Source, provenance: Any) -> Fidelity:
    reference = read_source(_reference(args, source, provenance))
    return compare_models(
        reference.model,
        source.model,
        load_data(args.data),
        ctx=args.ctx,
        batch_size=args.batch_size,
        max_samples=args.max_samples,
        latency_seconds=args.latency_seconds,
        progress=show_comparison_progress if supports_progress(sys.stderr) else None,
    )


def _reference(args: argparse.Namespace, source: Source, provenance: Any) -> str:
    """Return the FP32 model's prefix: the one that was given, or the recorded one where it is there.

    Raises
    ------
    DataError
        When it is not known, or what has its name is another model.
    """
    if args.against is not None:
        return str(args.against)
    recorded = None if provenance is None else provenance.source_symbol
    if recorded is None:
        raise DataError(
            f"It is not recorded what {source.label} was converted from, so there is nothing to compare "
            "with. Give the FP32 model: --against PREFIX."
        )
    prefix = recorded.name[: -len("-symbol.json")]
    folders = dict.fromkeys([os.path.dirname(source.label), "."])
    for folder in folders:
        symbol, params = model_paths(os.path.join(folder, prefix))
        if not symbol.is_file() or not params.is_file():
            continue
        if hash_file(symbol, recorded.algorithm).digest == recorded.digest:
            return os.path.join(folder, prefix)
    raise DataError(
        f"{source.label} was converted from {recorded.name}, which is not beside it as it was then. Give the "
        "FP32 model: --against PREFIX."
    )
