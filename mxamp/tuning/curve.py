"""The placements of a model from the fastest to the most exact, with estimates of time and error."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import AbstractSet, Any, Callable, Mapping, Sequence

from mxamp.calibration import Calibration, Compensation
from mxamp.calibration.prices import Prices
from mxamp.calibration.sites import Site, rounding_sites
from mxamp.conversion import Options, Source, convert_graph
from mxamp.conversion.shapes import known_shapes
from mxamp.decisions.placing import Placing
from mxamp.dtypes import DType
from mxamp.errors import TargetError
from mxamp.graph.unfused import unfused
from mxamp.model import Model
from mxamp.placement import (
    PlacementProblem,
    RoundingPrice,
    TradeOff,
    fastest_placement,
    impossible_below,
    place,
    rounding_cost,
    totals,
    trade_offs,
)
from mxamp.policy.resolve import resolve_policy
from mxamp.profile.choices import these
from mxamp.report.build import Rewrites
from mxamp.targets import Target
from mxamp.targets.choose import resolve_target


@dataclass(frozen=True)
class Curve:
    """The trade-off of a model.

    Attributes
    ----------
    source, options
        What is converted, and how.
    problem
        The placement problem.
    sites
        The roundings that placements bring about.
    today
        The placement of a conversion that knows no prices.
    fixed_us
        What the nodes take that have no choice.
    float32_us
        What the FP32 model takes.
    """

    source: Source
    options: Options
    problem: PlacementProblem
    sites: Sequence[Site]
    today: TradeOff
    fixed_us: float
    float32_us: float

    @cached_property
    def corners(self) -> Sequence[TradeOff]:
        """The placements, the fastest first; they are searched for when they are first asked for."""
        return trade_offs(self.problem, self._prices)

    @cached_property
    def fastest(self) -> TradeOff:
        """The first of the corners."""
        return fastest_placement(self.problem, self._prices)

    def impossible_below(self, more_time: float) -> float:
        """Return the error that no placement falls below, as predicted, within a share more of the time."""
        limit = self.fastest.time + 1000 * more_time * self.microseconds(self.fastest)
        return math.sqrt(impossible_below(self.problem, self._prices, limit))

    @property
    def _prices(self) -> list[RoundingPrice]:
        return [site.price for site in self.sites]

    def microseconds(self, point: TradeOff) -> float:
        """Return what a placement takes, as estimated."""
        return self.fixed_us + point.time / 1000

    def error(self, point: TradeOff) -> float:
        """Return the relative L2 error of a placement, as predicted."""
        return math.sqrt(point.error)

    def point(self, low: AbstractSet[int]) -> TradeOff:
        """Return a placement with its time and error."""
        return TradeOff(
            frozenset(low), totals(self.problem.unpriced, low).cost, rounding_cost(self._prices, low)
        )

    def names(self, nodes: AbstractSet[int]) -> tuple[str, ...]:
        """Return what nodes are called."""
        return tuple(self.problem.graph.nodes[node].name for node in sorted(nodes))

    def convert(self, point: TradeOff) -> Model:
        """Convert with a placement."""
        placing = Placing(these(point.low), "as tuned on the curve of time and error", spares=False)
        return convert_graph(self.source, replace(self.options, placing=placing), warn=False)

    def selected(self, most: int) -> list[TradeOff]:
        """Return the corners that matter, those whose errors lie furthest apart, and both ends."""
        if len(self.corners) <= most:
            return list(self.corners)
        kept = [self.corners[0], self.corners[-1]]
        logs = {corner.low: math.log(max(corner.error, 1e-30)) for corner in self.corners}
        floor = math.log(max(self.corners[0].error, 1e-30)) - 20  # an error of 0 is not infinitely far
        logs = {low: max(value, floor) for low, value in logs.items()}
        while len(kept) < most:
            left = [corner for corner in self.corners if corner not in kept]
            kept.append(max(left, key=lambda c: min(abs(logs[c.low] - logs[k.low]) for k in kept)))
        return sorted(kept, key=lambda corner: corner.time)


def explore(
    model: Model,
    prices: Prices,
    input_shapes: Mapping[str, Sequence[int]],
    *,
    target_dtype: Any = "bfloat16",
    target: Any = None,
    policy: Any = None,
    exclude: Sequence[str] = (),
    weights: float = 1.0,
    calibration: Calibration | None = None,
    compensate: Compensation | None = None,
) -> Curve:
    """Return the whole curve of a model.

    Parameters
    ----------
    model
        The FP32 model.
    prices
        What its roundings cost.
    input_shapes
        The shapes that times are of.
    target_dtype, target, policy, exclude
        As for :func:`mxamp.convert_model`.
    weights
        The share of the weights' squared error that is left: 1 where they are rounded as they are.
    calibration, compensate
        As for :func:`mxamp.convert_model`, for the points that are converted.

    Raises
    ------
    TargetError
        When the target says nothing of costs.
    """
    graph, params = unfused(model.graph).graph, {**model.arg_params, **model.aux_params}
    chosen = resolve_policy(policy, target_dtype, graph, exclude=exclude)
    machine = Target.for_dtype(chosen.target_dtype)
    if target is not None:
        machine = resolve_target(target, chosen.target_dtype)
    known = known_shapes(graph, input_shapes, params)
    names = [name for name in graph.variables if name not in params]
    source = Source(graph, model.arg_params, model.aux_params, names, known.entries, known.notes)
    options = Options(chosen, machine, calibration=calibration, compensate=compensate)
    trial = replace(options, is_trial=True)
    problem, rewrites = _problem(source, trial, spares=False)
    today, _ = _placed(source, trial, spares=True)
    if problem.costs is None or rewrites.plan.estimates is None:
        raise TargetError(
            f"The target {machine.name} says nothing of what operators cost for these shapes, so that time "
            f"cannot be weighed against error. Take one with costs{_such_as(chosen.target_dtype)} (`mxamp "
            "targets` lists them), or probe this machine: `mxamp probe`."
        )
    sites = rounding_sites(problem, prices, chosen.target_dtype, fold_into=machine.fold_into, weights=weights)
    float32 = rewrites.plan.estimates.float32
    fixed = sum(cost for position, cost in enumerate(float32) if position not in problem.costs.nodes)
    unplaced = TradeOff(frozenset(today), 0, 0.0)
    curve = Curve(source, options, problem, sites, unplaced, fixed, sum(float32))
    return replace(curve, today=curve.point(today))


def _such_as(dtype: DType) -> str:
    known = [Target.builtin(name) for name in Target.builtin_names()]
    names = [one.name for one in known if one.dtype is dtype and one.cost is not None]
    return f", such as {names[-1]}" if names else ""


def _problem(source: Source, options: Options, *, spares: bool) -> tuple[PlacementProblem, Rewrites]:
    seen: list[PlacementProblem] = []

    def choose(problem: PlacementProblem, wanted: AbstractSet[int]) -> set[int]:
        seen.append(problem)
        return place(problem)

    return _observed(source, options, choose, spares, lambda: seen[-1])


def _placed(source: Source, options: Options, *, spares: bool) -> tuple[set[int], Rewrites]:
    seen: list[set[int]] = []

    def choose(problem: PlacementProblem, wanted: AbstractSet[int]) -> set[int]:
        seen.append(place(problem))
        return seen[-1]

    return _observed(source, options, choose, spares, lambda: seen[-1])


def _observed(
    source: Source, options: Options, choose: Any, spares: bool, seen: Callable[[], Any]
) -> tuple[Any, Rewrites]:
    rewrites: list[Rewrites] = []
    placing = Placing(choose, "", spares=spares)
    convert_graph(source, replace(options, placing=placing), warn=False, observe=rewrites.append)
    return seen(), rewrites[-1]
