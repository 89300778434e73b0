"""``mxamp tune``: the fastest conversion that loses no more than it may."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mxamp.cli.calibration_options import add_calibration_options, calibrated
from mxamp.cli.console import Mistakes, Steps
from mxamp.cli.data import add_samples_options
from mxamp.cli.evaluate import read_labels
from mxamp.cli.html import check_new_file, write_converted_page
from mxamp.cli.options import add_common
from mxamp.cli.source import Source, add_model_argument, add_source_options, read_source, require_mxnet
from mxamp.errors import DataError, ExportError
from mxamp.files import check_folder
from mxamp.model.provenance import read_provenance
from mxamp.tuning import Tuning

_EPILOG = """\
examples:
  mxamp tune resnet50 --data val.npz
      the curve of speed and error, as a table
  mxamp tune resnet50 --data val.npz --plot curve.svg
  mxamp tune resnet50 --data val.npz --max-error 2e-3 -o resnet50-tuned
  mxamp tune resnet50 --data val.npz --labels labels.npy --max-drop 0.5 -o resnet50-tuned
      at most half a point of top-1
  mxamp tune resnet50 --data val.npz --min-speed 1.8 -o resnet50-tuned

One half of the samples serves to choose and the other to report on. A point is chosen by the worse bound of
its 95 % interval, and where the samples are too few to promise what was asked for, that is said.
Exit status: 0; 1 when what was asked for is not sure to be kept; 2 on errors."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "tune",
        help="find the fastest conversion that loses no more than it may",
        description="Price every rounding on samples, follow the curve of time and error from the fastest\n"
        "conversion to the most exact one, measure the points that matter, and choose.",
        epilog=_EPILOG,
    )
    add_model_argument(parser)
    add_samples_options(parser, labelled=True)
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument(
        "--max-error", type=float, metavar="X", help="the fastest whose relative L2 error is at most X"
    )
    goal.add_argument(
        "--max-drop",
        type=float,
        metavar="POINTS",
        help="the fastest that loses at most so many points (labels)",
    )
    goal.add_argument(
        "--min-speed", type=float, metavar="X", help="the most exact that is at least X times as fast as FP32"
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="write the chosen model here")
    add_common(parser, "--html")
    parser.add_argument("--plot", metavar="FILE", help="draw the curve: .png or .svg (needs matplotlib)")
    parser.add_argument("--metric", metavar="NAME", help="as for mxamp evaluate (default: top-1)")
    add_source_options(parser)
    add_calibration_options(parser, of_a_curve=True)
    add_common(parser, "--dtype", "--target")
    parser.add_argument(
        "--points", type=int, default=12, metavar="N", help="measure at most N points (default: 12)"
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=1,
        metavar="N",
        help="samples of the pass that is timed (default: 1)",
    )
    parser.add_argument(
        "--latency-seconds",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="about how long to time all points by turns; 0 for estimates alone (default: %(default).0f)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (default: 0)")
    add_common(parser, "--max-samples", "--ctx")
    parser.add_argument(
        "--force", "--overwrite", action="store_true", help="replace OUT and FILE.html where they exist"
    )
    add_common(parser, "--json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand and return its exit status."""
    from mxamp.tuning import tune

    _check(args)
    require_mxnet()
    steps, mistakes = Steps(quiet=args.json), Mistakes()
    own = calibrated(args, steps, mistakes)
    mistakes.tell()
    with steps.step(f"reading {args.model}"):
        source = read_source(args.model, epoch=args.epoch, pretrained=args.pretrained)

    def progress(stage: str, done: int, total: int) -> None:
        steps.now(f"{stage}: sample {done} of {total}")

    with steps.step("tuning"):
        found = tune(
            source.model,
            args.data,
            None if args.labels is None else read_labels(args.labels),
            target_dtype=args.dtype,
            target=args.target,
            max_error=args.max_error,
            max_drop=None if args.max_drop is None else args.max_drop / 100,
            min_speed=args.min_speed,
            metric=args.metric,
            points=args.points,
            batch_size=args.batch_size,
            max_samples=args.max_samples,
            latency_seconds=args.latency_seconds,
            calibration=own.calibration,
            compensate=own.compensate,
            seed=args.seed,
            ctx=args.ctx,
            progress=progress,
        )
    if args.plot is not None:
        found.plot(args.plot)
    if args.output is not None:
        found.model.save(args.output)
    if args.html is not None:
        _write_page(args, source, found)
    print(found.to_json() if args.json else found)
    return 1 if found.is_promised is False else 0


def _write_page(args: argparse.Namespace, source: Source, found: Tuning) -> None:
    """Write the HTML report: of the chosen model, or of the one that is converted without tuning."""
    number = found.chosen
    if number is None:
        number = next((at for at, point in enumerate(found.points) if point.is_today), 0)
    record = None if args.output is None else read_provenance(args.output)
    write_converted_page(args, source, found.models[number], args.output, record)


def _check(args: argparse.Namespace) -> None:
    """Refuse what would only fail at the end."""
    asked = args.max_error is not None or args.max_drop is not None or args.min_speed is not None
    if args.output is not None and not asked:
        raise DataError(
            "-o writes the model that is chosen, and nothing says which: give --max-error, --max-drop or "
            "--min-speed."
        )
    if args.points < 2:
        raise DataError(f"--points must be at least 2, both ends of the curve, not {args.points}.")
    for path in (args.plot, args.output):
        if path is not None:
            check_folder(Path(path).parent)
    if args.plot is not None and Path(args.plot).suffix.lower() not in (".png", ".svg"):
        raise DataError(f"--plot draws a .png or an .svg file, not {Path(args.plot).name!r}.")
    check_new_file(args.html, args)
    symbol = None if args.output is None else Path(f"{args.output}-symbol.json")
    if symbol is not None and symbol.exists() and not args.force:
        raise ExportError(f"{str(symbol)!r} already exists. Give --force to overwrite it.")
