"""``mxamp race``: which model to deploy in which runtime on this machine."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Mapping

from mxamp.cli.console import supports_progress
from mxamp.cli.options import add_common
from mxamp.cli.source import add_source_options, parse_input_shapes, read_source
from mxamp.compare.data_files import load_data
from mxamp.errors import DataError
from mxamp.messages.warn import warn_user
from mxamp.racing.competitor import RUNTIMES
from mxamp.racing.given import as_contender
from mxamp.racing.lineup import Contender
from mxamp.racing.run import DEFAULT_TOLERANCE, race

NOTHING_TO_DEPLOY = 1

_EPILOG = """\
examples:
  mxamp race resnet50 --dtype bfloat16 --input-shape data=1,3,224,224
  mxamp race resnet50 resnet50-bf16 old.onnx --data images.npz --threads 4
  mxamp race resnet50 --python openvino=../other-environment/bin/python --input-shape data=1,3,224,224

Every model runs in MXNet and, exported, in ONNX Runtime and OpenVINO; files run where they are read. Each
competitor is a process of its own; they take turns. The first model is the FP32 one that errors refer to.
Exit status: 0, 1 when nothing that ran is within --tolerance, 2 when the race could not be held."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "race",
        help="run models and files in MXNet, ONNX Runtime and OpenVINO by turns, and say what to deploy",
        description="Run models and files by turns in the runtimes that are installed, each with its\n"
        "distance from the FP32 model, and say what to deploy on this machine.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "models",
        metavar="PREFIX",
        nargs="+",
        help="the FP32 model first, then any others: files' path up to -symbol.json, zoo:NAME, FILE.onnx or "
        "FILE.xml",
    )
    add_source_options(parser)
    parser.add_argument(
        "--dtype", metavar="DTYPE", help="also convert the first model to bfloat16 or float16 and race that"
    )
    parser.add_argument(
        "--input-shape",
        action="append",
        default=[],
        metavar="[NAME=]SIZES",
        help="shape of a random input, such as data=1,3,224,224; may be repeated",
    )
    add_common(parser, "--data")
    parser.add_argument("--batch-size", type=int, default=1, metavar="N", help="samples a pass (default: 1)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of each (default: 1)")
    parser.add_argument(
        "--runtime",
        action="append",
        metavar="NAME",
        help=f"race in this one alone: {', '.join(RUNTIMES)} (repeatable; default: those installed)",
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="RUNTIME=PATH",
        help="the interpreter of the environment that has this runtime (repeatable)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="about how long (default: %(default).0f)",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=DEFAULT_TOLERANCE,
        metavar="ERROR",
        help="the largest relative L2 error of what may be deployed (default: %(default)g)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of random data and of the order (default: 0)")
    add_common(parser, "--json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand and return its exit status."""
    shapes: Mapping[str, tuple[int, ...]] = parse_input_shapes(args.input_shape)
    if args.data is not None and shapes:
        raise DataError("--input-shape goes without --data: a data file has its own shapes.")
    contenders: dict[str, Contender] = {}
    known: dict[str, Any] = {}
    for text in args.models:
        if text in contenders:
            raise DataError(f"{text!r} is given twice; give each model once.")
        if text.lower().endswith((".onnx", ".xml")):
            contenders[text] = as_contender(text, text)
            continue
        source = read_source(text, epoch=args.epoch, pretrained=args.pretrained, input_shapes=shapes or None)
        contenders[text] = Contender(
            text, source.model, source.label if source.paths else "", epoch=source.epoch
        )
        shapes = source.named(shapes)
        if not known:
            known = dict(source.input_shapes)
        if source.weights is not None and source.has_random_weights and args.json:
            warn_user(f"{source.label}: the weights are {source.weights}.")
    data = None if args.data is None else load_data(args.data)
    result = race(
        contenders,
        data,
        input_shapes={**known, **shapes},
        dtype=args.dtype,
        runtimes=args.runtime,
        threads=args.threads,
        seconds=args.seconds,
        batch_size=args.batch_size,
        tolerance=args.tolerance,
        python=dict(_interpreter(text) for text in args.python),
        seed=args.seed,
        progress=_show if supports_progress(sys.stderr) else None,
    )
    print(result.to_json() if args.json else result)
    return 0 if result.best is not None else NOTHING_TO_DEPLOY


def _interpreter(text: str) -> tuple[str, str]:
    name, separator, path = text.partition("=")
    if not separator or not path:
        raise DataError(
            f"--python {text!r} is not of the form RUNTIME=PATH, such as openvino=.venv/bin/python."
        )
    return name, path


def _show(text: str) -> None:
    print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
