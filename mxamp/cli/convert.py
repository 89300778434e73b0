"""``mxamp convert``: a pair of files in, a mixed-precision pair out."""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence

from mxamp.cli.calibration_options import Calibrated, add_calibration_options, calibrated
from mxamp.cli.console import Mistakes, Steps, add_verbose_option, print_json, print_labelled
from mxamp.cli.html import add_html_option, write_page
from mxamp.cli.source import (
    Source,
    add_input_option,
    add_model_argument,
    add_source_options,
    check_epoch,
    parse_input_shapes,
    read_source,
    split_prefix,
)
from mxamp.compare.data_files import load_data
from mxamp.compare.inputs import input_names, prepare_inputs
from mxamp.conversion import PREPARATIONS
from mxamp.convert import convert_model
from mxamp.decisions import LowPrecision
from mxamp.errors import DataError, ExportError, PolicyError, UnknownNameError, nearest_names
from mxamp.files import atomic_write
from mxamp.graph.control_flow import graphs_within
from mxamp.graph.graph import Graph
from mxamp.guard import Guard
from mxamp.html import Findings
from mxamp.measuring.machine import compute_capability
from mxamp.messages.counts import count_of
from mxamp.model import Model, model_paths
from mxamp.model.provenance import provenance_path, read_provenance
from mxamp.ops import FACTS
from mxamp.ops.casts import CAST_OPERATORS
from mxamp.policy.policy import PURE, Policy
from mxamp.report.model import Report
from mxamp.report.short import short_summary
from mxamp.report.table import format_bytes, paragraph, terminal_width
from mxamp.report.text import summary
from mxamp.targets import Target, resolve_target
from mxamp.targets.choose import BEYOND_WHEELS

if TYPE_CHECKING:
    from mxamp.profile import Profiling

