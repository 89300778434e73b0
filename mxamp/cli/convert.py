"""``mxamp convert``: a pair of files in, a mixed-precision pair out."""

from __future__ import annotations

import argparse
import glob
import shutil
import time
import warnings
from pathlib import Path
from typing import Any, Mapping, Sequence

from mxamp.cli.calibration_options import add_calibration_options
from mxamp.cli.console import Steps, print_json, print_labelled
from mxamp.cli.convert_options import (
    add_deciding_options,
    add_guard_options,
    add_shape_options,
    check_operators,
    checked_options,
    profiling_of,
    told_dtype,
)
from mxamp.cli.destination import Destination, destination_of
from mxamp.cli.html import write_converted_page
from mxamp.cli.options import add_common
from mxamp.cli.source import (
    Source,
    add_input_option,
    add_model_argument,
    add_source_options,
    read_source,
    split_prefix,
)
from mxamp.compare.inputs import input_names, prepare_inputs
from mxamp.conversion import PREPARATIONS
from mxamp.convert import convert_model
from mxamp.errors import MxampWarning
from mxamp.export import runtime_fit
from mxamp.files import atomic_write
from mxamp.measuring.machine import compute_capability
from mxamp.messages.counts import count_of
from mxamp.messages.installation import why_no_mxnet
from mxamp.model import Model
from mxamp.model.provenance import read_provenance
from mxamp.ops.rounding import is_rounding
from mxamp.report.model import Report
from mxamp.report.short import short_summary
from mxamp.report.table import format_bytes, paragraph, terminal_width
from mxamp.report.text import summary
from mxamp.targets.choose import BEYOND_WHEELS

_EPILOG = """\
examples:
  mxamp convert resnet50 --dtype bfloat16 -o resnet50-bf16
  mxamp convert ssd --dtype float16 -o out/ssd-fp16 --exclude 'ssd0_class*' --exclude-op softmax
  mxamp convert net --dtype bfloat16 -o net-bf16 --policy my.toml --report why.json
  mxamp convert net --dtype float16 -o net-fp16 --io-dtype data=low --input-shape data=1,3,224,224
  mxamp convert zoo:resnet50_v1 --dtype bfloat16 -o resnet50-bf16
  mxamp convert resnet50 --dtype float16 --onnx resnet50-fp16.onnx --input-shape data=1,3,224,224
  mxamp convert resnet50 --dtype float16 -o resnet50-emulated --emulate
  mxamp convert net --dtype bfloat16 -o net-bf16 --input-shape data=1,3,224,224 --guard-seconds 60
  mxamp convert net --dtype bfloat16 -o net-bf16 --input-shape data=1,3,224,224 --profile

The input files are never changed. Names of inputs, outputs and nodes stay as they are, and inputs and
outputs stay float32 unless --io-dtype says otherwise, so the result takes the place of the original.
bfloat16 is for CPUs and float16 for GPUs; either converts on any machine. Files convert without MXNet;
zoo:NAME needs it. `mxamp policy` prints the default policy."""


EMULATED_NOTE = (
    "this model emulates the conversion: it computes in float32, rounds where the converted model would, and "
    "is for measuring, not for deploying."
)

