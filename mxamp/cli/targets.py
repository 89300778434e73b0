"""``mxamp targets``: what mxamp knows of machines."""

from __future__ import annotations

import argparse
import re
from typing import Any, Mapping, Sequence

from mxamp.cli.console import print_json
from mxamp.dtypes import DType
from mxamp.errors import TargetError
from mxamp.measuring.machine import cpu_flags
from mxamp.report.table import Column, format_table, paragraph, terminal_width
from mxamp.targets import AUTO, CostModel, Support, Target, automatic_target, resolve_target

_EPILOG = """\
examples:
  mxamp targets
  mxamp targets cpu-bf16
  mxamp targets my-machine.json
  mxamp targets cuda-fp16-sm75 --json

`mxamp convert --target` takes a name, a JSON file, or auto: the target of this machine."""

_AUTOMATIC = (DType.BFLOAT16, DType.FLOAT16)
"""The dtypes for which ``--target auto`` chooses."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "targets",
        help="list and explain the targets: which operators run low, and what they cost",
        description="List the built-in targets, or explain one: which operators run in its low dtype and how "
        "well, what its backend fuses, and where its costs come from.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="a built-in target, a JSON file, or auto; default: list all",
    )
    parser.add_argument(
        "--dtype",
        default="bfloat16",
        metavar="DTYPE",
        help="with auto, the dtype to choose for (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the targets."""
    if args.target is None:
        targets = [Target.builtin(name) for name in Target.builtin_names()]
        here = {automatic_target(dtype).name for dtype in _AUTOMATIC}
        if args.json:
            print_json([{**_document(target), AUTO: target.name in here} for target in targets])
        else:
            print("\n".join([*_list(targets, here), *_advice()]))
        return 0
    dtype = DType.parse(args.dtype)
    if args.target == AUTO and dtype not in _AUTOMATIC:
        names = " or ".join(map(str, _AUTOMATIC))
        raise TargetError(f"auto chooses a target for {names}, not for {dtype}. Give --dtype one of these.")
    target = resolve_target(args.target, dtype)
    if args.json:
        print_json({**_document(target), "operators": _operators(target)})
    else:
        print("\n".join(_explanation(target)))
    return 0


def _list(targets: Sequence[Target], here: set[str]) -> list[str]:
    rows = [
        (
            f"{target.name} *" if target.name in here else target.name,
            str(target.dtype),
            target.device,
            str(len(target.operators_with(Support.WORKS))),
            _basis(target.cost),
            re.split(r"(?<=\.) ", target.description)[0],
        )
        for target in targets
    ]
    columns = (
        Column("Target", 16),
        Column("Dtype"),
        Column("On"),
        Column("Operators", right=True),
        Column("Costs", 8),
        Column("What it is", 24),
    )
    width = terminal_width()
    return [
        *format_table(columns, rows, width),
        "",
        *paragraph(
            f"* what --target {AUTO} is on this machine. Operators are those that run low on their own; "
            "`mxamp targets NAME` names them and all others.",
            width,
            hanging="  ",
        ),
    ]


def _advice() -> list[str]:
    """Return what would make MXNet faster on this machine, whatever a model is converted for."""
    from mxamp.runtime.blas import blas_advice, blas_kernels

    advice = blas_advice(blas_kernels(), cpu_flags())
    return [] if advice is None else ["", *paragraph(advice, terminal_width())]


def _basis(cost: CostModel | None) -> str:
    return "none" if cost is None else "measured" if cost.is_measured else "computed"


def _explanation(target: Target) -> list[str]:
    width = terminal_width()
    lines = paragraph(f"{target.name}: {target.dtype} on {target.device.upper()}s.", width)
    lines += paragraph(target.description, width)
    if target.measured_on:
        lines += paragraph(f"Measured on: {_machine(target.measured_on)}.", width, hanging="  ")
    if target.based_on:
        lines += paragraph(f"Based on: {', '.join(target.based_on)}.", width)
    if target.needs:
        lines += paragraph(f"Needs: {', '.join(target.needs)}.", width)
    if target.warning:
        lines += paragraph(f"Warning: {target.warning}", width)
    lines.append("")
    for support in Support:
        names = target.operators_with(support)
        if names:
            heading = f"{_MEANING[support]} ({len(names)}): "
            lines += paragraph(heading + ", ".join(names), width, hanging="  ")
    lines += paragraph(f"All others: {_MEANING[target.default]}.", width)
    lines += ["", *_fusion(target, width), *_costs(target, width)]
    return lines


