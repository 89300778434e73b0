"""The bounds on speed that hold for each group of models: the zoo's, and the networks that are not of it."""

from __future__ import annotations

import statistics
from typing import Mapping, NamedTuple, Sequence

from tools.benchmark_models.bounds import Bound, case_of, extreme_bound, means_by_batch
from tools.benchmark_models.names import (
    FP32,
    GROUPS,
    MXAMP,
    MXAMP_NO_SHAPES,
    MXAMP_PROFILED,
    PREPARED,
    STOCK,
    TITLES,
)
from tools.benchmark_models.results import Benchmark, Measured

__all__ = ["judge_groups", "ratios_in"]

NO_SLOWER = 0.97
"""What counts as no slower: two bindings of one model differ by as much."""


class _Demand(NamedTuple):
    """How many times as fast as another a variant must be; None where nothing is demanded."""

    variant: str
    to: str
    mean: float | None
    least: float | None


_DEMANDS: Mapping[str, Sequence[_Demand]] = {
    "zoo": (
        _Demand(MXAMP, FP32, 2.0, 1.3),
        _Demand(MXAMP, STOCK, 1.3, None),
        _Demand(PREPARED, FP32, 1.1, NO_SLOWER),
    ),
    "networks": (
        _Demand(MXAMP, FP32, 1.8, NO_SLOWER),
        _Demand(PREPARED, FP32, 1.3, NO_SLOWER),
        _Demand(MXAMP_PROFILED, FP32, None, NO_SLOWER),
    ),
}
_OF_EACH_GROUP = (
    _Demand(MXAMP_NO_SHAPES, FP32, None, NO_SLOWER),
    _Demand(MXAMP_NO_SHAPES, MXAMP, 0.9, None),
    _Demand(MXAMP, MXAMP_NO_SHAPES, None, NO_SLOWER),
    _Demand(MXAMP, MXAMP_PROFILED, None, 0.95),
    _Demand(MXAMP_PROFILED, MXAMP, None, NO_SLOWER),
)


def judge_groups(benchmark: Benchmark) -> list[Bound]:
    """Hold what was measured of each group against its bounds, all of them on a CPU that runs bfloat16 fast.

    A model that stock's converter fails on in both settings is compared with FP32, for that is what remains.
    """
    return [
        bound
        for group, own in _DEMANDS.items()
        for demand in (*own, *_OF_EACH_GROUP)
        for bound in _judge(benchmark, group, demand)
    ]


def ratios_in(benchmark: Benchmark, group: str, variant: str, to: str = FP32) -> Mapping[str, float]:
    """Return how many times as fast as another a variant is, for each model of a group where both ran.

    Parameters
    ----------
    benchmark
        What was measured.
    group
        One of :data:`tools.benchmark_models.names.GROUPS`.
    variant, to
        The variants; ``to`` may be stock, which is the better of its settings, or FP32 where that fails.

    Returns
    -------
    mapping of str to float
        Model and batch size -> the median over rounds.
    """
    found = {}
    for measured in benchmark.models:
        if measured.name in GROUPS[group]:
            ratio = measured.ratio(variant, to=_or_fp32(measured) if to == STOCK else to)
            if ratio is not None:
                found[case_of(measured)] = ratio.median
    return found


def _or_fp32(measured: Measured) -> str:
    return measured.better_stock or FP32


def _judge(benchmark: Benchmark, group: str, demand: _Demand) -> Sequence[Bound]:
    ratios = ratios_in(benchmark, group, demand.variant, demand.to)
    beside = "the better stock setting, or FP32 where none runs" if demand.to == STOCK else TITLES[demand.to]
    text = f"{TITLES[demand.variant]} against {beside}, {group}"
    failing = tuple(
        f"{case_of(measured)}: {measured.why_not(demand.variant)}"
        for measured in benchmark.models
        if measured.name in GROUPS[group] and measured.ran(FP32) and not measured.ran(demand.variant)
    )
    bounds = []
    if demand.mean is not None:
        mean = statistics.geometric_mean(ratios.values()) if ratios else None
        where = means_by_batch(benchmark.models, ratios)
        bounds.append(Bound(f"geometric mean of {text}", demand.mean, True, mean, where, failing))
    if demand.least is not None:
        bounds.append(extreme_bound(f"slowest {text}", ratios, demand.least, True, failing))
    return bounds
