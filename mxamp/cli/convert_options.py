"""What `mxamp convert` is told about the conversion, and what that means."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Sequence

from mxamp.cli.calibration_options import Calibrated, calibrated
from mxamp.cli.console import Mistakes, Steps
from mxamp.cli.destination import Destination, check_destination
from mxamp.cli.source import (
    parse_input_shapes,
)
from mxamp.compare.data_files import load_data
from mxamp.conversion import PREPARATIONS
from mxamp.decisions import LowPrecision
from mxamp.dtypes import DType
from mxamp.errors import DataError, PolicyError, UnknownNameError, nearest_names
from mxamp.graph.control_flow import graphs_within
from mxamp.graph.graph import Graph
from mxamp.guard import Guard
from mxamp.ops import FACTS
from mxamp.ops.casts import CAST_OPERATORS
from mxamp.policy.policy import PURE, Policy
from mxamp.targets import AUTO, Target, machine_dtype, resolve_target

if TYPE_CHECKING:
    from mxamp.profile import Profiling


def add_deciding_options(parser: argparse.ArgumentParser) -> None:
    """Add what says which nodes may be low."""
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
        "faster, by the target's costs; none: nowhere, the graph is prepared in float32 (default: profitable "
        "where shapes and the target tell costs)",
    )
    deciding.add_argument(
        "--profile",
        action="store_true",
        help="time the nodes of this very model on this machine, decide by that, and let the plan compete "
        "with others as a whole (needs --input-shape or zoo:NAME, and MXNet; takes some ten seconds)",
    )


def add_guard_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how the result is measured."""
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


def add_shape_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how the result looks."""
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
        metavar="[NAME=]SIZES",
        help="such as data=1,3,224,224: decide by costs, measure the result, and count multiply-adds and "
        "cast bytes (repeatable; measuring needs MXNet)",
    )
    shape.add_argument(
        "--emulate",
        action="store_true",
        help="write the float32 model that emulates the conversion, to measure it where it cannot run; it "
        "needs mxamp's operator library",
    )


class ConvertOptions(NamedTuple):
    """What options say, as the values that the conversion takes."""

    policy: Policy
    shapes: Mapping[str, tuple[int, ...]]
    data: Any
    guard: Guard | bool
    io_dtype: str | dict[str, str] | None
    target: Target | None
    calibrated: Calibrated


def told_dtype(args: argparse.Namespace) -> str:
    """Return the low dtype: as given, or of a target that was named; where none is needed, this machine's.

    Raises
    ------
    PolicyError
        When nothing says it.
    TargetError
        When there is no such target, or its file is none.
    """
    stays_float32 = args.low_precision == LowPrecision.NONE.value
    if stays_float32 and args.target == AUTO:
        return machine_dtype().label
    if args.dtype is not None:
        return str(args.dtype)
    if args.target not in (None, AUTO):
        return resolve_target(args.target, DType.BFLOAT16).dtype.label
    if stays_float32:
        return machine_dtype().label
    raise PolicyError(
        "--dtype is missing: bfloat16 for CPUs, float16 for GPUs. It may be left out with --target NAME, "
        "which has one, and with --low-precision none, which prepares the float32 model."
    )


def checked_options(args: argparse.Namespace, destination: Destination, steps: Steps) -> ConvertOptions:
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
    mistakes.check(lambda: check_destination(destination, args))
    mistakes.tell()
    assert policy is not None  # what could not be told was a mistake
    return ConvertOptions(policy, shapes or {}, data, guard or False, io_dtype, target, found)


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


def check_operators(operators: Sequence[str], graph: Graph) -> None:
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


def profiling_of(args: argparse.Namespace, steps: Steps) -> Profiling | bool:
    """Return how to profile; False for not at all."""
    if not args.profile:
        return False
    from mxamp.profile import Profiling  # whoever does not profile need not wait for it

    return Profiling(progress=lambda what: steps.now(f"measuring {what}"))
