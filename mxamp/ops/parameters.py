"""Which inputs of an operator are its parameters or states, and what its attributes say of their shapes."""

from __future__ import annotations

from typing import Mapping, Tuple

from mxamp.ops.attributes import CHANNELS_FIRST, integers, is_true

PartialShape = Tuple[int, ...]
"""A shape whose unknown sizes are 0, or -1 under NumPy shape semantics."""

PARAMETER_INPUTS = {
    "Convolution": (1, 2),
    "Deconvolution": (1, 2),
    "FullyConnected": (1, 2),
    "BatchNorm": (1, 2, 3, 4),
    "_contrib_SyncBatchNorm": (1, 2, 3, 4),
    "LayerNorm": (1, 2),
    "GroupNorm": (1, 2),
    "InstanceNorm": (1, 2),
    "Embedding": (1,),
    "RNN": (1,),
    "_contrib_DeformableConvolution": (2, 3),
    "_contrib_ModulatedDeformableConvolution": (3, 4),
}
"""Operator -> the inputs that are parameters when a variable stands there."""

AUXILIARY_INPUTS = {
    "BatchNorm": (3, 4),
    "BatchNorm_v1": (3, 4),
    "CuDNNBatchNorm": (3, 4),
    "_contrib_SyncBatchNorm": (3, 4),
    "IdentityAttachKLSparseReg": (1,),
}
"""Operator -> the inputs it updates while training (``FMutateInputs``, MXNet 1.9.1)."""

LAYERS = frozenset({"Convolution", "Deconvolution", "FullyConnected"})
"""The operators that read data, a weight and perhaps a bias, and sum products."""

NORMS = frozenset({"BatchNorm", "_contrib_SyncBatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm"})
"""The operators whose parameters are one number for each channel, group or feature, and as many each."""

FOLDED = frozenset({"BatchNorm"})
"""The operators that a layer right before them takes into its weight and bias, once nothing is trained."""


_CHANNELS = {"Convolution": "num_filter", "Deconvolution": "num_filter", "FullyConnected": "num_hidden"}
"""Layer -> the attribute that is the size of axis 1 of what it hands on."""


def normalized_channels(op: str, attrs: Mapping[str, str], layer: str, layer_attrs: Mapping[str, str]) -> int:
    """Return how many channels a normalization right behind a layer has; 0 where attributes do not tell."""
    key = _CHANNELS.get(layer) if op == "BatchNorm" else None
    is_first = attrs.get("axis", "1") == "1" and layer_attrs.get("layout", "None") in CHANNELS_FIRST
    if key is None or not is_first or not is_true(layer_attrs, "flatten", default=True):
        return 0
    size = layer_attrs.get(key, "")
    return int(size) if size.isdigit() else 0


def parameter_shapes(op: str, attrs: Mapping[str, str]) -> Mapping[int, PartialShape]:
    """Return what attributes say of the shapes of parameters: number of the input -> shape."""
    try:
        if op == "Convolution" and attrs.get("layout", "NCHW") in CHANNELS_FIRST:
            filters, kernel = int(attrs["num_filter"]), integers(attrs["kernel"])
            if kernel is not None:
                return {1: (filters, 0, *kernel), 2: (filters,)}
        if op == "Deconvolution" and attrs.get("layout", "NCHW") in CHANNELS_FIRST:
            filters, kernel = int(attrs["num_filter"]), integers(attrs["kernel"])
            if kernel is not None:
                groups = int(attrs.get("num_group", "1"))
                return {1: (0, filters // groups, *kernel), 2: (filters,)}
        if op == "FullyConnected":
            hidden = int(attrs["num_hidden"])
            return {1: (hidden, 0), 2: (hidden,)}
        if op == "Embedding":
            return {1: (int(attrs["input_dim"]), int(attrs["output_dim"]))}
    except (KeyError, ValueError, ZeroDivisionError):
        pass  # MXNet reports an attribute it cannot read, with more to say about it than we have
    return {}
