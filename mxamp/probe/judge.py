"""Judging one result: how far it is from the reference, and whether that is rounding.

The reference is the same operator in float64 on the same inputs, already rounded to the low dtype (float32
where MXNet has no float64). Errors are counted in ulps of the low dtype at the reference. The *bias* is the
mean signed error away from zero: truncation shows as about -0.5, rounding to nearest as about 0.
"""

from __future__ import annotations

import enum
import math
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType

_HALF_ULP = 0.51
"""Half an ulp, with room for the rounding of the reference itself."""

_GROSS_ULP = 4.0
"""A few roundings explain no larger error."""

_BIAS_LIMIT = 0.05
"""What the mean signed error of an operator that rounds to nearest stays under, in ulps."""

_FLOOR = 2.0**-4
"""Values under this fraction of the root mean square are counted in the ulps of that."""

_CHAIN_FLOOR = 0.5
_CHAIN_ULP = 2.56
"""The relative L2 error from which on a chain is wrong, in ulps of one: about ten roundings. In a chain a sum
may cancel what an earlier operator rounded, so the largest error says nothing."""


class Outcome(enum.Enum):
    """What a check came to, best first."""

    EXACT = "exact"
    INEXACT = "inexact"
    BIASED = "biased"
    WRONG = "wrong"
    RAISES = "raises"
    HANGS = "hangs"
    CRASHES = "crashes"

    @property
    def rank(self) -> int:
        """The larger the worse."""
        return _ORDER[self]


_ORDER = {outcome: rank for rank, outcome in enumerate(Outcome)}


class Distance(NamedTuple):
    """How far a result is from the reference.

    Attributes
    ----------
    outcome
        EXACT (within half an ulp), INEXACT (within four), BIASED or WRONG.
    max_ulp, bias_ulp
        The largest error and the mean signed one.
    relative_l2
        The L2 norm of the error over that of the reference.
    note
        What was seen where that is no number.
    """

    outcome: Outcome
    max_ulp: float = 0.0
    bias_ulp: float = 0.0
    relative_l2: float = 0.0
    note: str = ""

    def to_mapping(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {**self._asdict(), "outcome": self.outcome.value}


def compare(got: NDArray[Any], reference: NDArray[Any], dtype: DType, *, chain: bool = False) -> Distance:
    """Return how far an output is from the reference.

    Parameters
    ----------
    got, reference
        Float64 arrays.
    dtype
        The low dtype, whose ulps count.
    chain
        Whether several operators computed it.
    """
    if got.shape != reference.shape:
        return Distance(Outcome.WRONG, note=f"shape {got.shape} instead of {reference.shape}")
    finite = np.isfinite(reference)
    if not np.array_equal(np.isfinite(got), finite):
        return Distance(Outcome.WRONG, note="NaN or infinity where the reference is finite, or the other way")
    got, reference = got[finite], reference[finite]
    if not got.size:
        return Distance(Outcome.EXACT)
    error = got - reference
    magnitude = np.abs(reference)
    root_mean_square = float(np.sqrt(np.mean(reference**2)))
    floor = max((_CHAIN_FLOOR if chain else _FLOOR) * root_mean_square, 1e-30)
    scaled = error / _ulp(np.maximum(magnitude, floor), dtype)
    signed = (np.sign(reference) * scaled)[magnitude >= floor]
    bias = float(signed.mean()) if signed.size else 0.0
    largest = float(np.abs(scaled).max())
    # The mean of few rounding errors is itself noisy: three standard deviations of a uniform one.
    limit = _BIAS_LIMIT + 3 * math.sqrt(1 / 12 / max(1, signed.size))
    relative_l2 = float(np.linalg.norm(error)) / max(float(np.linalg.norm(reference)), 1e-30)
    one_ulp = 2.0 ** -_digits(dtype)
    if relative_l2 > _CHAIN_ULP * one_ulp if chain else largest > _GROSS_ULP:
        outcome = Outcome.WRONG
    elif abs(bias) > limit:
        outcome = Outcome.BIASED
    else:
        outcome = Outcome.EXACT if largest <= _HALF_ULP else Outcome.INEXACT
    return Distance(outcome, round(largest, 3), round(bias, 4), float(f"{relative_l2:.3g}"))


def judge_outputs(
    got: Sequence[NDArray[Any]], reference: Sequence[NDArray[Any]], dtype: DType, *, chain: bool = False
) -> Distance:
    """Return the distance of the worst of several outputs."""
    if len(got) != len(reference):
        return Distance(Outcome.WRONG, note=f"{len(got)} outputs instead of {len(reference)}")
    found = [compare(one, other, dtype, chain=chain) for one, other in zip(got, reference)]
    return max(found, key=lambda distance: (distance.outcome.rank, distance.max_ulp))


def worst_outcome(checks: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the worst of some checks, and of those the one with the largest error; None of none."""
    return max(
        checks,
        key=lambda check: (Outcome(check["outcome"]).rank, check.get("max_ulp", 0.0)),
        default=None,
    )


def _ulp(reference: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """Return the spacing of a dtype at each value."""
    least = math.frexp(dtype.smallest_normal)[1] - 1
    exponent = np.frexp(reference)[1] - 1
    spacing: NDArray[Any] = np.ldexp(1.0, np.maximum(exponent, least) - _digits(dtype))
    return spacing


def _digits(dtype: DType) -> int:
    """Return the bits of the mantissa that are stored."""
    return dtype.max_exact_integer.bit_length() - 2
