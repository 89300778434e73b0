"""``mxamp report``: one HTML file about a model, to be read and forwarded."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from mxamp.calibration.samples import without_labels
from mxamp.cli.console import Steps
from mxamp.cli.evaluate import read_labels
from mxamp.cli.html import check_new_file, findings_of, write_page
from mxamp.cli.options import add_common
from mxamp.cli.source import (
    Source,
    add_model_argument,
    add_source_options,
    read_source,
    recorded_provenance,
    require_mxnet,
)
from mxamp.compare.data_files import load_data
from mxamp.compare.inputs import input_names
from mxamp.compare.measure import compare_models
from mxamp.errors import DataError
from mxamp.evaluation import evaluate, find_metric
from mxamp.model import model_paths
from mxamp.model.source_files import hash_file
from mxamp.report.table import format_bytes

_EPILOG = """\
examples:
  mxamp report resnet50-bf16 -o report.html
      what was recorded when resnet50-bf16 was written: decisions, casts, sizes, what the guard measured
  mxamp report resnet50-bf16 --data images.npz -o report.html
      also runs it and the FP32 model it was converted from: fidelity, layer by layer, and speed
  mxamp report resnet50-bf16 --data val.npz --labels labels.npy -o report.html
      also accuracy, of both, on the same samples

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
    )
    add_model_argument(parser)
    parser.add_argument("-o", "--output", "--html", dest="html", metavar="FILE.html", required=True)
    add_source_options(parser)
    parser.add_argument(
        "--data",
        metavar="FILE",
        help=".npz with arrays named like the inputs (and `label` for accuracy), or .npy",
    )
    add_common(parser, "--labels")
    parser.add_argument(
        "--metric", action="append", metavar="NAME", help="labels: as for mxamp evaluate (repeatable)"
    )
    parser.add_argument(
        "--against", metavar="FP32", help="--data: the prefix of the FP32 model to compare with"
    )
    add_common(parser, "--ctx", "--batch-size", "--max-samples", "--latency-seconds", "--force", "--quiet")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    for option in ("against", "labels", "metric"):
        if getattr(args, option) is not None and args.data is None:
            raise DataError(f"--{option} goes with --data: comparing runs both models.")
    for metric in args.metric or ():
        find_metric(metric)  # before anything is read
    if args.data is not None:
        require_mxnet()
    steps = Steps(quiet=args.quiet)
    check_new_file(args.html, args)
    with steps.step(f"reading {args.model}"):
        source = read_source(args.model, epoch=args.epoch, pretrained=args.pretrained)
    found: dict[str, Any] = {}
    if args.data is not None:
        prefix = _reference(args, source)
        found = _measure(args, read_source(prefix), source, steps)
    findings = findings_of(source, **found)
    with steps.step(f"writing {args.html}"):
        write_page(args, source.model, source.label, findings)
    if not args.quiet:
        print(f"Wrote {args.html} ({format_bytes(Path(args.html).stat().st_size)}).")
    return 0


def _measure(args: argparse.Namespace, reference: Source, source: Source, steps: Steps) -> dict[str, Any]:
    """Return how far the model is from FP32, and with labels how well both do."""
    data, labels = without_labels(load_data(args.data), input_names(reference.model))
    if args.labels is not None:
        labels = read_labels(args.labels)
    if labels is None and args.metric is not None:
        raise DataError("--metric needs labels: an array `label` in the data file, or --labels FILE.")
    with steps.step("comparing"):
        fidelity = compare_models(
            reference.model,
            source.model,
            data,
            ctx=args.ctx,
            batch_size=args.batch_size,
            max_samples=args.max_samples,
            latency_seconds=args.latency_seconds,
            progress=lambda stage, done, total: steps.now(f"{stage}: {done} of {total}"),
        )
    if labels is None:
        return {"fidelity": fidelity}
    with steps.step("evaluating"):
        evaluation = evaluate(
            reference.model,
            source.model,
            data,
            labels,
            metrics=args.metric,
            batch_size=args.batch_size,
            max_samples=args.max_samples,
            latency_seconds=0,  # it was just measured
            ctx=args.ctx,
            progress=lambda done, total: steps.now(f"evaluating: sample {done} of {total}"),
        )
    return {"fidelity": fidelity, "evaluation": evaluation}


def _reference(args: argparse.Namespace, source: Source) -> str:
    """Return the FP32 model's prefix: the one that was given, or the recorded one where it is there.

    Raises
    ------
    DataError
        When it is not known, or what has its name is another model.
    """
    if args.against is not None:
        return str(args.against)
    provenance = recorded_provenance(source)
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
