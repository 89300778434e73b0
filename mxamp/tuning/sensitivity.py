"""Which nodes' roundings hurt, and what it would cost to spare each."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Callable, Sequence

from mxamp.calibration.prices import Prices
from mxamp.calibration.pricing import price_roundings
from mxamp.calibration.subject import any_model
from mxamp.dtypes import GivenDType
from mxamp.errors import DataError
from mxamp.model.accepted import AnyModel, Device, GivenSamples
from mxamp.placement import place, totals
from mxamp.policy.resolve import GivenPolicy
from mxamp.report.table import Column, format_table, terminal_width
from mxamp.targets import GivenTarget
from mxamp.tuning.curve import Curve, explore
from mxamp.tuning.samples import first_shapes


@dataclass(frozen=True)
class NodeSensitivity:
    """What one rounding of today's conversion costs in accuracy, and in time to avoid.

    Attributes
    ----------
    name
        The node whose result is rounded, or the parameter.
    op
        Its operator; ``"parameter"``.
    is_parameter
        Whether it is a parameter.
    error
        The relative L2 error of the outputs that it causes alone.
    share
        Its share of the squared error of all roundings.
    cumulated
        The share of it and of those ranked before it, of the same kind.
    microseconds
        What the fastest placement without this rounding takes longer, as estimated; None where it cannot be
        avoided.
    """

    name: str
    op: str
    is_parameter: bool
    error: float
    share: float
    cumulated: float
    microseconds: float | None


@dataclass(frozen=True)
class Sensitivity:
    """The roundings of a model's conversion, ranked.

    Attributes
    ----------
    activations, weights
        Roundings of results, and of parameters, the dearest first.
    error
        The relative L2 error that all of them are predicted to cause together.
    of_activations, of_weights
        The same of either kind.
    estimated_us
        What the conversion takes, as estimated.
    samples
        With how many samples it was measured.
    target
        What was converted for.
    """

    activations: tuple[NodeSensitivity, ...]
    weights: tuple[NodeSensitivity, ...]
    error: float
    of_activations: float
    of_weights: float
    estimated_us: float
    samples: int
    target: str

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return asdict(self)

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(self.to_mapping(), indent=1, allow_nan=False)

    def text(self, most: int | None = 15) -> str:
        """Return it as text.

        Parameters
        ----------
        most
            So many of each kind; None for all.
        """
        lines = [
            f"predicted relative L2 error on {self.target}, {self.samples} samples: {self.error:.2e} "
            f"(results {self.of_activations:.2e}, weights {self.of_weights:.2e})"
        ]
        for title, ranked in (("results", self.activations), ("weights", self.weights)):
            rows = [
                [
                    one.name,
                    one.op,
                    f"{one.error:.2e}",
                    f"{100 * one.share:.1f} %",
                    f"{100 * one.cumulated:.1f} %",
                    "-" if one.microseconds is None else f"{one.microseconds:.1f} us",
                ]
                for one in ranked[:most]
            ]
            lines.append("")
            if not rows:
                lines.append(f"no rounding of {title} has a price")
                continue
            columns = [
                Column(f"rounding of {title}"),
                Column("operator"),
                Column("error", right=True),
                Column("share", right=True),
                Column("cumulated", right=True),
                Column("to avoid", right=True),
            ]
            lines += format_table(columns, rows, terminal_width())
            if most is not None and len(ranked) > most:
                lines.append(f"and {len(ranked) - most} more (--all)")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def sensitivity(
    model: AnyModel,
    data: GivenSamples,
    *,
    target_dtype: GivenDType = "bfloat16",
    target: GivenTarget = None,
    policy: GivenPolicy = None,
    exclude: Sequence[str] = (),
    max_samples: int | None = 32,
    seed: int = 0,
    ctx: Device = None,
    prices: Prices | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Sensitivity:
    """Rank the roundings of a model's conversion by what they do to its outputs.

    Parameters
    ----------
    model, data
        As for :func:`mxamp.calibrate`; no labels are needed.
    target_dtype, target, policy, exclude
        As for :func:`mxamp.convert_model`.
    max_samples
        Use only so many samples, the first ones.
    seed
        Of the cotangents.
    ctx
        Where to run.
    prices
        What :func:`mxamp.calibration.price_roundings` returned; by default it is called.
    progress
        ``progress(done, total)``.

    Returns
    -------
    Sensitivity
        It prints as two tables.

    Raises
    ------
    DataError, OperatorError
        As :func:`mxamp.calibration.price_roundings`.
    TargetError
        When the target says nothing of costs.
    """
    model = any_model(model)
    if prices is not None and not isinstance(prices, Prices):
        raise DataError(f"prices are what price_roundings returned, not {type(prices).__name__}.")
    if prices is None:
        prices = price_roundings(model, data, max_samples=max_samples, seed=seed, ctx=ctx, progress=progress)
    curve = explore(
        model,
        prices,
        first_shapes(model, data),
        target_dtype=target_dtype,
        target=target,
        policy=policy,
        exclude=exclude,
    )
    return _ranked(curve, prices)


def _ranked(curve: Curve, prices: Prices) -> Sensitivity:
    low = curve.today.low
    present = [site for site in curve.sites if not site.price.nodes.isdisjoint(low)]
    total = sum(site.price.error for site in present) or 1.0
    graph = curve.problem.graph
    ops = {node.name: node.op for node in graph.nodes}

    def kind(is_parameter: bool) -> tuple[NodeSensitivity, ...]:
        found, cumulated = [], 0.0
        own = [site for site in present if site.is_parameter is is_parameter]
        for site in sorted(own, key=lambda site: -site.price.error):
            cumulated += site.price.error
            op = "parameter" if is_parameter else ops.get(site.name.partition("[")[0], "")
            found.append(
                NodeSensitivity(
                    site.name,
                    "input" if op == "null" else op,
                    is_parameter,
                    math.sqrt(site.price.error),
                    site.price.error / total,
                    cumulated / total,
                    _to_avoid(curve, site.price.nodes),
                )
            )
        return tuple(found)

    activations, weights = kind(False), kind(True)
    return Sensitivity(
        activations,
        weights,
        math.sqrt(sum(site.price.error for site in present)),
        math.sqrt(sum(one.error**2 for one in activations)),
        math.sqrt(sum(one.error**2 for one in weights)),
        curve.microseconds(curve.today),
        prices.samples,
        curve.options.target.name,
    )


def _to_avoid(curve: Curve, nodes: frozenset[int]) -> float | None:
    """Return what it takes longer to have none of some nodes low."""
    problem = curve.problem
    if nodes & problem.low:
        return None
    bare = problem.unpriced
    without = place(replace(bare, free=bare.free - nodes, widest=bare.widest - nodes))
    return max(0.0, (totals(bare, without).cost - curve.fastest.time) / 1000)
