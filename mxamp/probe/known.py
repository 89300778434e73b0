"""What is known of MXNet 1.9.1 and cannot be told from a probe's small cases: kept in every result.

An entry makes a measured one worse, never better.
"""

from __future__ import annotations

from typing import Any, Mapping

from mxamp.dtypes import DType

_UNREADABLE = "MXNet raises: it cannot read the layout that oneDNN gives to some bfloat16 results"

_FAULTS: Mapping[DType, Mapping[str, Mapping[str, Any]]] = {
    DType.BFLOAT16: {
        # Seen in networks, on the blocked layout with padding; not on the layouts of the probe's cases.
        "ones_like": {"support": "unsupported", "note": _UNREADABLE},
        "zeros_like": {"support": "unsupported", "note": _UNREADABLE},
    }
}


def known_faults(dtype: DType) -> Mapping[str, Mapping[str, Any]]:
    """Return operator -> what is known of it in a low dtype, whatever was measured."""
    return _FAULTS.get(dtype, {})


FOLD_INTO: Mapping[str, tuple[str, str]] = {
    "Deconvolution": ("Deconvolution 4x4 stride 2", "Deconvolution 4x4 stride 2 bias"),
    "FullyConnected": ("FullyConnected no bias", "FullyConnected 2-D"),
}
"""Operators that a BatchNorm can be folded into, and the cases that time each without and with a bias: a fold
may add one, and where that makes the operator slow, the BatchNorm is better left alone."""

ALWAYS_FOLDS_INTO = "Convolution"
"""Needs no timing: MXNet's oneDNN backend folds a BatchNorm into a Convolution by itself, bias and all, so no
plan has the Convolution without a bias; elsewhere adding one moves no more memory than the BatchNorm does."""

NORM_AND_CONVOLUTION = ("BatchNorm", "Convolution depthwise 1x1 bias")
"""The cases that time a BatchNorm, and the depthwise convolution that computes the same."""
