#!/usr/bin/env python3
"""Fit the cost model of a target to what ``tools/measure_cpu_bfloat16.py`` measured.

The peak rates are the best that any case reached; an operator's factors are the medians, over its cases, of
the measured time over what the roofline gives. An operator is timed behind a convolution where that was
measured, since there it pays for the layout that it finds. Where kernels differ by more than size (channels
that do not fill a block, a bias), each kind has factors of its own.

Run: python tools/fit_target_costs.py RAW.json TARGET.json      (writes the target's "cost")
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

import mxnet as mx

from mxamp.decisions.estimates import work_of
from mxamp.ops import FACTS
from mxamp.runtime.shapes import infer_shapes
from mxamp.runtime.symbol import graph_from_symbol
from mxamp.targets import OperatorCost, Rates, Support, Target, Work
from tools.measure_cpu_bfloat16 import Builder, Dims, all_cases

KINDS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "Convolution": (
        {"depthwise": True, "channels_beside": 16},
        {"depthwise": True},
        {"depthwise": False, "channels_below": 4},
        {"depthwise": False, "channels_beside": 2},
        {},
    ),
    "Deconvolution": ({"bias": True}, {}),
    "Activation": ({"attribute": "act_type=relu"}, {}),
    "BatchNorm": ({"rank": 4}, {}),
    "Concat": ({"rank": 4, "attribute": "dim=1"}, {}),
    "Pooling": ({"rank": 4}, {}),
    "elemwise_add": ({"rank": 4}, {"rank": 5}, {}),
}
"""The conditions under which an operator's factors differ, first match first."""

EMPTY = "amp_cast down"
"""The case whose FP32 graph holds no operator: its time is that of calling MXNet."""

CAST = "amp_cast up"
LEAST = 0.05
"""The smallest factor: a time below the overhead is noise."""


class Sample(NamedTuple):
    """One timing of one operator, in microseconds."""

    op: str
    work: Work
    times: Rates


def samples(document: Mapping[str, Any]) -> Iterator[Sample]:
    """Yield every timing of a single operator that ran in both dtypes."""
    cases = {case.name: case for case in all_cases()}
    calling = min(job["us"]["float32 plain"] for job in _timings(document, EMPTY))
    for measured in document["cases"]:
        case = cases.get(measured["name"])
        if case is None or measured["fused"] or len(case.steps) != 1 or case.steps[0].low_only:
            continue
        for job in _timings(document, case.name):
            work = _work(case, Dims(*job["dims"]))
            if work is None:
                continue
            fed = job.get("after_conv_us")
            if fed is not None and min(fed.values()) > 0:
                times = Rates(fed["float32"], fed["bfloat16"])
            else:
                plain = job["us"]
                times = Rates(plain["float32 plain"] - calling, plain["bfloat16 plain"] - calling)
            yield Sample(FACTS.canonical(case.steps[0].op), work, times)


def _timings(document: Mapping[str, Any], name: str) -> list[Any]:
    return [
        job
        for case in document["cases"]
        if case["name"] == name
        for job in case["jobs"]
        if job["job"] == "time" and "us" in job
    ]


def _work(case: Any, dims: Dims) -> Work | None:
    built = Builder(mx, case, dims, "float32", "plain").build()
    graph = graph_from_symbol(built.symbol)
    shapes = infer_shapes(graph, {name: value.shape for name, (value, _) in built.values.items()}, {})
    return work_of(graph, len(graph.nodes) - 1, shapes)


def cost(document: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Return the ``cost`` of a target; unmeasured operators cost what those do that work on it."""
    found = list(samples(document))
    overhead = round(min(min(sample.times) for sample in found if min(sample.times) > 1), 1)
    flops = Rates(*(_best(found, low, _flops) for low in (False, True)))
    moved = Rates(*(_best(found, low, _bytes) for low in (False, True)))
    factors: dict[str, list[dict[str, Any]]] = {}
    works: list[Rates] = []
    for op in sorted({sample.op for sample in found}):
        own = [sample for sample in found if sample.op == op]
        for kind in KINDS.get(op, ({},)):
            condition = OperatorCost(Rates(1, 1), **kind)
            chosen = [sample for sample in own if condition.holds_for(sample.work)]
            own = [sample for sample in own if sample not in chosen]
            if chosen:
                rates = Rates(*(_factor(chosen, low, flops, moved, overhead) for low in (False, True)))
                factors.setdefault(op, []).append({**kind, **rates._asdict()})
                if target.support(op, {}).support is Support.WORKS:
                    works.append(rates)
    first, last = _timings(document, CAST)
    more = _elements(last["dims"]) - _elements(first["dims"])
    slope = (last["after_conv_us"]["bfloat16"] - first["after_conv_us"]["bfloat16"]) / more
    machine = document["machine"]
    return {
        "measured": True,
        "source": f"tools/measure_cpu_bfloat16.py and tools/fit_target_costs.py, MXNet {machine['mxnet']}, "
        f"{machine['cpu']}, {machine['omp_threads']} thread",
        "flops_per_us": flops._asdict(),
        "bytes_per_us": moved._asdict(),
        "overhead_us": {"float32": overhead, "low": overhead},
        "cast": {"bytes_per_us": round(6 / slope), "overhead_us": overhead},
        "default": Rates(
            *(round(statistics.median(rates[low] for rates in works), 2) for low in (False, True))
        )._asdict(),
        "operators": factors,
    }


def _elements(dims: Sequence[int]) -> int:
    return dims[0] * dims[1] * dims[2] ** 2


def _flops(work: Work, low: bool) -> int:
    return 2 * work.multiply_adds


def _bytes(work: Work, low: bool) -> int:
    return (2 if low else 4) * work.elements


def _best(found: Sequence[Sample], low: bool, amount: Callable[[Work, bool], int]) -> int:
    rates = sorted(amount(sample.work, low) / sample.times[low] for sample in found if sample.times[low] > 20)
    return round(rates[-3])  # the best two may be luck


def _factor(found: Sequence[Sample], low: bool, flops: Rates, moved: Rates, overhead: float) -> float:
    ratios = []
    for sample in found:
        roofline = max(_flops(sample.work, low) / flops[low], _bytes(sample.work, low) / moved[low])
        ratios.append(max(sample.times[low] - overhead, 0.0) / roofline if roofline else 1.0)
    return round(max(statistics.median(ratios), LEAST), 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Fit and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("raw", type=Path, metavar="RAW.json", help="what measure_cpu_bfloat16.py wrote")
    parser.add_argument("target", type=Path, metavar="TARGET.json", help="the target whose cost is set")
    arguments = parser.parse_args(argv)
    fitted = cost(json.loads(arguments.raw.read_text("utf-8")), Target.load(arguments.target))
    lines = arguments.target.read_text("utf-8").rstrip()
    document = json.loads(lines)
    operators = fitted.pop("operators")
    # One operator a line, as in the rest of the file.
    head = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in fitted.items())
    rows = ",\n".join(f"   {json.dumps(op)}: {json.dumps(entries)}" for op, entries in operators.items())
    if "cost" in document:
        lines = lines[: lines.index(',\n "cost": ')] + "\n}"
    arguments.target.write_text(
        f'{lines[:-2]},\n "cost": {{\n{head},\n  "operators": {{\n{rows}\n  }}\n }}\n}}\n', "utf-8"
    )
    json.loads(arguments.target.read_text("utf-8"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
