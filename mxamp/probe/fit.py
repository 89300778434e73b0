"""Fitting the cost model to times: peak rates, and each operator's factor over the roofline.

The peak rates are the best that any case reached. The factors of an operator are the medians, over its cases,
of the measured time over what the roofline gives; an operator is timed behind a convolution where that was
measured, since there it pays for the layout that it finds. Where kernels differ by more than size (channels
that do not fill a block, a bias), each kind has factors of its own.
"""

from __future__ import annotations

import statistics
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

from mxamp.ops import FACTS
from mxamp.probe.case import Case
from mxamp.probe.cases.overheads import LONG_CHAIN, LONG_LENGTH, SHORT_CHAIN
from mxamp.probe.jobs import TIME, Unit
from mxamp.probe.workers import Answer
from mxamp.targets import OperatorCost, Rates, Work

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

_EMPTY = "amp_cast down"
"""The case whose FP32 graph holds no operator: its time is that of calling MXNet."""

_CAST = "amp_cast up"

_LEAST = 0.05
"""The smallest factor: a time below the overhead is noise."""

_LEAST_US = 20.0
"""Shorter times say nothing of a peak rate."""

_LUCKY = 2
"""How many of the best rates may be luck."""

_FEWEST = 20
"""Fewer times are too few to tell peak rates from."""


class Sample(NamedTuple):
    """One timing of one operator, in microseconds.

    Attributes
    ----------
    op
        Its canonical name.
    work
        What it does.
    plain
        What it takes alone.
    behind
        What it adds to a convolution in front of it; None where that was not measured.
    """

    op: str
    work: Work
    plain: Rates
    behind: Rates | None = None

    @property
    def times(self) -> Rates:
        """What it takes: behind a convolution where that is more than noise."""
        return self.plain if self.behind is None or min(self.behind) <= 0 else self.behind


def gather_samples(cases: Mapping[str, Case], answers: Mapping[Unit, Answer]) -> list[Sample]:
    """Return every timing of a single operator that ran in both dtypes."""
    calling = min((job["us"]["float32"] for job in _times(answers, _EMPTY)), default=0.0)
    found = []
    for case in cases.values():
        if case.fused or len(case.steps) != 1 or case.steps[0].low_only:
            continue
        for job in _times(answers, case.name):
            if "work" not in job:
                continue
            plain, behind = job["us"], job.get("behind_us")
            found.append(
                Sample(
                    FACTS.canonical(case.steps[0].op),
                    Work(**job["work"]),
                    Rates(plain["float32"] - calling, plain["low"] - calling),
                    None if behind is None else Rates(behind["float32"], behind["low"]),
                )
            )
    return found


def _times(answers: Mapping[Unit, Answer], name: str) -> Sequence[Mapping[str, Any]]:
    answer = answers.get(Unit(name, TIME))
    return () if answer is None else [job for job in answer.jobs if "us" in job]


def operator_overhead(answers: Mapping[Unit, Answer]) -> Rates | None:
    """Return what even the smallest operator costs: a long chain of them over a short one."""
    short, long = ([job["us"] for job in _times(answers, name)] for name in (SHORT_CHAIN, LONG_CHAIN))
    if not short or not long:
        return None

    def each(label: str) -> float:
        more = min(float(us[label]) for us in long) - min(float(us[label]) for us in short)
        return round(max(more / (LONG_LENGTH - 1), 0.1), 1)

    return Rates(each("float32"), each("low"))


def call_microseconds(answers: Mapping[Unit, Answer], overhead: Rates) -> float:
    """Return what a forward pass takes besides its operators: a short chain of them, less what each costs.

    Parameters
    ----------
    answers
        What was measured.
    overhead
        What :func:`operator_overhead` returned of it.
    """
    short = min(float(job["us"]["float32"]) for job in _times(answers, SHORT_CHAIN))
    return round(max(short - overhead.float32, 0.0), 1)