ROUNDING_NOTE = (
    "It holds _mxamp_round operators, which stock MXNet does not know: run it with mxamp, which loads their "
    "library."
)


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "convert",
        help="convert a model to mixed precision",
        description="Convert a trained FP32 model to mixed precision for inference.",
        epilog=_EPILOG,
    )
    add_model_argument(parser)
    parser.add_argument(
        "--dtype",
        metavar="DTYPE",
        help="bfloat16 or bf16 (CPUs), float16 or fp16 (GPUs); with --emulate also tfloat32, "
        "float8_e4m3fn, float8_e5m2 (default: that of --target NAME; --low-precision none needs none)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="write OUT-symbol.json and OUT-0000.params",
    )
    parser.add_argument(
        "--out-epoch",
        type=int,
        metavar="N",
        help="write OUT-000N.params (default: the number of what was read)",
    )
    parser.add_argument(
        "--onnx",
        metavar="FILE.onnx",
        help="write the result as ONNX, too, or with this alone; needs the shapes of the inputs",
    )
    add_source_options(parser)
    add_input_option(parser)
    add_deciding_options(parser)
    add_guard_options(parser)
    add_calibration_options(parser)
    add_shape_options(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--report", metavar="FILE.json", help="write every decision with its reason")
    add_common(output, "--html")
    output.add_argument(
        "--no-provenance",
        dest="provenance",
        action="store_false",
        help="do not write OUT-mxamp.json, which says what the model was made from and why, for mxamp verify",
    )
    output.add_argument(
        "--force", "--overwrite", action="store_true", help="replace OUT and FILE.json where they exist"
    )
    add_common(output, "--quiet", "--verbose", "--json")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Convert a model."""
    started = time.perf_counter()
    steps = Steps(quiet=args.quiet or args.json, verbose=args.verbose)
    destination = destination_of(args)
    args.dtype = told_dtype(args)
    policy, shapes, data, guard, io_dtype, target, found = checked_options(args, destination, steps)

    with steps.step(f"reading {args.model}"):
        source = read_source(
            args.model, epoch=args.epoch, pretrained=args.pretrained, input_shapes=shapes or None
        )
    steps.done("reading", _read_line(source))
    if source.weights is not None:
        steps.done("weights", source.weights)
    check_operators(args.exclude_op, source.model.graph)
    inputs = input_names(source.model)
    shapes = source.named(shapes)
    if data is not None:
        # Read once more, under the names of the inputs, which is where what does not fit is told.
        given = prepare_inputs(source.model, data).arrays
        shapes = {name: given[name].shape for name in inputs}
    with steps.step("deciding and measuring" if guard else "deciding"):
        model = convert_model(
            source.model.graph,
            source.model.arg_params,
            source.model.aux_params,
            args.dtype,
            policy=policy,
            target=target,
            low_precision=args.low_precision,
            exclude=args.exclude,
            io_dtype=io_dtype,
            input_shapes=shapes or source.input_shapes or None,
            inputs=args.input,
            cast_op=args.cast_op,
            fold_batch_norm=args.fold_batch_norm,
            emulate=args.emulate,
            guard=guard,
            profile=profiling_of(args, steps),
            calibration=found.calibration,
            compensate=found.compensate,
            headroom=found.headroom,
            time_budget=found.time_budget,
            saturate=args.saturate,
            rewrite_masks=args.rewrite_masks,
            prepare=[name for name in PREPARATIONS if not {name, "all"}.intersection(args.no_prepare)],
        )
    if destination.onnx is not None and not args.emulate:
        warning = runtime_fit(model, None).warning
        if warning is not None:
            warnings.warn(warning, MxampWarning, stacklevel=2)
    args.shown_warnings.refuse("Nothing was written.")
    with steps.step(f"casting and writing {destination.prefix or destination.onnx}") as progress:
        if destination.onnx is not None:  # first, for it may be refused
            model.export_onnx(
                destination.onnx, input_shapes=shapes or source.input_shapes or None, progress=progress
            )
        # Before anything else is asked of the model: then its parameters are read once only.
        if destination.prefix is not None:
            model.save(destination.prefix, destination.epoch, progress=progress, provenance=args.provenance)
        report = model.report
        assert report is not None  # a conversion always has one
        _write_about(args, destination, source, model, report)
    files = destination.files
    if report.race:
        steps.done("measuring", _measured_line(report))
    steps.done("deciding", _decided_line(report))
    steps.done("casting", _cast_line(report))
    steps.done("writing", ", ".join(str(path) for path in files))
    _tell(args, source, model, report, files, seconds=time.perf_counter() - started)
    return 0


def _write_about(
    args: argparse.Namespace, destination: Destination, source: Source, model: Model, report: Report
) -> None:
    """Write what is asked for about the model, once it is written."""
    if destination.report is not None:
        with atomic_write(destination.report) as (file,):
            file.write(report.to_json().encode("utf-8"))
    if destination.html is not None:
        record = None
        if destination.prefix is not None and args.provenance:
            record = read_provenance(destination.prefix, destination.epoch)
        write_converted_page(args, source, model, destination.prefix, record)


def _tell(
    args: argparse.Namespace,
    source: Source,
    model: Model,
    report: Report,
    files: Sequence[Path],
    *,
    seconds: float,
) -> None:
    """Print what was done, as JSON, in a few lines, or whole."""
    note = _where_it_runs(report.target_dtype)
    if report.emulated is not None:
        note = EMULATED_NOTE
        if any(is_rounding(node.op) for node in model.graph.nodes):
            note += f" {ROUNDING_NOTE}"
    if args.json:
        print_json(_document(source, model, files, seconds, note))
    elif not args.quiet and not args.verbose:
        _print_short(args, source, report, files, note)
    elif not args.quiet:
        width = terminal_width()
        print(f"\n{summary(report, width)}\n")
        sizes = [f"{path} ({format_bytes(path.stat().st_size)})" for path in files]
        for line in paragraph(f"Written in {seconds:.1f} s: {', '.join(sizes)}.", width, hanging="  "):
            print(line)
        if note:
            print("\n".join(paragraph(f"Note: {note}", width, hanging="  ")))


def _print_short(
    args: argparse.Namespace, source: Source, report: Report, files: Sequence[Path], note: str | None
) -> None:
    """Print the few lines that say most."""
    lines = short_summary(report)
    if source.weights is not None:
        lines.insert(0, ("weights", f"{source.weights}."))
    if args.output is not None and report.emulated is None:
        measure = f"mxamp compare {args.model} {split_prefix(args.output)[0]} --data FILE.npz"
        where = "" if why_no_mxnet() is None else "where MXNet is, "
        lines.append(("error", f"not measured; {where}{measure}"))
    lines.append(("written", ", ".join(str(path) for path in files)))
    if note:
        lines.append(("note", note))
    elif report.guard is not None and report.guard.dropped:
        lines.append(("note", f"guard: {report.guard.reason}."))
    lines.append(("more", "--verbose here, mxamp inspect, or mxamp report for a page to forward"))
    print_labelled(lines)


# ---------------------------------------------------------------------- what is said about it


def _read_line(source: Source) -> str:
    graph, params = source.model.graph, {**source.model.arg_params, **source.model.aux_params}
    size = 0
    for value in params.values():
        elements = 1
        for length in value.shape:
            elements *= length
        size += elements * value.dtype.itemsize
    files = " and ".join(str(path) for path in source.paths) or source.label
    return (
        f"{files}: {count_of(graph.operator_count, 'operator node')}, {count_of(len(params), 'parameter')}, "
        f"{format_bytes(size)}"
    )


def _decided_line(report: Report) -> str:
    return f"{report.low_nodes} of {count_of(len(report.nodes), 'operator node')} in {report.target_dtype}"


def _measured_line(report: Report) -> str:
    nodes = report.time.measured_nodes if report.time is not None else 0
    chosen = next((plan.name for plan in report.race if plan.is_chosen), "none")
    timed = f"{count_of(nodes, 'node')} timed, " if nodes else ""
    return f"{timed}{count_of(len(report.race), 'plan')} raced; the fastest: {chosen}"


def _cast_line(report: Report) -> str:
    cast = sum(
        any(dtype != parameter.dtype_before for dtype in parameter.stored.values())
        for parameter in report.parameters
    )
    done = "stored in" if report.emulated is None else "rounded to"
    clamped = f", {count_of(report.saturated_values, 'value')} clamped" if report.saturated_values else ""
    return (
        f"{count_of(cast, 'parameter')} {done} {report.target_dtype}{clamped}, "
        f"{count_of(len(report.casts), 'cast')} at run time"
    )


def _where_it_runs(dtype: str) -> str | None:
    """Return what to know about running a float16 model, on a machine that cannot."""
    if dtype != "float16":
        return None
    capability = compute_capability()
    if capability is not None and capability >= BEYOND_WHEELS:
        here = f"this machine's GPU has compute capability {capability[0]}.{capability[1]}, for which the"
        what = "hold no machine code"
    elif has_gpu():
        return None
    else:
        here = (
            "no GPU was found here, and float16 models run on GPUs alone: MXNet 1.9.1 has no float16 "
            "convolution or matrix product on CPUs. The"
        )
        what = "run on NVIDIA V100, T4, A10, A100 and L4, not on H100 or newer"
    return f"{here} official MXNet wheels {what}. For this machine's CPU convert to bfloat16."


def has_gpu() -> bool:
    """Whether the machine has an NVIDIA GPU; found out without MXNet, which may not be installed."""
    return bool(glob.glob("/dev/nvidia[0-9]*")) or shutil.which("nvidia-smi") is not None


def _document(
    source: Source, model: Model, files: Sequence[Path], seconds: float, note: str | None
) -> Mapping[str, Any]:
    report = model.report
    assert report is not None  # a conversion always has one
    return {
        "source": source.label,
        "weights": source.weights,
        "has_random_weights": source.has_random_weights,
        "files": [str(path) for path in files],
        "seconds": round(seconds, 3),
        "low_nodes": report.low_nodes,
        "nodes": len(report.nodes),
        "casts": len(report.casts),
        "parameter_bytes_before": report.parameter_bytes_before,
        "parameter_bytes_after": report.parameter_bytes_after,
        "low_multiply_add_share": report.low_multiply_add_share,
        "saturated_values": report.saturated_values,
        "masks_rewritten": sum(mask.after is not None for mask in report.masks),
        "emulated": report.emulated,
        "note": note,
        "report": report.to_mapping(),
    }
