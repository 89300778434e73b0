"""``mxamp export``: a model as an ONNX file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mxamp.cli.console import Steps, print_json
from mxamp.cli.options import add_common
from mxamp.cli.reads import check_not_read
from mxamp.cli.source import add_model_argument, add_source_options, parse_input_shapes, read_source
from mxamp.compare.sample_inputs import sample_inputs
from mxamp.dtypes import DType
from mxamp.errors import ExportError
from mxamp.export import (
    OutputDifference,
    RuntimeFit,
    explicit_casts_of,
    low_dtypes,
    runtime_fit,
    verification_reference,
    verify_onnx,
)
from mxamp.messages.warn import warn_user
from mxamp.model import Model
from mxamp.onnx import OnnxExport
from mxamp.openvino.export import weights_path
from mxamp.report.table import format_bytes
from mxamp.targets import Target, resolve_target

DIFFERS = 1

_OPENVINO = "openvino"

_EPILOG = """\
examples:
  mxamp export resnet50 -o resnet50.onnx --input-shape data=1,3,224,224
  mxamp export resnet50-fp16 -o resnet50-fp16.onnx --input-shape data=1,3,224,224
  mxamp export zoo:mobilenet1.0 -o mobilenet.onnx --verify

A converted model keeps its casts. Names, order and dtypes of inputs and outputs are kept. The file is checked
by ONNX's checker before it gets its name. Files need no MXNet; zoo:NAME does. Without MXNet, --verify holds
a converted model against the same parameters in float32, and another against itself without optimizations.
Exit status: 0 written, 1 --verify found outputs that differ, 2 an error you can act on."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "export",
        help="write a model as ONNX",
        description="Write a model, FP32 or converted, as an ONNX file for ONNX Runtime, TensorRT, OpenVINO.",
        epilog=_EPILOG,
    )
    add_model_argument(parser)
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="what to write: FILE.onnx, or OpenVINO's FILE.xml",
    )
    parser.add_argument(
        "--for",
        dest="for_target",
        metavar="TARGET",
        help="the runtime that is to read it: a target such as onnx-cuda-fp16, onnx-tensorrt-fp16 or "
        "openvino-bf16, which writes FILE.xml",
    )
    add_source_options(parser)
    parser.add_argument(
        "--input-shape",
        action="append",
        default=[],
        metavar="[NAME=]SIZES",
        help="such as data=1,3,224,224 (repeatable); an ONNX file says the shapes of its inputs",
    )
    add_onnx_options(parser)
    parser.add_argument(
        "--force", "--overwrite", action="store_true", help="replace FILE.onnx where it exists"
    )
    add_common(parser, "--quiet", "--json")
    parser.set_defaults(run=run)


def add_onnx_options(parser: argparse._ActionsContainer) -> None:
    """Add the options that say how ONNX is written."""
    parser.add_argument(
        "--opset",
        type=int,
        metavar="N",
        help="ONNX's operator set (default: 17, newer where the model needs it)",
    )
    parser.add_argument(
        "--dynamic-batch", action="store_true", help="leave the batch open: the first axis of the inputs"
    )
    parser.add_argument(
        "--explicit-casts",
        action="store_true",
        help="write each rounding as Cast down and back, arithmetic in float32: what low precision does, on "
        "any CPU",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="run the file in ONNX Runtime on random data and compare with MXNet, fusion off, where it is",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="ERROR",
        help="--verify: the most relative L2 error of an output (default: 1e-4, and 2e-2 in low precision)",
    )


def run(args: argparse.Namespace) -> int:
    """Export a model."""
    steps = Steps(quiet=args.quiet or args.json)
    check_not_read(args.output, args)
    if Path(args.output).exists() and not args.force:
        raise ExportError(f"{args.output} exists. Give --force to replace it, or choose another name.")
    target = None if args.for_target is None else resolve_target(args.for_target, DType.FLOAT16)
    _check_file(args, target)
    shapes = parse_input_shapes(args.input_shape)
    with steps.step(f"reading {args.model}"):
        source = read_source(
            args.model, epoch=args.epoch, pretrained=args.pretrained, input_shapes=shapes or None
        )
    if source.weights is not None:
        steps.done("weights", source.weights)
        if source.has_random_weights and (args.quiet or args.json):
            warn_user(f"{source.label}: the weights are {source.weights}.")
    sizes: Any = source.named(shapes) or dict(source.input_shapes)
    if target is not None and target.runtime == _OPENVINO:
        return _export_openvino(source.model, sizes, target, args, steps)
    return export_model(source.model, args.output, sizes, args, steps, target)