def cast_rate(answers: Mapping[Unit, Answer]) -> float | None:
    """Return the bytes that a cast moves in a microsecond: the slope between sizes.

    Behind a convolution, whose layout it may have to change, where that is more than noise.
    """
    for name, key in ((_CAST, "behind_us"), (_CAST, "us"), (_EMPTY, "us")):
        points = sorted(
            (job["dims"][0] * job["dims"][1] * job["dims"][2] ** 2, float(job[key]["low"]))
            for job in _times(answers, name)
            if key in job
        )
        slopes = [
            (late[1] - early[1]) / (late[0] - early[0])
            for number, early in enumerate(points)
            for late in points[number + 1 :]
            if late[0] > early[0]
        ]
        slope = statistics.median(slopes) if slopes else 0.0
        if slope > 0:
            return round((4 + 2) / slope)
    return None


def fit_costs(
    samples: Sequence[Sample], overhead: Rates, cast_bytes_per_us: float, works: Iterable[str]
) -> dict[str, Any] | None:
    """Return the numbers of a target's ``cost``; None where too little was timed to tell.

    Parameters
    ----------
    samples
        The times.
    overhead
        What even the smallest operator costs, in microseconds.
    cast_bytes_per_us
        The bytes a cast moves in a microsecond.
    works
        The operators that run low: others that were not timed cost what these do.
    """
    if len(samples) < _FEWEST:
        return None
    best = [(_best(samples, low, _operations), _best(samples, low, _bytes)) for low in (False, True)]
    flops, moved = (Rates(*rates) for rates in zip(*best))
    if min(*flops, *moved) <= 0:
        return None
    eligible = set(works)
    factors: dict[str, list[dict[str, Any]]] = {}
    ordinary: list[Rates] = []
    for op in sorted({sample.op for sample in samples}):
        own = [sample for sample in samples if sample.op == op]
        for kind in KINDS.get(op, ({},)):
            condition = OperatorCost(Rates(1, 1), **kind)
            chosen = [sample for sample in own if condition.holds_for(sample.work)]
            own = [sample for sample in own if not condition.holds_for(sample.work)]
            if not chosen:
                continue
            rates = Rates(*(_factor(chosen, low, flops, moved, overhead) for low in (False, True)))
            factors.setdefault(op, []).append({**kind, **rates._asdict()})
            if op in eligible:
                ordinary.append(rates)
    others = ordinary or [Rates(1.0, 1.0)]
    return {
        "flops_per_us": flops._asdict(),
        "bytes_per_us": moved._asdict(),
        "overhead_us": overhead._asdict(),
        "cast": {"bytes_per_us": cast_bytes_per_us, "overhead_us": overhead.low},
        "default": {
            "float32": round(statistics.median(rates.float32 for rates in others), 2),
            "low": round(statistics.median(rates.low for rates in others), 2),
        },
        "operators": factors,
    }


_Amount = Callable[[Work, bool], int]


def _operations(work: Work, low: bool) -> int:
    return 2 * work.multiply_adds


def _bytes(work: Work, low: bool) -> int:
    return (2 if low else 4) * work.elements


def _best(samples: Sequence[Sample], low: bool, amount: _Amount) -> int:
    rates = sorted(
        amount(sample.work, low) / sample.times[low] for sample in samples if sample.times[low] > _LEAST_US
    )
    return round(rates[-1 - _LUCKY]) if len(rates) > _LUCKY else 0


def _factor(samples: Sequence[Sample], low: bool, flops: Rates, moved: Rates, overhead: Rates) -> float:
    ratios = []
    for sample in samples:
        roofline = max(_operations(sample.work, low) / flops[low], _bytes(sample.work, low) / moved[low])
        ratios.append(max(sample.times[low] - overhead[low], 0.0) / roofline if roofline else 1.0)
    return round(max(statistics.median(ratios), _LEAST), 2)
