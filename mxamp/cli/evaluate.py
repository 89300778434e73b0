"""``mxamp evaluate``: accuracy on labelled samples, FP32 beside converted."""

from __future__ import annotations

import argparse
from typing import Any

from mxamp.cli.console import Steps
from mxamp.cli.data import add_samples_options
from mxamp.cli.html import check_new_file, findings_of, write_page
from mxamp.cli.options import add_common
from mxamp.cli.source import add_model_argument, add_source_options, read_source, require_mxnet
from mxamp.compare.data_files import load_data
from mxamp.errors import DataError

_EPILOG = """\
examples:
  mxamp evaluate resnet50 resnet50-bf16 --data val.npz
      top-1 and top-5 of both, whether they differ by more than chance, and how long both take
  mxamp evaluate fcn --data val.npz --labels masks.npy --metric miou
  mxamp evaluate ssd ssd-bf16 --data val.npz --metric voc-map
  mxamp evaluate ranker ranker-bf16 --data val.npz --metric mymetrics:hit_rate

Labels are an array `label` in the data file, or a file of their own: class numbers (top-1, top-5), images of
class numbers (miou), rows of class, x1, y1, x2, y2 filled up with class -1 (voc-map, coco-map). A function of
yours takes the outputs of a batch and its labels and returns one number for each sample.
Both models see the same samples, so intervals and tests are paired: McNemar's exact test for what is right or
wrong, the bootstrap for the rest. Intervals are of 95 %."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "evaluate",
        help="measure accuracy on your labels, FP32 beside converted",
        description="Run a model, and its conversion, on labelled samples, and print how well each does,\n"
        "whether they differ by more than chance, and how long both take by turns.",
        epilog=_EPILOG,
    )
    add_model_argument(parser)
    parser.add_argument("converted", metavar="OUT", nargs="?", help="its conversion, to compare with")
    add_samples_options(parser, labelled=True)
    parser.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="top-1, top-5, miou, voc-map, coco-map or module:function (repeatable; the default is top-1, "
        "and top-5 for more than ten classes)",
    )
    add_source_options(parser)
    add_common(
        parser,
        "--out-epoch",
        "--batch-size",
        "--latency-seconds",
        "--max-samples",
        "--ctx",
        "--json",
        "--html",
        "--force",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand and return its exit status."""
    from mxamp.evaluation import evaluate, find_metric

    for metric in args.metric or ():
        find_metric(metric)  # before anything is read
    check_new_file(args.html, args)
    require_mxnet()
    steps = Steps(quiet=args.json)
    with steps.step(f"reading {args.model}"):
        first = read_source(args.model, epoch=args.epoch, pretrained=args.pretrained)
        second = None
        if args.converted is not None:
            second = read_source(args.converted, epoch=args.out_epoch, epoch_option="--out-epoch")

    def progress(done: int, total: int | None) -> None:
        steps.now(f"evaluating: sample {done}" + (f" of {total}" if total is not None else ""))

    with steps.step("evaluating"):
        found = evaluate(
            first.model,
            None if second is None else second.model,
            args.data,
            None if args.labels is None else read_labels(args.labels),
            metrics=args.metric,
            batch_size=args.batch_size,
            max_samples=args.max_samples,
            latency_seconds=args.latency_seconds,
            ctx=args.ctx,
            progress=progress,
        )
    about = first if second is None else second
    write_page(args, about.model, about.label, findings_of(about, evaluation=found))
    print(found.to_json() if args.json else found)
    return 0


def read_labels(path: str) -> Any:
    """Return the labels of a file.

    Raises
    ------
    DataError
        When it holds no array, or several.
    """
    loaded = load_data(path)
    if not isinstance(loaded, dict):
        return loaded
    if len(loaded) != 1:
        raise DataError(
            f"{path!r} holds {len(loaded)} arrays ({', '.join(loaded)}); labels are one: "
            "np.save('labels.npy', labels)."
        )
    return next(iter(loaded.values()))
