"""What the runtime that is to read a file lacks of what ONNX has."""

from __future__ import annotations

from typing import NamedTuple


class RuntimeGaps(NamedTuple):
    """What is written with other operators, which give the same results.

    Attributes
    ----------
    norms_of_two_dtypes
        BatchNormalization of low data and float32 statistics: it is written in float32 between two casts.
    max_pool_of_opset_22
        MaxPool in files of opset 22 and later, bfloat16 ones: it is written as Max of Slices.
    """

    norms_of_two_dtypes: bool = False
    max_pool_of_opset_22: bool = False


NO_GAPS = RuntimeGaps()
"""Of a runtime that has all of ONNX, and of one that nothing is known of."""