_MEANING = {
    Support.WORKS: "runs low",
    Support.SLOW: "float32, for it is slow unless fused",
    Support.BIASED: "float32, for it does not round to nearest",
    Support.WRONG: "float32, for it computes wrong results",
    Support.CRASHES: "float32, for it crashes MXNet",
    Support.UNSUPPORTED: "float32, for MXNet does not run it",
    Support.UNMEASURED: "float32, for it has not been seen to run",
}


def _machine(about: Mapping[str, Any]) -> str:
    """Return what a target was measured on: all that is known of it, whatever that is."""
    return "; ".join(
        f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in about.items()
    )


def _fusion(target: Target, width: int) -> list[str]:
    patterns = target.rounds_once or target.fusion
    if not patterns:
        return ["Fusion: none known."]
    lines = ["Fused into one unit:"]
    for pattern in patterns:
        steps = [
            ("[" if step.optional else "") + "|".join(step.operators) + ("]" if step.optional else "")
            for step in pattern.steps
        ]
        lines += paragraph(" + ".join(steps), width, indent="  ", hanging="    ")
    return lines


def _costs(target: Target, width: int) -> list[str]:
    cost = target.cost
    if cost is None:
        return paragraph(
            "Costs: not known. Every node that wants low precision gets it, with the fewest casts.", width
        )
    casts = f"Casts {_gigabytes(cost.cast.bytes_per_us)}"
    if target.runs_nothing_low:
        low = f"nothing runs in {target.dtype}"
    elif cost.low_over_float32:
        low = f"{target.dtype} takes {cost.low_over_float32:g} times as long. {casts}"
    else:
        low = f"{target.dtype} {_rates(cost, low=True)}. {casts}"
    return [
        *paragraph(f"Costs ({_basis(cost)}): {cost.source}.", width, hanging="  "),
        *(_kernels(cost, width) if cost.kernels else ()),
        *paragraph(f"At best float32 {_rates(cost, low=False)}; {low}.", width, indent="  ", hanging="  "),
    ]


def _kernels(cost: CostModel, width: int) -> list[str]:
    """Return what is known of kernels: of how many families, for which machine, and where it comes from."""
    about = f": {cost.kernels_measured}" if cost.kernels_measured else ""
    return paragraph(
        f"Times are those of {cost.machine}. {len(cost.kernels)} kinds of kernels have costs of their own"
        f"{about}.",
        width,
        indent="  ",
        hanging="  ",
    )


def _rates(cost: CostModel, *, low: bool) -> str:
    return f"{cost.flops_per_us[low] / 1e6:.3g} TFLOP/s and {_gigabytes(cost.bytes_per_us[low])}"


def _gigabytes(bytes_per_us: float) -> str:
    return f"{bytes_per_us / 1000:,.0f} GB/s"


def _document(target: Target) -> dict[str, Any]:
    cost = target.cost
    return {
        "name": target.name,
        "dtype": target.dtype.label,
        "device": target.device,
        "description": target.description,
        "warning": target.warning,
        "needs": list(target.needs),
        "based_on": list(target.based_on),
        "measured_on": dict(target.measured_on),
        "default": target.default.value,
        "supported": {support.value: len(target.operators_with(support)) for support in Support},
        "costs": None
        if cost is None
        else {
            "measured": cost.is_measured,
            "source": cost.source,
            "flops_per_us": cost.flops_per_us._asdict(),
            "bytes_per_us": cost.bytes_per_us._asdict(),
            "low_over_float32": cost.low_over_float32,
            "cast_bytes_per_us": cost.cast.bytes_per_us,
            "machine": cost.machine,
            "kernels": sorted(cost.kernels),
            "kernels_measured": cost.kernels_measured,
        },
    }


def _operators(target: Target) -> dict[str, Any]:
    return {
        op: {"support": entry.support.value, "note": entry.note}
        for op, entry in sorted(target.operators.items())
    }
