"""The result: a target's document, from everything that was measured."""

from __future__ import annotations

import json
import statistics
from typing import Any, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.measuring.machine import AMX, AMX_SETTING, BFLOAT16_INSTRUCTIONS
from mxamp.probe.case import Case
from mxamp.probe.fit import Sample, call_microseconds, cast_rate, fit_costs, gather_samples, operator_overhead
from mxamp.probe.fusion import check_patterns
from mxamp.probe.jobs import TIME, Unit
from mxamp.probe.known import ALWAYS_FOLDS_INTO, FOLD_INTO, NORM_AND_CONVOLUTION, known_faults
from mxamp.probe.support import judge_operators
from mxamp.probe.workers import Answer
from mxamp.targets import Support, Target

_BIAS_COSTS = 2.0
"""A bias that makes an operator so many times as slow is not worth adding."""

_SEVERITY = [
    Support.WORKS,
    Support.SLOW,
    Support.BIASED,
    Support.WRONG,
    Support.UNMEASURED,
    Support.UNSUPPORTED,
    Support.CRASHES,
]


def make_document(
    cases: Mapping[str, Case],
    answers: Mapping[Unit, Answer],
    *,
    name: str,
    description: str,
    machine: Mapping[str, Any],
    dtype: DType,
    device: str,
) -> dict[str, Any]:
    """Return the document of a target.

    Parameters
    ----------
    cases, answers
        What was to be measured, and what came of it.
    name, description
        Of the target; what it was measured on is added to the description.
    machine
        What it was measured on, recorded as it is.
    dtype
        The low dtype.
    device
        ``cpu`` or ``gpu``.
    """
    samples = gather_samples(cases, answers)
    operators = judge_operators(cases, answers, samples)
    for op, fault in known_faults(dtype).items():
        if op in operators and _severity(fault) > _severity(operators[op]):
            operators[op] = dict(fault)
    builtin = Target.for_dtype(dtype)
    source = Target.builtin_document(builtin.name)
    # Inside a chain of these an operator may run low that would not alone, so it must be right there.
    eligible = check_patterns(cases, answers, builtin.fusion, must_be_right=True)
    fused = check_patterns(cases, answers, builtin.rounds_once, must_be_right=False)
    everything = check_patterns(cases, answers, (*builtin.rounds_once, *builtin.fusion), must_be_right=False)
    cost = fitted_cost(samples, answers, operators)
    if cost is not None:
        cost = {**_measured_on(machine), **cost}
    warning = _warning(samples, machine, dtype, device)
    # What a user registered of an operator for the built-in target is true of MXNet, so it holds here too.
    # A probe of some operators alone, which fits no costs, must not inherit what it did not measure.
    inherits = cost is not None and name != builtin.name and builtin.device == device
    return {
        "name": name,
        **({"based_on": builtin.name} if inherits else {}),
        "dtype": dtype.label,
        "device": device,
        "description": _described(description, f"Measured by {_source(machine)}."),
        **({"warning": warning} if warning else {}),
        "needs": _needs(machine, dtype, device),
        "fold_into": _fold_into(answers),
        "convolves_batch_norm": _convolves(answers, bool(source.get("convolves_batch_norm", False))),
        **({"rewrites": source["rewrites"]} if "rewrites" in source and builtin.device == device else {}),
        "default": Support.UNMEASURED.value,
        "measured_on": dict(machine),
        "operators": operators,
        "fusion": [source.get("fusion", [])[number] for number in eligible.confirmed],
        "rounds_once": [source.get("rounds_once", [])[number] for number in fused.confirmed],
        "fusion_checked": {
            "refuted": sorted({*filter(None, [*eligible.refuted.values(), *fused.refuted.values()])}),
            "beyond": list(everything.beyond),
            "differing": list(everything.differing),
        },
        **({} if cost is None else {"cost": cost}),
    }