__all__ = ["add_parser"]

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
    "this model emulates the conversion: it computes in float32, rounds where the converted model would, "
    "and is for "
    "measuring, not for deploying. It holds _mxamp_round operators, which stock MXNet does not know: run "
    "it with "
    "mxamp, which loads their library."
)


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "convert",
        help="convert a model to mixed precision",
        description="Convert a trained FP32 model to mixed precision for inference.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_argument(parser)
    parser.add_argument(
        "--dtype",
        required=True,
        metavar="DTYPE",
        help="bfloat16 or bf16 (CPUs), float16 or fp16 (GPUs); with --emulate also tfloat32, "
        "float8_e4m3fn, float8_e5m2",
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
    deciding = parser.add_argument_group("what stays float32")
    deciding.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="NAME",
        help="keep this node in float32; a name, or a shell pattern such as 'stage1_*' (repeatable)",
    )
    deciding.add_argument(
        "--exclude-regex",
        action="append",
        default=[],
        metavar="REGEX",
        help="keep the nodes in float32 in whose name the expression is found (repeatable)",
    )
    deciding.add_argument(
        "--exclude-op",
        action="append",
        default=[],
        metavar="OP",
        help="keep all nodes of an operator in float32 (repeatable)",
    )
    deciding.add_argument(
        "--policy",
        metavar="FILE.toml",
        help="decide by this policy, not the built-in one; 'pure': everything low that can be, to measure it",
    )
    deciding.add_argument(
        "--target",
        metavar="TARGET",
        help="what the machine can do and what it costs: a name of `mxamp targets`, a JSON file, or auto for "
        "this machine's (default: cpu-bf16 for bfloat16, cuda-fp16 for float16)",
    )
    deciding.add_argument(
        "--low-precision",
        choices=[member.value for member in LowPrecision],
        help="required: low wherever that is wanted and possible; profitable: where it makes the model "
        "faster, by the target's costs (default: profitable where shapes and the target tell costs)",
    )
    deciding.add_argument(
        "--profile",
        action="store_true",
        help="time the nodes of this very model on this machine, decide by that, and let the plan compete "
        "with others as a whole (needs --input-shape or zoo:NAME, and MXNet; takes some ten seconds)",
    )
    _add_guard_options(parser)
    add_calibration_options(parser)
    shape = parser.add_argument_group("what the result looks like")
    shape.add_argument(
        "--io-dtype",
        action="append",
        default=[],
        metavar="DTYPE",
        help="dtype of inputs and outputs: float32 (default), low, or NAME=low for one of them (repeatable)",
    )
    shape.add_argument(
        "--cast-op",
        choices=CAST_OPERATORS,
        default=CAST_OPERATORS[0],
        help="the operator that casts; Cast is for consumers without amp_cast (default: %(default)s)",
    )
    shape.add_argument(
        "--no-fold-batch-norm",
        dest="fold_batch_norm",
        action="store_false",
        help="keep every BatchNorm as a node (default: fold it into the layer before it)",
    )
    shape.add_argument(
        "--saturate",
        action="store_true",
        help="clamp parameters beyond the dtype's range, and report what that loses (default: the nodes that "
        "read them stay float32)",
    )
    shape.add_argument(
        "--no-rewrite-masks",
        dest="rewrite_masks",
        action="store_false",
        help="keep masks such as -1e18, and what reads them in float32 (default: give them a value that the "
        "dtype holds, where no result changes)",
    )
    shape.add_argument(
        "--no-prepare",
        action="append",
        default=[],
        choices=(*PREPARATIONS, "all"),
        metavar="PASS",
        help=f"leave out a pass that prepares the graph: {', '.join(PREPARATIONS)}, or all (repeatable)",
    )
    shape.add_argument(
        "--input-shape",
        action="append",
        default=[],
        metavar="NAME=SIZES",
        help="such as data=1,3,224,224: decide by costs, measure the result, and count multiply-adds and "
        "cast bytes (repeatable; measuring needs MXNet)",
    )
    shape.add_argument(
        "--emulate",
        action="store_true",
        help="write the float32 model that emulates the conversion, to measure it where it cannot run; it "
        "needs mxamp's operator library",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--report", metavar="FILE.json", help="write every decision with its reason")
    add_html_option(output)
    output.add_argument(
        "--no-provenance",
        dest="provenance",
        action="store_false",
        help="do not write OUT-mxamp.json, which says what the model was made from and why, for mxamp verify",
    )
    output.add_argument(
        "--force", "--overwrite", action="store_true", help="replace OUT and FILE.json where they exist"
    )
    output.add_argument("--quiet", action="store_true", help="print nothing but warnings and errors")
    add_verbose_option(output)
    output.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def _add_guard_options(parser: argparse.ArgumentParser) -> None:
    guard = parser.add_argument_group(
        "never slower",
        "Where the shapes of the inputs are known (--input-shape, --data, or zoo:NAME), the\n"
        "model is measured against the float32 one on this machine, by turns. If it is not\n"
        "faster, the regions whose low precision costs time go back to float32, in the end all\n"
        "of it, and the report says why. What is promised holds for this machine and its\n"
        "number of threads. Needs MXNet, and twelve times the parameters' size in free memory;\n"
        "without them the model is converted and not measured.",
    )
    guard.add_argument(
        "--no-guard",
        dest="guard",
        action="store_false",
        help="do not measure; keep the conversion as it was decided",
    )
    guard.add_argument(
        "--guard-seconds",
        type=float,
        default=Guard.seconds,
        metavar="SECONDS",
        help="about how long measuring may take; it ends early where the answer is clear (default: "
        "%(default).0f)",
    )
    guard.add_argument(
        "--data",
        metavar="FILE.npz",
        help="feed the models this, all samples in one batch (default: random numbers); .npz with an array "
        "for each input, or .npy for a single one. Its shapes count as given, too",
    )


@dataclass(frozen=True)
class _Destination:
    """Where the results go."""

    prefix: str | None
    paths: tuple[Path, ...]
    report: Path | None
    onnx: Path | None = None
    epoch: int = 0
    html: Path | None = None

    @property
    def files(self) -> list[Path]:
        """All files that are written."""
        return [*self.paths, *(path for path in (self.report, self.onnx, self.html) if path is not None)]


def run(args: argparse.Namespace) -> int:
    """Convert a model."""
    started = time.perf_counter()
    steps = Steps(quiet=args.quiet or args.json, verbose=args.verbose)
    destination = _destination(args)
    policy, shapes, data, guard, io_dtype, target, found = _checked_options(args, destination, steps)

    with steps.step(f"reading {args.model}"):
        source = read_source(
            args.model, epoch=args.epoch, pretrained=args.pretrained, input_shapes=shapes or None
        )
    steps.done("reading", _read_line(source))
    if source.weights is not None:
        steps.done("weights", source.weights)
    _check_operators(args.exclude_op, source.model.graph)
    inputs = input_names(source.model)
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
            profile=_profiling(args, steps),
            calibration=found.calibration,
            compensate=found.compensate,
            headroom=found.headroom,
            saturate=args.saturate,
            rewrite_masks=args.rewrite_masks,
            prepare=[name for name in PREPARATIONS if not {name, "all"}.intersection(args.no_prepare)],
        )
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
        if destination.report is not None:
            with atomic_write(destination.report) as (file,):
                file.write(report.to_json().encode("utf-8"))
        if destination.html is not None:
            _write_page(args, source, model, destination)
    files = destination.files
    if report.race:
        steps.done("measuring", _measured_line(report))
    steps.done("deciding", _decided_line(report))
    steps.done("casting", _cast_line(report))
    steps.done("writing", ", ".join(str(path) for path in files))
    seconds = time.perf_counter() - started
    note = EMULATED_NOTE if report.emulated is not None else _where_it_runs(report.target_dtype)
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
    return 0


