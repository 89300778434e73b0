"""Which operators keep values on a format's grid, so that rounding their results would change nothing."""

from __future__ import annotations

import math
from typing import Callable, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.errors import TargetError
from mxamp.ops.facts import OperatorFacts
from mxamp.ops.roles import InputRole, ValueKind

_VALUES = (InputRole.DATA, InputRole.COORDINATE)

_ZEROS_AND_ONES = frozenset({"_eye", "_ones", "_zeros", "_zeros_without_dtype", "ones_like", "zeros_like"})

_CONSTANTS: Mapping[str, Sequence[str]] = {
    "Pad": ("constant_value",),
    "SequenceMask": ("value",),
    "_maximum_scalar": ("scalar",),
    "_minimum_scalar": ("scalar",),
    "_slice_assign_scalar": ("scalar",),
    "clip": ("a_min", "a_max"),
}
"""Operator -> the attributes that reach its results as they are."""

_Attributes = Mapping[str, str]

_CHOOSE: Mapping[str, Callable[[_Attributes], bool]] = {
    **dict.fromkeys(
        (
            *("_maximum", "_minimum", "broadcast_maximum", "broadcast_minimum"),
            *("_maximum_scalar", "_minimum_scalar", "abs", "clip", "negative", "relu", "sign"),
            # Towards an integer: all integers are on the grid as long as neighbours are closer than 1.
            *("ceil", "fix", "floor", "rint", "round", "trunc"),
        ),
        lambda attrs: True,
    ),
    "Activation": lambda attrs: attrs.get("act_type") == "relu",
    "Pooling": lambda attrs: attrs.get("pool_type", "max") == "max",
    "Pooling_v1": lambda attrs: attrs.get("pool_type", "max") == "max",
}
"""Operators that compute, and yet hand on nothing but values they read, their negatives, integers and
zeros."""

_DTYPE_ATTRIBUTES = ("dtype", "out_dtype")


def keeps_grid(
    facts: OperatorFacts,
    attrs: _Attributes,
    inputs: Sequence[DType | None],
    dtype: DType | None,
    output: int,
) -> bool:
    """Return whether an operator hands on values on a format's grid without rounding.

    Parameters
    ----------
    facts, attrs
        The operator, and the node's attributes.
    inputs
        The dtype of each input; values of low precision are on its grid.
    dtype
        The format.
    output
        The number of the output.

    Notes
    -----
    Rounding to nearest is idempotent: a value on the grid is its own nearest. So where this is true, rounding
    can be left out, and nothing changes.
    """
    if facts.kind is ValueKind.COMPARE or facts.name in _ZEROS_AND_ONES:
        return True
    if dtype is None or output in facts.seed_outputs(attrs):
        return False  # positions are made, not moved
    values = [found for number, found in enumerate(inputs) if facts.role(number, attrs) in _VALUES]
    if not values or any(found is not dtype for found in values):
        return False
    chooses = _CHOOSE.get(facts.name)
    if facts.kind is not ValueKind.MOVE and (chooses is None or not chooses(attrs)):
        return False
    if facts.name == "Dropout" and attrs.get("mode") == "always":
        return False  # divides what it keeps
    return all(_is_on_grid(attrs.get(key), dtype) for key in _CONSTANTS.get(facts.name, ()))


def _is_on_grid(text: str | None, dtype: DType) -> bool:
    if text is None:
        return True  # all of them default to zero
    try:
        return round_number(float(text), dtype) == float(text)
    except ValueError:
        return False


def round_number(value: float, dtype: DType) -> float:
    """Return the nearest value of a format, the even one of two; infinite beyond its range."""
    if value == 0.0 or not math.isfinite(value):
        return value
    _, exponent = math.frexp(value)
    significant = dtype.max_exact_integer.bit_length() - 1
    gap = max(2.0 ** max(exponent - significant, -1074), dtype.smallest_subnormal)
    rounded = round(value / gap) * gap
    return rounded if abs(rounded) <= dtype.max_finite else math.copysign(math.inf, value)


def without_low_attributes(op: str, attrs: _Attributes, inputs: Sequence[DType | None]) -> Mapping[str, str]:
    """Return the attributes with which an operator does in float32 what it did in low precision.

    A dtype it is asked for becomes float32. A scalar is rounded, because MXNet's kernels take it in the dtype
    of the data (``DType(alpha)`` in src/operator/tensor/elemwise_binary_scalar_op.h).

    Parameters
    ----------
    op
        The operator's canonical name.
    attrs
        The node's attributes; returned as they are where nothing is to do.
    inputs
        The dtype of each input.
    """
    changed: dict[str, str] = {}
    for key in _DTYPE_ATTRIBUTES:
        dtype = _named_dtype(op, attrs.get(key))
        if dtype is not None and dtype.is_low_precision:
            changed[key] = str(DType.FLOAT32.value) if attrs[key].isdigit() else DType.FLOAT32.label
    low = next((dtype for dtype in inputs if dtype is not None and dtype.is_low_precision), None)
    if low is not None and op.endswith("_scalar") and "scalar" in attrs:
        try:
            scalar = float(attrs["scalar"])
        except ValueError:
            scalar = math.nan
        rounded = round_number(scalar, low)
        if math.isfinite(rounded) and rounded != scalar:
            changed["scalar"] = repr(rounded)
    return {**attrs, **changed} if changed else attrs


def _named_dtype(op: str, text: str | None) -> DType | None:
    if text is None:
        return None
    try:
        return DType.from_code(int(text)) if text.isdigit() else DType.parse(text, aliases=False)
    except TargetError:
        return None
