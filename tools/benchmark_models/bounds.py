"""The bounds that mxamp is to keep in this benchmark, each with the measured figure."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass
from typing import Any, Mapping, Sequence

from tools.benchmark_models.names import MXAMP, MXAMP_PROFILED, PLAIN_RESNETS, TITLES
from tools.benchmark_models.results import Benchmark, Measured

__all__ = ["Bound", "case_of", "extreme_bound", "judge", "judged_variant", "means_by_batch"]

SLOWEST_TO_FP32 = 0.98
SLOWEST_TO_STOCK = 0.97
MEAN_TO_STOCK = 1.12
ERROR_TO_STOCK = 1.0
SMALLER_ON_RESNETS = 5.0
CONVERSION_TO_STOCK = 5.0


@dataclass(frozen=True)
class Bound:
    """One bound.

    Attributes
    ----------
    text
        What is bounded.
    limit
        The bound.
    is_lower
        Whether the figure must be at least the limit; otherwise at most.
    figure
        What was measured; None where nothing was.
    where
        Which model has that figure, or how many there are.
    failing
        Models that have no figure although they should, with the reason.
    within
        For a figure with a margin of error, whether every model is within the limit, by that margin.
    """

    text: str
    limit: float
    is_lower: bool
    figure: float | None
    where: str = ""
    failing: tuple[str, ...] = ()
    within: bool | None = None

    @property
    def is_met(self) -> bool:
        """Whether it holds, for everything that should have a figure."""
        if self.figure is None or self.failing:
            return False
        if self.within is not None:
            return self.within
        return self.figure >= self.limit if self.is_lower else self.figure <= self.limit

    @property
    def is_broken(self) -> bool:
        """Whether it was measured and does not hold; part of the models may leave nothing to measure."""
        return not self.is_met and (self.figure is not None or bool(self.failing))

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for JSON, which has no infinity."""
        figure = self.figure
        known = figure is None or math.isfinite(figure)
        return {**asdict(self), "figure": figure if known else str(figure), "is_met": self.is_met}

    def __str__(self) -> str:
        demanded = f"{'at least' if self.is_lower else 'at most'} {self.limit:g}"
        verdict = "met    " if self.is_met else "not met" if self.is_broken else "-      "
        figure = "not measured" if self.figure is None else f"{self.figure:.3f}"
        where = f"; {self.where}" if self.where else ""
        failing = f"; fails: {'; '.join(self.failing)}" if self.failing else ""
        return f"{verdict}  {self.text}: {figure} ({demanded}{where}){failing}"


def judged_variant(benchmark: Benchmark) -> str:
    """Return the variant that the bounds are for: mxamp with profile, where this version has it."""
    return MXAMP_PROFILED if benchmark.has(MXAMP_PROFILED) else MXAMP


def judge(benchmark: Benchmark, variant: str | None = None) -> list[Bound]:
    """Hold a benchmark against the bounds.

    Parameters
    ----------
    benchmark
        What was measured.
    variant
        Whose figures; by default :func:`judged_variant`.

    Returns
    -------
    list of Bound
        On speed and error for the models as they are; the last, on the time of conversion, is for
        conversions without profile in any case.
    """
    variant = variant or judged_variant(benchmark)
    to_fp32: dict[str, float] = {}
    to_stock: dict[str, float] = {}
    errors: dict[str, list[float]] = {}
    smaller: dict[str, list[float]] = {}
    failing = []
    for measured in benchmark.models:
        case = case_of(measured)
        ratio = measured.ratio(variant)
        if ratio is None:
            failing.append(f"{case}: {measured.why_not(variant)}")
            continue
        to_fp32[case] = ratio.median
        stock = measured.better_stock
        if stock is None:
            continue
        beside = measured.ratio(variant, to=stock)
        assert beside is not None  # both ran
        to_stock[case] = beside.median
        pairs = list(zip(measured.figures[variant].errors, measured.stock_errors))
        if not pairs:
            continue
        errors.setdefault(measured.name, []).extend(_quotient(own, of_stock) for own, of_stock in pairs)
        if measured.name in PLAIN_RESNETS:
            smaller.setdefault(measured.name, []).extend(_quotient(of_stock, own) for own, of_stock in pairs)
    conversions = {
        found.name: ratio for found in benchmark.conversions for ratio in [found.ratio()] if ratio is not None
    }
    unconverted = [
        f"{found.name}: {found.failures[MXAMP]}" for found in benchmark.conversions if MXAMP in found.failures
    ]
    title = TITLES[variant]
    mean = statistics.geometric_mean(to_stock.values()) if to_stock else None
    return [
        extreme_bound(f"slowest {title} against FP32", to_fp32, SLOWEST_TO_FP32, True, failing),
        extreme_bound(f"slowest {title} against the better stock setting", to_stock, SLOWEST_TO_STOCK, True),
        Bound(
            f"geometric mean of {title} against the better stock setting",
            MEAN_TO_STOCK,
            True,
            mean,
            means_by_batch(benchmark.models, to_stock),
        ),
        _over_draws(f"largest error of {title} over that of stock", errors, ERROR_TO_STOCK, False),
        _over_draws(
            f"error of stock over that of {title} on plain ResNets", smaller, SMALLER_ON_RESNETS, True
        ),
        extreme_bound(
            "slowest conversion without profile over stock's",
            conversions,
            CONVERSION_TO_STOCK,
            False,
            unconverted,
        ),
    ]


