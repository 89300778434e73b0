"""``mxamp compare``: how far a converted model is from the FP32 model on the same data."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import Counter
from typing import Any, Mapping, Sequence

from mxamp.cli.compare_onnx import compare_with_onnx, is_onnx_file
from mxamp.cli.console import (
    print_message,
    show_comparison_progress,
    supports_progress,
)
from mxamp.cli.data import RANDOM_NOTE, no_data_message, random_data
from mxamp.cli.html import check_new_file, findings_of, write_page
from mxamp.cli.options import add_common
from mxamp.cli.source import (
    Source,
    add_source_options,
    parse_input_shapes,
    read_source,
    require_mxnet,
)
from mxamp.compare.candidates import CandidateComparison, compare_candidates
from mxamp.compare.data_files import load_data
from mxamp.compare.fidelity import Fidelity
from mxamp.compare.inputs import expected_input_shapes, fed_inputs, input_names
from mxamp.compare.measure import compare_models
from mxamp.compare.text import format_fidelity
from mxamp.convert import convert_model
from mxamp.errors import AccuracyError, DataError
from mxamp.messages.counts import count_of, some_of
from mxamp.model import Model
from mxamp.params.check import check_params
from mxamp.policy.policy import PURE

_EPILOG = """\
Fidelity is the distance between two models on the same data; accuracy needs labels and is another question.
Two models are timed as well, by turns, both as deployed: how many times as fast the conversion is, the spread
of that over rounds, and on what machine. --latency-seconds 0 leaves it out.
The FP32 outputs and all layers are measured with oneDNN fusion off, the converted outputs as deployed.
Exit status: 0, 1 when --tolerance is exceeded, 2 when the comparison could not be made.
"""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "compare",
        help="measure how far a converted model is from FP32, per output and layer by layer",
        description="Run a model and its conversion on the same data, and print the distance of every "
        "output,\nthen layer by layer where they start to differ. Several conversions, or with --emulate\n"
        "mixed and pure low precision, are shown beside each other.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "prefix",
        metavar="PREFIX",
        help="the FP32 model: PREFIX-symbol.json and PREFIX-0000.params, zoo:NAME for a GluonCV model, or "
        "FILE.onnx",
    )
    parser.add_argument(
        "converted",
        metavar="OUT",
        nargs="*",
        help="the converted model: OUT-symbol.json, OUT-0000.params, or FILE.onnx; several models are shown "
        "beside each other",
    )
    parser.add_argument(
        "--emulate",
        metavar="DTYPE",
        help="emulate a conversion of PREFIX to float16, bfloat16, tfloat32, float8_e4m3fn or float8_e5m2, "
        "and compare it, in mixed precision and pure, beside whatever OUT names",
    )
    add_source_options(parser)
    add_common(parser, "--out-epoch")
    source = parser.add_mutually_exclusive_group()
    add_common(source, "--data")
    source.add_argument("--random", action="store_true", help="use random inputs, which are not real data")
    parser.add_argument(
        "--input-shape",
        "--shape",
        action="append",
        default=[],
        metavar="[NAME=]SIZES",
        help="shape of a random input, such as data=1,3,224,224; may be repeated",
    )
    parser.add_argument(
        "--by-position",
        action="store_true",
        help="pair the outputs in their order, whatever they are called: MXNet's own converter renames them",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of --random (default: 0)")
    add_common(parser, "--batch-size", "--max-samples", "--ctx")
    # argparse.BooleanOptionalAction came with Python 3.9.
    parser.add_argument(
        "--layers", dest="layers", action="store_true", default=True, help="compare layers (default)"
    )
    parser.add_argument("--no-layers", dest="layers", action="store_false", help="compare outputs only")
    parser.add_argument(
        "--layer-threshold",
        type=float,
        metavar="X",
        help="relative L2 error that marks a layer (default: 0.0625 for bfloat16, 0.0078 for float16)",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="X",
        help="exit with status 1 when an output's relative L2 error exceeds X",
    )
    add_common(parser, "--latency-seconds", "--json", "--verbose", "--html", "--force")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand and return its exit status.

    Raises
    ------
    MxampError
        When the comparison cannot be made.
    """
    if args.tolerance is not None and not args.tolerance >= 0:
        raise DataError(f"--tolerance must be a number from 0 on, not {args.tolerance}.")
    if args.input_shape and not args.random:
        raise DataError("--input-shape goes with --random: a data file has its own shapes.")
    _check_html(args)
    if any(map(is_onnx_file, (args.prefix, *args.converted))):
        compared = compare_with_onnx(args)
        print(compared.to_json() if args.json else compared)
        return _status(compared, args.tolerance)
    shapes = parse_input_shapes(args.input_shape)
    require_mxnet()  # before advice that would need it
    reference = read_source(
        args.prefix, epoch=args.epoch, pretrained=args.pretrained, input_shapes=shapes or None
    )
    data = _data(args, reference, reference.named(shapes))
    sources = _converted(args)
    candidates = _candidates(args, reference, sources, fed_inputs(reference.model, data))
    cautions = []
    if args.random:
        cautions.append(RANDOM_NOTE.format(seed=args.seed))
    if reference.has_random_weights:
        cautions.append(f"{reference.label} has random weights: this is no trained network.")
    if len(candidates) > 1:
        return _compare_several(args, reference, candidates, data, cautions)
    (converted,) = candidates.values()
    fidelity = compare_models(
        reference.model,
        converted,
        data,
        ctx=args.ctx,
        layers=args.layers,
        batch_size=args.batch_size,
        max_samples=args.max_samples,
        threshold=args.layer_threshold,
        by_position=args.by_position,
        progress=show_comparison_progress if supports_progress(sys.stderr) else None,
        latency_seconds=args.latency_seconds,
    )
    fidelity = dataclasses.replace(fidelity, notes=(*cautions, *fidelity.notes))
    if args.html is not None:
        (source,) = sources.values()
        write_page(args, converted, source.label, findings_of(source, fidelity=fidelity, cautions=cautions))
    text = format_fidelity(fidelity, every_layer=args.verbose)
    print(fidelity.to_json() if args.json else text)
    return _status(fidelity, args.tolerance)


