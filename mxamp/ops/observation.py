"""What a tensor holds, as ``_mxamp_observe`` sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import OperatorError

EXPONENTS = 256
"""The exponents of float32: the field has eight bits."""

OBSERVATION_LENGTH = 8 + EXPONENTS
"""How many float64 numbers the second output of ``_mxamp_observe`` has."""


@dataclass(frozen=True)
class Observation:
    """Counts and magnitudes of float32 values.

    Attributes
    ----------
    count, nan, inf, zero
        How many values there are, and how many of them are NaN, infinite, and zero of either sign.
    minimum, maximum
        The least and the greatest finite value; +infinity and -infinity where there is none.
    largest
        The greatest finite magnitude; 0 where there is none.
    smallest_nonzero
        The least finite magnitude that is not zero; +infinity where there is none.
    exponents
        How many values have each exponent field: ``exponents[e]`` counts magnitudes in [2**(e-127),
        2**(e-126)), but ``exponents[0]`` zeros and subnormals, and ``exponents[255]`` infinities and NaN.
    """

    count: int
    nan: int
    inf: int
    zero: int
    minimum: float
    maximum: float
    largest: float
    smallest_nonzero: float
    exponents: tuple[int, ...] = field(repr=False)

    @classmethod
    def empty(cls) -> Observation:
        """Return the observation of no values; merging it with another gives the other."""
        return cls(0, 0, 0, 0, math.inf, -math.inf, 0.0, math.inf, (0,) * EXPONENTS)

    @classmethod
    def from_numbers(cls, numbers: NDArray[Any]) -> Observation:
        """Read the second output of ``_mxamp_observe``.

        Parameters
        ----------
        numbers
            float64, shape ``(264,)``: the eight attributes above ``exponents`` in their order, then the
            counts of the exponents. Counts are exact to 2**53.

        Raises
        ------
        OperatorError
            When it is something else.
        """
        numbers = np.asarray(numbers)
        if numbers.shape != (OBSERVATION_LENGTH,) or numbers.dtype != np.float64:
            raise OperatorError(
                f"An observation is {OBSERVATION_LENGTH} float64 numbers, not {numbers.dtype} of shape "
                f"{numbers.shape}. It is the second output of _mxamp_observe; the first is the data."
            )
        count, nan, inf, zero = (int(number) for number in numbers[:4])
        minimum, maximum, largest, smallest = (float(number) for number in numbers[4:8])
        exponents = tuple(int(number) for number in numbers[8:])
        return cls(count, nan, inf, zero, minimum, maximum, largest, smallest, exponents)

    def merge(self, other: Observation) -> Observation:
        """Return the observation of both sets of values."""
        return Observation(
            self.count + other.count,
            self.nan + other.nan,
            self.inf + other.inf,
            self.zero + other.zero,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            max(self.largest, other.largest),
            min(self.smallest_nonzero, other.smallest_nonzero),
            tuple(mine + theirs for mine, theirs in zip(self.exponents, other.exponents)),
        )
