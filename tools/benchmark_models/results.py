"""What a run measured, read from its journal: figures of every variant, and how they compare."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

import numpy as np

from model_zoo_eval.rows import OK
from mxamp.measuring.race import Ratio
from tools.benchmark_models.names import FP32, MXAMP, STOCK, STOCK_CAST_ONCE

__all__ = ["Benchmark", "ConversionTimes", "Figures", "Measured", "read_rows"]

STOCK_SETTINGS = (STOCK, STOCK_CAST_ONCE)


@dataclass(frozen=True)
class Figures:
    """What was measured of one variant.

    Attributes
    ----------
    failure
        Why there is nothing else; empty where the variant ran.
    milliseconds
        The time of every round; those of all variants of a model at one place were taken in one round.
    relative_l2
        The largest relative L2 error against FP32 with fusion off: of an output, or of what enters the first
        ranking. Infinite where the variant's outputs are not finite and FP32's are.
    errors
        The same for each draw of random weights, :attr:`relative_l2` first; empty where none was measured.
    casts
        Cast operators in the graph.
    parameter_bytes
        Bytes of all arguments and auxiliary states.
    conversion_seconds
        How long it took to make, once, with everything that is done the first time only.
    timed_as
        The variant that is the very same model, and whose times these are; None for times of its own.
    """

    failure: str = ""
    milliseconds: tuple[float, ...] = ()
    relative_l2: float = math.nan
    errors: tuple[float, ...] = ()
    casts: int = 0
    parameter_bytes: int = 0
    conversion_seconds: float | None = None
    timed_as: str | None = None

    @property
    def median_ms(self) -> float:
        """The median time of a forward pass."""
        return float(np.median(self.milliseconds))


@dataclass(frozen=True)
class Measured:
    """What was measured of one model at one batch size.

    Attributes
    ----------
    name, batch
        The model, with its graph form; samples a forward pass.
    figures
        Variant -> its figures; empty where the model could not be measured.
    failure
        Why it could not.
    weights_from
        Where the weights come from, for the reader.
    """

    name: str
    batch: int
    figures: Mapping[str, Figures] = field(default_factory=dict)
    failure: str = ""
    weights_from: str = ""

    def ran(self, variant: str) -> bool:
        """Whether a variant was timed."""
        return variant in self.figures and bool(self.figures[variant].milliseconds)

    def ratio(self, variant: str, to: str = FP32) -> Ratio | None:
        """Return how many times as fast as another a variant is; None unless both ran."""
        if not (self.ran(variant) and self.ran(to)):
            return None
        return Ratio.of(self.figures[to].milliseconds, self.figures[variant].milliseconds)

    @property
    def better_stock(self) -> str | None:
        """The faster setting of MXNet's converter; None where neither runs."""
        ratios = {setting: self.ratio(setting) for setting in STOCK_SETTINGS}
        found = {setting: ratio.median for setting, ratio in ratios.items() if ratio is not None}
        return max(found, key=lambda setting: found[setting]) if found else None

    @property
    def stock_errors(self) -> tuple[float, ...]:
        """The smaller error of MXNet's converter's settings, for each draw; empty where neither runs.

        A setting that leaves the model as it is has no error to compare with.
        """
        settings = [
            self.figures[setting].errors
            for setting in STOCK_SETTINGS
            if self.ran(setting) and self.figures[setting].timed_as != FP32
        ]
        return tuple(map(min, zip(*settings)))

    def why_not(self, variant: str) -> str:
        """Return why a variant was not timed."""
        return self.failure or (self.figures[variant].failure if variant in self.figures else "not measured")


@dataclass(frozen=True)
class ConversionTimes:
    """How long MXNet's converter, at its best setting, and mxamp took to convert a model, by turns.

    Attributes
    ----------
    name
        The model.
    milliseconds
        Converter -> the time of every round.
    failures
        Converter -> why it has none.
    """

    name: str
    milliseconds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    def ratio(self, converter: str = MXAMP) -> float | None:
        """Return the median of a converter's time divided by that of MXNet's; None unless both ran."""
        own, stock = self.milliseconds.get(converter), self.milliseconds.get(STOCK_CAST_ONCE)
        if not own or not stock:
            return None
        return float(np.median(np.asarray(own) / np.asarray(stock)))


@dataclass(frozen=True)
class Benchmark:
    """All that a run measured.

    Attributes
    ----------
    models
        Every model at every batch size, in the order in which they were measured.
    conversions
        The conversion times of every model.
    """

    models: Sequence[Measured] = ()
    conversions: Sequence[ConversionTimes] = ()

    def has(self, variant: str) -> bool:
        """Whether any model has a variant's times."""
        return any(measured.ran(variant) for measured in self.models)


def read_rows(rows: Mapping[str, Mapping[str, Any]]) -> Benchmark:
    """Return what the rows of a journal hold.

    Parameters
    ----------
    rows
        As :func:`model_zoo_eval.journal.read_results` returns them.
    """
    models, conversions = [], []
    for row in rows.values():
        failure = "" if row["status"] == OK else f"{row['status']}: {row['reason']}"
        results: Mapping[str, Mapping[str, Any]] = row.get("results", {})
        if row["batch"]:
            models.append(
                Measured(
                    name=row["name"],
                    batch=row["batch"],
                    figures={} if failure else {key: _figures(found) for key, found in results.items()},
                    failure=failure,
                    weights_from=row.get("weights_from", ""),
                )
            )
        else:
            conversions.append(
                ConversionTimes(
                    name=row["name"],
                    milliseconds={
                        key: tuple(found["milliseconds"])
                        for key, found in results.items()
                        if "milliseconds" in found
                    },
                    failures={MXAMP: failure}
                    if failure
                    else {key: found["failure"] for key, found in results.items() if "failure" in found},
                )
            )
    return Benchmark(models, conversions)


def _figures(found: Mapping[str, Any]) -> Figures:
    if "failure" in found:
        return Figures(failure=found["failure"])
    # "inf" and "nan" are written by name.
    error = float(found["relative_l2"]) if found["finite"] else math.inf
    return Figures(
        milliseconds=tuple(found["milliseconds"]),
        relative_l2=error,
        errors=tuple(map(float, found.get("errors", (error,)))),
        casts=found["casts"],
        parameter_bytes=found["parameter_bytes"],
        conversion_seconds=found.get("conversion_seconds"),
        timed_as=found.get("timed_as"),
    )