def case_of(measured: Measured) -> str:
    """Return what a model at a batch size is called in bounds."""
    return f"{measured.name}, batch {measured.batch}"


def _quotient(number: float, divisor: float) -> float:
    """Return a quotient of errors: equal ones, and two that are both 0, are as good as each other."""
    if number == divisor:
        return 1.0
    return number / divisor if divisor else math.inf


def extreme_bound(
    text: str, figures: Mapping[str, float], limit: float, is_lower: bool, failing: Sequence[str] = ()
) -> Bound:
    """Return a bound on the least of some figures, or on the largest; case -> figure."""
    if not figures:
        return Bound(text, limit, is_lower, None, failing=tuple(failing))
    case = _worst(figures, is_lower)
    return Bound(text, limit, is_lower, figures[case], f"{case}, of {len(figures)}", tuple(failing))


def _worst(figures: Mapping[str, float], is_lower: bool) -> str:
    # A figure that is not a number must not hide behind the others.
    odd = [case for case, figure in figures.items() if math.isnan(figure)]
    return odd[0] if odd else (min if is_lower else max)(figures, key=lambda case: figures[case])


def _over_draws(text: str, quotients: Mapping[str, Sequence[float]], limit: float, is_lower: bool) -> Bound:
    """Return a bound on quotients of errors, each the geometric mean over draws of a model's weights.

    One draw says little: where two conversions are equally exact, either is better for about half of them.
    So a bound is met where the mean does not break it by more than twice its standard error.
    """
    means = {name: _mean_quotient(found) for name, found in quotients.items()}
    if not means:
        return Bound(text, limit, is_lower, None)
    within = all(
        mean * spread >= limit if is_lower else mean / spread <= limit for mean, spread in means.values()
    )
    name = _worst({name: mean for name, (mean, _) in means.items()}, is_lower)
    mean, spread = means[name]
    draws = len(quotients[name])
    interval = f" ({mean / spread:.3f} to {mean * spread:.3f})" if draws > 1 else ""
    where = f"{name}{interval}, mean of {draws} draws and batches, of {len(means)}"
    return Bound(text, limit, is_lower, mean, where, within=within)


def _mean_quotient(quotients: Sequence[float]) -> tuple[float, float]:
    """Return a geometric mean, and the factor that is two of its standard errors."""
    logs = [math.log(quotient) if quotient else -math.inf for quotient in quotients]
    mean = statistics.fmean(logs)
    if len(logs) < 2 or not math.isfinite(mean):
        return math.exp(mean), 1.0
    return math.exp(mean), math.exp(2 * statistics.stdev(logs) / math.sqrt(len(logs)))


def means_by_batch(models: Sequence[Measured], ratios: Mapping[str, float]) -> str:
    """Return how many ratios there are, and their mean at each batch size."""
    parts = []
    for batch in sorted({measured.batch for measured in models}):
        cases = [case_of(found) for found in models if found.batch == batch]
        own = [ratios[case] for case in cases if case in ratios]
        if own:
            parts.append(f"{statistics.geometric_mean(own):.3f} over {len(own)} models at batch {batch}")
    return ", ".join(parts)
