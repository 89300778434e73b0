"""What the records of operators are made of: roles of inputs, kinds of values, where dtypes come from."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Mapping, Union

from mxamp.dtypes import DType


class InputRole(enum.Enum):
    """What an operator does with one of its inputs, as far as casting is concerned."""

    DATA = "data"
    """Values to compute with; shares its dtype with the other DATA inputs."""

    PARAM_FP32 = "param_fp32"
    """FP32 whatever the target: a parameter (BatchNorm's gamma, beta and statistics; FP64 only beside FP64
    data), or any input of an operator that MXNet implements in FP32 alone (Crop, InstanceNorm)."""

    INDEX = "index"
    """Integers in a float array. Never cast: FP16 is exact only to 2048, BF16 to 256."""

    COORDINATE = "coordinate"
    """Shares its dtype with DATA, but holds positions, so the operator belongs in FP32."""

    LIKE = "like"
    """Its values are not read, at most its shape; any dtype will do (``slice_like``)."""

    LIKE_SAME = "like_same"
    """Its values are not read, yet MXNet ties its dtype to the data's or the output's (``zeros_like``, the
    label of ``SoftmaxOutput``)."""

    FREE = "free"
    """Its values are read, in whatever dtype they come (the condition of ``where``)."""

    KEPT = "kept"
    """Arrives in the dtype it had before conversion: int8 data, and the inputs of operators of whose code or
    use nothing is known."""

    shares_dtype: bool
    """Whether the input must have the dtype the operator computes in."""

    reads_values: bool
    """Whether more of the input counts than its shape and its dtype."""


for _role in InputRole:  # an attribute, for it is asked of every input of every node several times
    _role.shares_dtype = _role in (InputRole.DATA, InputRole.COORDINATE, InputRole.LIKE_SAME)
    _role.reads_values = _role not in (InputRole.LIKE, InputRole.LIKE_SAME)


class ValueKind(enum.Enum):
    """How output values come from input values; decides where exactness must spread."""

    MOVE = "move"
    """Every output value is an input value (Reshape, Concat, slice): nothing is rounded."""

    AFFINE = "affine"
    """Arithmetic under which a coordinate stays a coordinate (add, scale, floor, minimum)."""

    COMPUTE = "compute"
    """Any other arithmetic: features in, features out."""

    COMPARE = "compare"
    """Zeros and ones, exact in every dtype, decided by comparing input values."""

    GENERATE = "generate"
    """Makes values out of attributes alone."""


class Averaging(enum.Enum):
    """What one output value is the mean of."""

    NOTHING = "nothing"

    WINDOW = "window"
    """A window of the image, which may be all of it."""

    IMAGE = "image"


class SameAsData(enum.Enum):
    """The output's dtype follows from the one that the DATA inputs share."""

    SAME = "same"

    AT_LEAST_FLOAT32 = "at least float32"
    """FP32 where the data is FP16 or BF16, otherwise the dtype of the data (BatchNorm's statistics)."""

    FLOAT32_OR_FLOAT64 = "float32 or float64"
    """For operators that MXNet implements in these two alone (linear algebra): FP64 where their input is."""

    FIRST_INPUT = "as the first input"
    """The dtype of the first input, though it is no DATA (quantized integers)."""


@dataclass(frozen=True)
class FromData:
    """The output has the dtype of the data, with exceptions.

    Attributes
    ----------
    exceptions
        Dtype of the data -> dtype of the output (``mean`` of integers is FP32).
    """

    exceptions: Mapping[DType, DType] = field(hash=False)


OF_FIRST_INPUT = frozenset({SameAsData.FLOAT32_OR_FLOAT64, SameAsData.FIRST_INPUT})
"""The rules for outputs that follow an input which shares its dtype with no other."""


@dataclass(frozen=True)
class FromAttribute:
    """The output dtype is the value of an attribute.

    Attributes
    ----------
    key
        Attribute name, such as ``dtype`` or ``out_type``.
    default
        What holds when the attribute is absent or ``None``.
    """

    key: str
    default: DType | SameAsData | FromData


OutputRule = Union[DType, SameAsData, FromData, FromAttribute]
