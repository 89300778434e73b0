"""Which kernels a node is one of: a library runs other code for a kernel of one place than for others."""

from __future__ import annotations

import math

from mxamp.targets.kernel_terms import groups_of
from mxamp.targets.work import Work

_FEW = 4
"""Convolutions of no more channels have kernels of their own: those of images."""

_WIDEST = 11
"""Kernels of images are no wider (AlexNet's first)."""

BROADER = {
    "Convolution of rows": "Convolution of few channels",
    "Convolution 1x1 of rows": "Convolution 1x1",
    "Deconvolution of one place": "Deconvolution",
    "FullyConnected of few rows": "FullyConnected",
    "Pooling of rows": "Pooling",
}
"""Family -> what it is one of, for targets that were measured before it was told apart."""

_MOST_ROWS = 64
"""Places in a row up to which a 1x1 convolution is what a layer of few rows is: reading weights."""

_FEW_ROWS = 16
"""Rows of a layer up to which float32 takes as long for each, and bfloat16 little longer for all than for
two."""

_IMAGE = 4
"""Axes of an image."""

_KINDS = {"Activation": ("act_type", "relu"), "LeakyReLU": ("act_type", "leaky"), "RNN": ("mode", "lstm")}
"""Operators that are several: the attribute that says which, and its default."""


def family_of(op: str, work: Work) -> str:
    """Return the name of the kernels that a node is one of; those of one family are fitted together.

    Parameters
    ----------
    op
        The canonical operator name.
    work
        What it does.
    """
    attributes = work.attributes
    if op == "Convolution":
        weight = work.inputs[1] if len(work.inputs) > 1 else ()
        groups = groups_of(attributes)
        if len(weight) == 3:
            return "Convolution of sequences"
        if len(weight) == 5:
            return "Convolution of volumes"
        if work.is_depthwise:
            return "Convolution depthwise"
        if groups > 1:
            return "Convolution grouped"
        if weight and weight[1] <= _FEW:
            # A kernel as wide as a row, and wider than any for images: of words, each one row of its vector.
            reads_rows = weight[3] == work.inputs[0][3] > _WIDEST
            return "Convolution of rows" if reads_rows else "Convolution of few channels"
        if math.prod(weight[2:]) > 1:
            return "Convolution"
        batch, _, *places = work.output
        is_row = batch == min(places) == 1 < math.prod(places) <= _MOST_ROWS
        return "Convolution 1x1 of rows" if is_row else "Convolution 1x1"
    if op == "FullyConnected" and len(work.inputs) > 1:
        rows = math.prod(work.inputs[0]) // max(1, work.inputs[1][-1])
        return "FullyConnected of few rows" if 1 < rows <= _FEW_ROWS else op
    if op == "Deconvolution" and math.prod(work.inputs[0][2:]) == 1:
        return "Deconvolution of one place"  # where generators begin: a product that reads its weight once
    if op == "Pooling" and len(work.output) == _IMAGE and work.inputs[0][3] == 1 < work.inputs[0][2]:
        return "Pooling of rows"
    if op in _KINDS:
        key, default = _KINDS[op]
        return f"{op} {attributes.get(key, default)}"
    return op