def _print_short(
    args: argparse.Namespace, source: Source, report: Report, files: Sequence[Path], note: str | None
) -> None:
    """Print the few lines that say most."""
    lines = short_summary(report)
    if source.weights is not None:
        lines.insert(0, ("weights", f"{source.weights}."))
    if args.output is not None and report.emulated is None:
        measure = f"mxamp compare {args.model} {split_prefix(args.output)[0]} --data FILE.npz"
        lines.append(("error", f"not measured; {measure}"))
    lines.append(("written", ", ".join(str(path) for path in files)))
    if note:
        lines.append(("note", note))
    elif report.guard is not None and report.guard.dropped:
        lines.append(("note", f"guard: {report.guard.reason}."))
    lines.append(("more", "--verbose here, mxamp inspect, or mxamp report for a page to forward"))
    print_labelled(lines)


def _write_page(args: argparse.Namespace, source: Source, model: Model, destination: _Destination) -> None:
    """Write the HTML report of a conversion, about the files where there are any."""
    findings, label = Findings(report=model.report), f"{source.label} in {args.dtype}"
    if source.has_random_weights:
        findings = Findings(cautions=(f"{source.label}: the weights are {source.weights}.",))
    if destination.prefix is not None:
        label = destination.prefix
        if args.provenance:
            record = read_provenance(destination.prefix, destination.epoch)
            findings = replace(findings, provenance=record)
    write_page(args, model, label, findings)


# ---------------------------------------------------------------------- what was asked for


class _Options(NamedTuple):
    """What options say, as the values that the conversion takes."""

    policy: Policy
    shapes: Mapping[str, tuple[int, ...]]
    data: Any
    guard: Guard | bool
    io_dtype: str | dict[str, str] | None
    target: Target | None
    calibrated: Calibrated


def _checked_options(args: argparse.Namespace, destination: _Destination, steps: Steps) -> _Options:
    """Return what the options say; before the model is read, and all mistakes at once.

    Raises
    ------
    MxampError
        The mistakes.
    """
    mistakes = Mistakes()
    dtype = mistakes.check(lambda: Policy.default(args.dtype).target_dtype)
    policy = None if dtype is None else mistakes.check(lambda: _policy(args))
    shapes = mistakes.check(lambda: parse_input_shapes(args.input_shape))
    data = None if args.data is None else mistakes.check(lambda: load_data(args.data))
    if args.data is not None and args.input_shape:
        mistakes.note(DataError("--data has the shapes of the inputs; leave --input-shape out."))
    guard: Guard | bool | None = False
    if args.guard and not args.emulate:
        guard = mistakes.check(lambda: Guard(seconds=args.guard_seconds, data=data, own_process=True))
    io_dtype = mistakes.check(lambda: _io_dtype(args.io_dtype))
    target = None
    if args.target is not None and dtype is not None:
        target = mistakes.check(lambda: resolve_target(args.target, dtype))
    found = calibrated(args, steps, mistakes)
    # What is there may be in the way of files; that is asked last, for --force changes the answer.
    mistakes.check(lambda: _check_destination(destination, args))
    mistakes.tell()
    assert policy is not None  # what could not be told was a mistake
    return _Options(policy, shapes or {}, data, guard or False, io_dtype, target, found)


def _destination(args: argparse.Namespace) -> _Destination:
    report = Path(args.report) if args.report else None
    onnx = Path(args.onnx) if args.onnx else None
    html = Path(args.html) if args.html else None
    if args.output is None:
        if onnx is None:
            raise ExportError(
                "It is not said where the result goes. Give -o OUT for MXNet's files, --onnx FILE.onnx, or "
                "both."
            )
        return _Destination(None, (), report, onnx, html=html)
    prefix, epoch = split_prefix(args.output)
    given = check_epoch(args.out_epoch, "--out-epoch")
    if given is not None and epoch is not None and given != epoch:
        raise ExportError(f"-o names epoch {epoch}, and --out-epoch {given}. Leave one of the two out.")
    if given is None:
        given = epoch
    if given is None:
        given = args.epoch if args.epoch is not None else split_prefix(args.model)[1] or 0
    paths: tuple[Path, ...] = model_paths(prefix, given)
    if args.provenance:
        paths = (*paths, provenance_path(prefix, given))
    return _Destination(prefix, paths, report, onnx, given, html)