def _check_html(args: argparse.Namespace) -> None:
    """Refuse a report that cannot be written, before any time is spent.

    Raises
    ------
    DataError
        When it is not about one converted model of MXNet's.
    ExportError
        When the file is in the way.
    """
    if args.html is None:
        return
    is_one = len(args.converted) == 1 and args.emulate is None
    if not is_one or any(map(is_onnx_file, (args.prefix, *args.converted))):
        raise DataError("--html is about one converted model: give PREFIX and one OUT, as MXNet files.")
    check_new_file(args.html, args)


def _converted(args: argparse.Namespace) -> dict[str, Source]:
    """Return the converted models that were named."""
    if not args.converted and args.emulate is None:
        raise DataError(
            "Give OUT, the converted model, to compare with; or --emulate float16 to see what a conversion "
            "would do."
        )
    sources: dict[str, Source] = {}
    for prefix in args.converted:
        if prefix in sources:
            raise DataError(f"{prefix!r} is given twice; give each model once.")
        sources[prefix] = read_source(prefix, epoch=args.out_epoch, epoch_option="--out-epoch")
    return sources


def _candidates(
    args: argparse.Namespace, reference: Source, sources: Mapping[str, Source], fed: Sequence[str]
) -> dict[str, Model]:
    """Return what to compare with the FP32 model, by the name it is shown under."""
    candidates = {prefix: source.model for prefix, source in sources.items()}
    if args.emulate is not None:
        model = reference.model
        for name, policy in (("mixed", None), (PURE, PURE)):
            candidates[f"{name} {args.emulate}"] = convert_model(
                model.graph,
                model.arg_params,
                model.aux_params,
                args.emulate,
                policy=policy,
                inputs=fed,
                emulate=True,
            )
    return candidates


def _compare_several(
    args: argparse.Namespace,
    reference: Source,
    candidates: Mapping[str, Model],
    data: Any,
    cautions: Sequence[str],
) -> int:
    comparison = compare_candidates(
        reference.model,
        candidates,
        data,
        ctx=args.ctx,
        layers=args.layers,
        batch_size=args.batch_size,
        max_samples=args.max_samples,
        threshold=args.layer_threshold,
        by_position=args.by_position,
        notes=[*cautions, *_kept_in_float32(candidates)],
        progress=show_comparison_progress if supports_progress(sys.stderr) else None,
    )
    print(comparison.to_json() if args.json else comparison)
    return _status(comparison, args.tolerance)


def _kept_in_float32(candidates: Mapping[str, Model]) -> list[str]:
    """Say which operators mixed precision keeps in float32 and pure low precision does not."""
    reports = [model.made_report for model in candidates.values() if model.made_report is not None]
    if len(reports) != 2:
        return []
    mixed, pure = reports
    low = {node.name for node in pure.nodes if node.compute == pure.target_dtype}
    kept = Counter(node.op for node in mixed.nodes if node.compute != mixed.target_dtype and node.name in low)
    if not kept:
        return [f"Mixed precision keeps nothing in float32 that pure {pure.target_dtype} computes low."]
    named = some_of([f"{op} ({count})" for op, count in kept.most_common()])
    return [
        f"Mixed precision keeps {count_of(sum(kept.values()), 'node')} in float32 that pure "
        f"{pure.target_dtype} computes low: {named}."
    ]


def _data(args: argparse.Namespace, reference: Source, shapes: Mapping[str, Sequence[int]]) -> Any:
    if args.data is not None:
        return load_data(args.data)
    names = input_names(reference.model)
    known = {**expected_input_shapes(reference.model), **reference.input_shapes}
    if args.random:
        # Here, for whatever there are data for counts as an input later.
        params = {**reference.model.arg_params, **reference.model.aux_params}
        check_params(reference.model.graph, params, inputs=shapes)
        return random_data(names, shapes, known, seed=args.seed)
    raise DataError(no_data_message(names, known))


def _status(fidelity: Fidelity | CandidateComparison, tolerance: float | None) -> int:
    if tolerance is None:
        return 0
    try:
        fidelity.check(tolerance)
    except AccuracyError as error:
        print_message("error", error)
        return 1
    return 0
