"""``mxamp calibrate``: what a model's values are on samples of its data, as a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mxamp.calibration import Calibration, calibrate
from mxamp.calibration.file import is_calibration
from mxamp.calibration.text import calibration_text, entry_table
from mxamp.cli.console import Steps, print_json
from mxamp.cli.data import add_samples_options
from mxamp.cli.options import add_common
from mxamp.cli.reads import check_not_read
from mxamp.cli.source import add_model_argument, add_source_options, read_source, require_mxnet
from mxamp.errors import DataError, ExportError
from mxamp.files import check_folder
from mxamp.messages.counts import count_of

_EPILOG = """\
examples:
  mxamp calibrate resnet50 --data images.npz -o resnet50.calibration
  mxamp calibrate resnet50 --data folder-of-npz -o all.calibration --max-samples 64
  mxamp calibrate resnet50 --data more.npz --merge resnet50.calibration -o both.calibration
  mxamp calibrate --show resnet50.calibration

Some tens of samples as the model meets them in use are enough; they need no labels. The calibration serves
conversions to either dtype, for any target: mxamp convert --calibration FILE. Calibrating needs MXNet."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "calibrate",
        help="run a model over samples, and keep what its values were",
        description="Run a float32 model over samples of its data once, and keep what its values were: the\n"
        "range of every tensor, for every layer the moments of what it reads, and what every rounding costs\n"
        "in accuracy.",
        epilog=_EPILOG,
    )
    add_model_argument(parser, is_optional=True)
    parser.add_argument("--show", metavar="FILE", help="print what a calibration holds, and nothing else")
    add_samples_options(parser, required=False)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the calibration here")
    parser.add_argument(
        "--merge",
        action="append",
        default=[],
        metavar="FILE",
        help="add the samples of another calibration of the same model (repeatable)",
    )
    add_source_options(parser)
    parser.add_argument("--batch-size", type=int, metavar="N", help="samples a forward pass")
    add_common(parser, "--max-samples", "--ctx")
    parser.add_argument(
        "--no-prices",
        dest="prices",
        action="store_false",
        help="do not run backward, which tells what every rounding costs in accuracy",
    )
    parser.add_argument(
        "--prices-memory",
        type=float,
        metavar="MB",
        help="the most memory that running backward may take, in MB of 10**6 bytes (default: what is\n"
        "available); where that does not suffice, prices are left out, which is said",
    )
    parser.add_argument("--force", "--overwrite", action="store_true", help="replace FILE where it exists")
    add_common(parser, "--quiet", "--json")
    parser.add_argument("--all", action="store_true", help="show every tensor, not only the largest")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Calibrate a model, or show a calibration."""
    if args.show is not None:
        if args.model is not None or args.data is not None:
            raise DataError("--show prints a calibration that is there; leave PREFIX and --data out.")
        _print(args, Calibration.load(args.show))
        return 0
    output = _output(args)
    merged = [Calibration.load(path) for path in args.merge]
    require_mxnet()
    steps = Steps(quiet=args.quiet or args.json)
    with steps.step(f"reading {args.model}"):
        source = read_source(args.model, epoch=args.epoch, pretrained=args.pretrained)
    steps.done("reading", source.label)

    def progress(done: int, total: int | None) -> None:
        steps.now(f"calibrating: sample {done}" + (f" of {total}" if total is not None else ""))

    with steps.step("calibrating"):
        calibration = calibrate(
            source.model,
            args.data,
            ctx=args.ctx,
            batch_size=args.batch_size,
            max_samples=args.max_samples,
            prices=args.prices,
            prices_memory=None if args.prices_memory is None else round(1e6 * args.prices_memory),
            progress=progress,
        )
        # Those that are there came first.
        calibration = merged[0].merge(*merged[1:], calibration) if merged else calibration
    steps.done("calibrating", f"{count_of(calibration.samples, 'sample')} of {Path(args.data).name}")
    args.shown_warnings.refuse("Nothing was written.")
    with steps.step(f"writing {output}"):
        calibration.save(output)
    steps.done("writing", str(output))
    if not args.quiet:
        _print(args, calibration)
    return 0


def _output(args: argparse.Namespace) -> Path:
    """Return the file to write; all that is missing is told at once, before anything runs."""
    needed = {"PREFIX": args.model, "--data": args.data, "-o": args.output}
    wanted = [name for name, value in needed.items() if not value]
    if wanted:
        raise DataError(
            f"{' and '.join(wanted)} {'is' if len(wanted) == 1 else 'are'} missing: mxamp calibrate PREFIX "
            "--data FILE.npz -o OUT. (--show FILE prints a calibration that is there.)"
        )
    output = Path(args.output)
    check_folder(output.parent)
    check_not_read(args.output, args)
    if output.exists() and not args.force:
        what = "" if is_calibration(output) else ", and is no calibration"
        raise ExportError(f"{args.output!r} already exists{what}. Give --force to overwrite it.")
    return output


def _print(args: argparse.Namespace, calibration: Calibration) -> None:
    if args.json:
        from mxamp.calibration.file import document

        print_json(document(calibration))
    elif args.all:
        print("\n".join(entry_table(calibration)))
    else:
        print(calibration_text(calibration))