def document_in_float32(
    builtin: Target,
    cases: Mapping[str, Case],
    answers: Mapping[Unit, Answer],
    *,
    name: str,
    description: str,
    machine: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the document of a built-in target with the costs of a machine that has float32 alone.

    What was not timed is known of the built-in target's own machine.

    Parameters
    ----------
    builtin
        The target, by which nothing runs low.
    cases, answers
        What was to be timed, and what came of it.
    name, description
        Of the new one; what it was measured on is added to the description.
    machine
        What it was measured on, recorded as it is.
    """
    source = Target.builtin_document(builtin.name)
    known = source["cost"]
    cost = {**known, **_measured_on(machine)}
    samples, overhead = gather_samples(cases, answers), operator_overhead(answers)
    if overhead is not None:
        timed = {sample.op for sample in samples}
        found = fit_costs(samples, overhead, known["cast"]["bytes_per_us"], timed) or {}
        operators = {**known["operators"], **found.get("operators", {})}
        cost.update({**found, "operators": operators, "call_us": call_microseconds(answers, overhead)})
    cost.pop("corrections", None)  # they say by how much other rates were off
    return {
        **source,
        "name": name,
        **({"based_on": builtin.name} if name != builtin.name else {}),
        "description": _described(description, f"Measured in float32 by {_source(machine)}."),
        "measured_on": dict(machine),
        "cost": cost,
    }


def _described(description: str, measured: str) -> str:
    return f"{description.rstrip('. ')}. {measured}" if description else measured


def _measured_on(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return what costs say of where they come from."""
    return {"measured": True, "machine": _named(machine), "source": _source(machine)}


def _severity(entry: Mapping[str, Any]) -> int:
    return _SEVERITY.index(Support(entry["support"]))


def _source(machine: Mapping[str, Any]) -> str:
    return f"mxamp probe, MXNet {machine.get('mxnet')}, {_named(machine)}"


def _named(machine: Mapping[str, Any]) -> str:
    threads = machine.get("threads")
    device = machine.get("cpu") if machine.get("device", "cpu").startswith("cpu") else machine["device"]
    return f"{device}, {threads} thread{'' if threads == 1 else 's'}"


def fitted_cost(
    samples: Sequence[Sample], answers: Mapping[Unit, Answer], operators: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return the costs that measured times fit; None where nothing was timed."""
    overhead, rate = operator_overhead(answers), cast_rate(answers)
    if overhead is None or rate is None:
        return None
    works = [op for op, entry in operators.items() if entry["support"] == Support.WORKS.value]
    found = fit_costs(samples, overhead, rate, works)
    return None if found is None else {**found, "call_us": call_microseconds(answers, overhead)}


def _fold_into(answers: Mapping[Unit, Answer]) -> list[str]:
    """Return the operators that a BatchNorm folds into: of those timed, what a bias does not slow."""
    chosen = [ALWAYS_FOLDS_INTO]
    for op, (without, with_bias) in FOLD_INTO.items():
        ratios = [
            biased["us"]["low"] / plain["us"]["low"]
            for plain, biased in zip(_timings(answers, without), _timings(answers, with_bias))
            if plain["dims"] == biased["dims"]
        ]
        if not ratios or statistics.median(ratios) < _BIAS_COSTS:
            chosen.append(op)
    return chosen


def _convolves(answers: Mapping[Unit, Answer], otherwise: bool) -> bool:
    """Return whether a depthwise convolution is faster than a BatchNorm that computes the same."""
    norm, convolution = NORM_AND_CONVOLUTION
    ratios = [
        norms["us"]["low"] / convolved["us"]["low"]
        for norms, convolved in zip(_timings(answers, norm), _timings(answers, convolution))
        if norms["dims"] == convolved["dims"]
    ]
    return statistics.median(ratios) > 1.0 if ratios else otherwise


def _timings(answers: Mapping[Unit, Answer], name: str) -> Sequence[Mapping[str, Any]]:
    answer = answers.get(Unit(name, TIME))
    return () if answer is None else [job for job in answer.jobs if "us" in job]


def _needs(machine: Mapping[str, Any], dtype: DType, device: str) -> list[str]:
    """Return what other machines must have to run as this one does."""
    if device != "cpu" or dtype is not DType.BFLOAT16:
        return []
    instructions = machine.get("instructions", ())
    if "amx_bf16" in instructions:
        return [AMX]
    return [BFLOAT16_INSTRUCTIONS] if "avx512_bf16" in instructions else []


def _warning(samples: Sequence[Sample], machine: Mapping[str, Any], dtype: DType, device: str) -> str:
    """Return what everybody should know who converts for this machine; empty where low precision pays."""
    ratios = [
        sample.plain.low / sample.plain.float32
        for sample in samples
        if sample.op == "Convolution"
        and min(sample.plain) > 0
        and not sample.work.is_depthwise
        and sample.work.channels % 16 == 0
    ]
    ratio = statistics.median(ratios) if ratios else None
    lacks = (
        device == "cpu"
        and dtype is DType.BFLOAT16
        and bool(machine.get("instructions"))
        and not {"avx512_bf16", "amx_bf16"} & set(machine["instructions"])
    )
    if not lacks and (ratio is None or ratio < 1.0):
        return ""
    seen = "" if ratio is None else f": a convolution takes {ratio:.2g} times as long as in float32"
    why = f"its CPU has no {dtype} instructions, and " if lacks else ""
    advice = ""
    if "amx_bf16" in machine.get("unused", ()):
        advice = f"; its CPU has AMX, which MXNet uses where {'='.join(AMX_SETTING)} is set"
    return f"{why}low precision makes models smaller here, but does not pay{seen}{advice}"


def document_text(document: Mapping[str, Any]) -> str:
    """Return a target's document as JSON text, one operator or pattern a line."""
    parts = []
    for key, value in document.items():
        if key == "operators":
            body = _block([f"{json.dumps(op)}: {json.dumps(entry)}" for op, entry in value.items()], "{}", 1)
        elif key in ("fusion", "rounds_once"):
            body = _block([json.dumps(pattern) for pattern in value], "[]", 1)
        elif key == "cost" and value is not None:
            tables = [name for name in ("operators", "kernels") if name in value]
            head = [
                f"{json.dumps(name)}: {json.dumps(part)}"
                for name, part in value.items()
                if name not in tables
            ]
            for name in tables:
                rows = [f"{json.dumps(one)}: {json.dumps(entry)}" for one, entry in value[name].items()]
                head.append(f'"{name}": {_block(rows, "{}", 2)}')
            body = _block(head, "{}", 1)
        else:
            body = json.dumps(value)
        parts.append(f"{json.dumps(key)}: {body}")
    return _block(parts, "{}", 0) + "\n"


def _block(lines: Sequence[str], brackets: str, depth: int) -> str:
    if not lines:
        return brackets
    indent = " " * (depth + 1)
    return f"{brackets[0]}\n" + ",\n".join(indent + line for line in lines) + f"\n{' ' * depth}{brackets[1]}"