def _check_destination(destination: _Destination, args: argparse.Namespace) -> None:
    """Refuse what would overwrite something, before any time is spent.

    Raises
    ------
    ExportError
        When a file would be written over the input, over another result, or over a file without ``--force``,
        or its folder does not exist.
    """
    given, epoch = split_prefix(args.model)
    inputs: set[str] = set()
    if not args.model.startswith("zoo:"):
        inputs.update(str(path) for path in model_paths(given, args.epoch or epoch or 0))
        # The symbol belongs to all epochs, so none of them may lose it or be replaced.
        inputs.update(glob.glob(glob.escape(given) + "-[0-9][0-9][0-9][0-9].params"))
    if args.policy and args.policy != PURE:
        inputs.add(args.policy)
    real_inputs = {os.path.realpath(path) for path in inputs}
    outputs = destination.files
    for number, path in enumerate(outputs):
        if os.path.realpath(path) in real_inputs or _is_same_file(path, inputs):
            raise ExportError(
                f"Writing {str(path)!r} would overwrite the input. Give -o another name, such as "
                f"{os.path.basename(given)}-{args.dtype}."
            )
        if os.path.realpath(path) in [os.path.realpath(other) for other in outputs[:number]]:
            raise ExportError(f"{str(path)!r} would be written twice. Give --report a name of its own.")
        if not path.parent.is_dir():
            raise ExportError(
                f"The folder {str(path.parent)!r} does not exist, so {path.name!r} cannot be written there. "
                "Create it first."
            )
        if path.is_dir():
            raise ExportError(f"Cannot write {str(path)!r}: a folder has this name. Choose another name.")
    taken = [str(path) for path in outputs if path.exists()]
    if taken and not args.force:
        raise ExportError(
            f"{' and '.join(repr(path) for path in taken)} already "
            f"exist{'s' if len(taken) == 1 else ''}. Give --force to overwrite, or choose another name."
        )


def _is_same_file(path: Path, others: set[str]) -> bool:
    """Whether a path is another name (a hard link) of one of some files."""
    return path.exists() and any(os.path.exists(other) and os.path.samefile(path, other) for other in others)


def _policy(args: argparse.Namespace) -> Policy:
    if args.policy == PURE:
        policy = Policy.pure(args.dtype)
    else:
        policy = Policy.default(args.dtype) if args.policy is None else Policy.load(args.policy)
    for pattern in args.exclude_regex:
        policy = policy.excluding(patterns=[pattern])
    for op in args.exclude_op:
        policy = policy.excluding(operators=[op])
    return policy


def _check_operators(operators: Sequence[str], graph: Graph) -> None:
    """Check that what ``--exclude-op`` names is an operator.

    Raises
    ------
    UnknownNameError
        When neither mxamp nor the model knows it.
    """
    present = {node.op for top in graphs_within(graph) for node in top.nodes if not node.is_variable}
    for op in operators:
        if op not in present and FACTS.get(op) is None:
            raise UnknownNameError(
                f"--exclude-op names {op!r}, which is no operator of the model."
                f"{nearest_names(op, sorted(present))} It has: {', '.join(sorted(present))}."
            )


def _io_dtype(texts: Sequence[str]) -> str | dict[str, str] | None:
    named = {}
    whole: str | None = None
    for text in texts:
        name, separator, dtype = text.rpartition("=")
        if separator:
            named[name] = dtype
        elif whole is not None and whole != text:
            raise PolicyError(f"--io-dtype is given as {whole!r} and as {text!r}; it can be one of them.")
        else:
            whole = text
    if named and whole is not None:
        raise PolicyError(
            f"--io-dtype is given for the whole model ({whole!r}) and for {next(iter(named))!r}. Name every "
            "input and output that shall be low; the others are float32."
        )
    return named or whole


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


def _profiling(args: argparse.Namespace, steps: Steps) -> Profiling | bool:
    if not args.profile:
        return False
    from mxamp.profile import Profiling  # whoever does not profile need not wait for it

    return Profiling(progress=lambda what: steps.now(f"measuring {what}"))


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
    elif _has_gpu():
        return None
    else:
        here = (
            "no GPU was found here, and float16 models run on GPUs alone: MXNet 1.9.1 has no float16 "
            "convolution or matrix product on CPUs. The"
        )
        what = "run on NVIDIA V100, T4, A10, A100 and L4, not on H100 or newer"
    return f"{here} official MXNet wheels {what}. For this machine's CPU convert to bfloat16."


def _has_gpu() -> bool:
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
