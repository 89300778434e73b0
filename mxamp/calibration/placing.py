"""Place a conversion's nodes by what their roundings cost in accuracy, for a little of the time."""

from __future__ import annotations

from typing import AbstractSet, Collection, Mapping

from mxamp.calibration.compensate import FULL, Compensation
from mxamp.calibration.prices import LABELS, Prices
from mxamp.calibration.sites import rounding_sites
from mxamp.decisions.dear_roundings import GIVEN_UP, GROWTH, weights_read
from mxamp.decisions.placing import Placing
from mxamp.dtypes import DType
from mxamp.errors import PolicyError
from mxamp.ops.parameters import LAYERS
from mxamp.params.parameter import Parameter
from mxamp.placement import PlacementProblem, least_error, place

TIME_BUDGET = GIVEN_UP
"""The share of the estimated time that is given up for a smaller error: as much as without a calibration."""

LEFT_OF_WEIGHTS = 0.05
"""The share of the squared error of weights that compensation leaves: 0.22 of the error, as the geometric
mean of what docs/calibration.md lists."""


def left_of_weights(compensation: Compensation | None) -> float:
    """Return the share of the squared error of weights that a compensation leaves."""
    return 1.0 if compensation is None or compensation.mode != FULL else LEFT_OF_WEIGHTS


def check_time_budget(given: object) -> float | None:
    """Return a time budget.

    Raises
    ------
    PolicyError
        When it is no share of the time.
    """
    if given is None:
        return None
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not is_number or not 0.0 <= given <= 10.0:  # type: ignore[operator]
        raise PolicyError(
            f"time_budget must be a number from 0 to 10, not {given!r:.80}: how much longer the model may "
            "take than the fastest placement, by estimate, for a smaller error. 0.02 is two percent."
        )
    return float(given)  # type: ignore[arg-type]


def placing_by_prices(
    prices: Prices,
    dtype: DType,
    params: Mapping[str, Parameter],
    *,
    fold_into: Collection[str] = LAYERS,
    time_budget: float | None = None,
    weights: float = 1.0,
) -> Placing | None:
    """Return what places nodes so that the error is least for a little of the time.

    Parameters
    ----------
    prices
        What roundings cost.
    dtype
        The low dtype.
    params
        Parameters by name: without a budget of the caller's, the file may grow by a quarter of them so that
        weights stay FP32.
    fold_into
        The operators into which a BatchNorm behind them is folded.
    time_budget
        How much longer the placement may take than the fastest, as a share of what has a choice.
    weights
        The share of the weights' squared error that is left.

    Returns
    -------
    Placing or None
        None for a dtype that roundings are not priced for.
    """
    if dtype.label not in LABELS:
        return None

    budget = TIME_BUDGET if time_budget is None else time_budget

    def choose(problem: PlacementProblem, wanted: AbstractSet[int]) -> set[int]:
        assert problem.costs is not None  # it needs them
        choices = problem.free | problem.low
        fastest = place(problem.unpriced)

        def grown(low: AbstractSet[int]) -> int:
            return weights_read(problem.graph, choices - low, params)

        read = weights_read(problem.graph, choices, params)
        most = grown(fastest) + GROWTH * read
        sites = rounding_sites(problem, prices, dtype, fold_into=fold_into, weights=weights)
        point = least_error(
            problem,
            [site.price for site in sites],
            budget,
            allows=lambda low: time_budget is not None or grown(low) <= most,
            others=[place(problem)],
        )
        return set(point.low)

    reason = f"errs least for at most {100 * budget:g} % more time, as priced by the calibration"
    return Placing(choose, reason, needs_costs=True)
