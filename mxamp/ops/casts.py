"""The cast operators: ``amp_cast``, ``amp_multicast`` and ``Cast``, and their type rules.

The type rules are those of src/operator/tensor/amp_cast.h, MXNet 1.9.1: FP16, BF16 and FP32 are cast,
everything else passes through unchanged.
"""

from __future__ import annotations

from typing import Mapping, Sequence

from mxamp.dtypes import EMULATED_ONLY, DType
from mxamp.errors import OperatorError, TargetError
from mxamp.ops.attributes import is_true

AMP_CAST = "amp_cast"
AMP_MULTICAST = "amp_multicast"
CAST = "Cast"
CAST_OPERATORS = (AMP_CAST, CAST)
"""The operators a cast can be expressed with."""

CASTABLE = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, *EMULATED_ONLY})
"""The dtypes the amp operators cast; others pass through them. What is only emulated is among them, for a
graph may hold casts to it between two passes."""


def cast_target(attrs: Mapping[str, str], where: str) -> DType:
    """Return the dtype a cast asks for.

    Parameters
    ----------
    attrs
        The cast node's attributes.
    where
        What messages call the node.

    Raises
    ------
    OperatorError
        When its ``dtype`` attribute is missing or is no dtype.
    """
    try:
        return DType.parse(attrs["dtype"], emulated=True, aliases=False)
    except KeyError:
        raise OperatorError(f"{where} has no 'dtype' attribute, so what it casts to is unknown.") from None
    except TargetError as error:
        raise OperatorError(f"{where}: {error}") from None


def multicast_dtypes(attrs: Mapping[str, str], inputs: Sequence[DType | None]) -> tuple[DType | None, ...]:
    """Return the output dtypes of ``amp_multicast``; None where an unknown input decides.

    Integer and FP64 inputs pass through; the others all get one dtype. With ``cast_narrow=True`` that is the
    dtype of the last FP16 or BF16 input, and FP32 where there is none. Otherwise it is FP32 if any input is
    FP32, and else the dtype of the *first* input: an integer there turns the FP16 inputs into integers, and
    of FP16 and BF16 the first one wins.
    """
    narrow = is_true(attrs, "cast_narrow", default=False)
    common = _narrowest(inputs) if narrow else _widest(inputs)
    return tuple(common if dtype in CASTABLE else dtype for dtype in inputs)


def _narrowest(inputs: Sequence[DType | None]) -> DType | None:
    for dtype in reversed(inputs):
        if dtype is None or dtype.is_low_precision:
            return dtype
    return DType.FLOAT32


def _widest(inputs: Sequence[DType | None]) -> DType | None:
    if DType.FLOAT32 in inputs:
        return DType.FLOAT32
    # A damaged graph may hold one without inputs.
    return None if None in inputs or not inputs else inputs[0]