def _check_file(args: argparse.Namespace, target: Target | None) -> None:
    """Check that the name of the file, and the options, go with the runtime."""
    is_openvino = target is not None and target.runtime == _OPENVINO
    if is_openvino != args.output.lower().endswith(".xml"):
        raise ExportError(
            f"{args.output} is not what {target.name if target is not None else 'an export'} writes: "
            "OpenVINO's files, written with --for openvino-bf16, end in .xml, and all others are ONNX."
        )
    if is_openvino and (args.opset is not None or args.explicit_casts or args.verify):
        raise ExportError("--opset, --explicit-casts and --verify go with ONNX files, not with OpenVINO's.")
    if is_openvino and not args.force and weights_path(Path(args.output)).exists():
        raise ExportError(f"{weights_path(Path(args.output))} exists. Give --force to replace it.")


def _export_openvino(
    model: Model, shapes: Any, target: Target, args: argparse.Namespace, steps: Steps
) -> int:
    fit = _fit(model, target, args)
    with steps.step(f"writing {args.output}") as progress:
        export = model.export_openvino(
            args.output, input_shapes=shapes or None, dynamic_batch=args.dynamic_batch, progress=progress
        )
    steps.done("writing", f"{', '.join(map(str, export.files))}, {format_bytes(export.bytes)}")
    steps.done(
        "OpenVINO",
        f"for INFERENCE_PRECISION_HINT={export.precision}; {len(export.kept)} operators are marked to stay "
        "float32",
    )
    if args.json:
        print_json(
            {
                "files": [str(file) for file in export.files],
                "bytes": export.bytes,
                "precision": export.precision,
                "kept": list(export.kept),
                "for": fit.target,
                "decided_for": fit.decided_for,
                "warning": fit.warning,
            }
        )
    return 0


def _fit(model: Model, target: Target | None, args: argparse.Namespace) -> RuntimeFit:
    """Return whether the model was decided for the runtime, and warn where it was not."""
    fit = runtime_fit(model, target)
    if fit.warning is not None and not args.json:
        warn_user(fit.warning)
    return fit


def export_model(
    model: Model,
    path: str,
    shapes: dict[str, tuple[int, ...]] | Any,
    args: argparse.Namespace,
    steps: Steps,
    target: Target | None = None,
) -> int:
    """Write a model as the options say, verify it where that was asked for, and say what was done."""
    fit = RuntimeFit(None, None, None) if args.explicit_casts else _fit(model, target, args)
    written = explicit_casts_of(model) if args.explicit_casts else model
    with steps.step(f"writing {path}") as progress:
        export = written.export_onnx(
            path,
            input_shapes=shapes or None,
            opset=args.opset,
            dynamic_batch=args.dynamic_batch,
            target=target,
            progress=progress,
        )
    steps.done("writing", f"{', '.join(map(str, export.files))}, {format_bytes(export.bytes)}")
    steps.done("ONNX", _onnx_line(export))
    differences: tuple[OutputDifference, ...] = ()
    if args.verify:
        with steps.step("verifying"):
            differences = verify_onnx(path, model, sample_inputs(model, shapes))
        worst = max(difference.error for difference in differences)
        steps.done(
            "verifying",
            f"ONNX Runtime against {verification_reference(model)}, on random data: relative L2 error "
            f"{worst:.1e} in the worst of {len(differences)} outputs",
        )
    if args.json:
        print_json(
            {
                "files": [str(file) for file in export.files],
                "bytes": export.bytes,
                "opset": export.opset,
                "opset_reason": export.opset_reason,
                "nodes": export.nodes,
                "inputs": list(export.inputs),
                "outputs": list(export.outputs),
                "for": fit.target,
                "decided_for": fit.decided_for,
                "warning": fit.warning,
                "errors": {difference.name: difference.error for difference in differences},
            }
        )
    tolerance = args.tolerance
    if tolerance is None:
        tolerance = 2e-2 if low_dtypes(model) else 1e-4
    beyond = [difference for difference in differences if not difference.error <= tolerance]
    if beyond and not args.json:
        names = ", ".join(f"{difference.name} ({difference.error:.1e})" for difference in beyond)
        print(f"beyond the tolerance of {tolerance:g}: {names}")
    return DIFFERS if beyond else 0


def _onnx_line(export: OnnxExport) -> str:
    why = f", because {export.opset_reason}" if export.opset_reason else ""
    return f"{export.nodes} nodes, opset {export.opset}{why}; it passes ONNX's checker"
