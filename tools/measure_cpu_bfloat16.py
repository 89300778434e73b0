#!/usr/bin/env python3
"""Measure which MXNet operators work in bfloat16 on this CPU, how they round and what they cost.

The built-in ``cpu-bf16`` target rests on the result. Every case (an operator with its attributes, or a chain
of operators that the oneDNN backend may fuse) runs in a process of its own with a time limit, because some
operators corrupt the heap or never return. A case is checked with plain inputs and with inputs that come
straight from a bfloat16 Convolution, whose output is stored in oneDNN's blocked layout: an operator that is
right on a plain tensor can be wrong, or crash, on a blocked one.

The reference is the same symbol in float64 (float32 where float64 is not implemented) on the same inputs,
already rounded to bfloat16. Errors are in bfloat16 ulps of the reference. The *bias* is the mean signed error
away from zero: truncation shows as about -0.5, rounding to nearest as about 0.

Classes: ``exact`` (within half an ulp, no bias), ``inexact`` (within four ulps, no bias), ``biased`` (within
four ulps, biased), ``wrong`` (beyond). In a chain a sum may cancel what an earlier operator rounded, so there
the limit is a relative L2 error of 2 %, about ten roundings, instead of four ulps.

Times are medians of alternating FP32 and bfloat16 forward passes, in microseconds. "After a convolution" is
the difference between a depthwise 1x1 convolution with and without the operator behind it, fusion off, so it
includes the layout changes that the operator forces.
"""

from __future__ import annotations

import argparse
import ctypes
import fnmatch
import gc
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence

import ml_dtypes
import numpy as np

HALF_ULP = 0.51  # Half an ulp, with room for the reference's own rounding.
GROSS_ULP = 4.0  # Beyond this an error is not explained by a few roundings.
BIAS_LIMIT = 0.05  # Mean signed error, in ulp, that a correctly rounded operator stays under.
FLOOR = 2.0**-4  # Elements under this fraction of the RMS are measured against the floor's ulp.
CHAIN_FLOOR = 0.5  # The same for chains.
CHAIN_REL_L2 = 0.02  # Beyond this a chain is wrong: one rounding to bfloat16 is 1.7e-3.
MAX_RESTARTS = 4  # Crashes of one case after which its remaining jobs are given up.
CLASS_ORDER = ("exact", "inexact", "biased", "wrong", "raises", "crashes", "hangs")


# --------------------------------------------------------------------------------------------------- cases


class Dims(NamedTuple):
    """Batch, channels and spatial size of one run."""

    n: int
    c: int
    s: int


Array = Any  # A NumPy array; the tool does not depend on the version of its type parameters.
Shape = Callable[[Dims], "tuple[int, ...]"]


@dataclass(frozen=True)
class Input:
    """One variable of a case.

    ``role`` is ``data`` (bfloat16, may come from a convolution), ``weight`` (bfloat16, a parameter),
    ``recast`` (a float32 parameter that the bfloat16 graph casts at run time) or ``fp32`` (never cast).
    ``values`` names a generator in :func:`draw`.
    """

    shape: Shape
    role: str = "data"
    values: str = "normal"


@dataclass(frozen=True)
class Ref:
    """An earlier value of the chain: 0 is the first input, k the output of step k."""

    step: int


@dataclass(frozen=True)
class Step:
    """One operator of a chain; its first input is the value so far.

    ``low_only`` marks a cast that exists in the bfloat16 graph only.
    """

    op: str
    inputs: tuple[Input | Ref, ...]
    attrs: dict[str, Any]
    low_only: bool = False


CHECK_DIMS = (Dims(1, 32, 14), Dims(2, 32, 14), Dims(1, 20, 14), Dims(2, 20, 14))
TIME_DIMS = (Dims(1, 64, 56), Dims(1, 256, 56))


@dataclass(frozen=True)
class Case:
    """A chain of steps to measure.

    ``fused`` cases run with the oneDNN subgraph backend and are compared with the backend switched off;
    the others run with it off. ``extra_heads`` are earlier values that are graph outputs as well. ``feeds``
    says whether inputs are also taken from a convolution: not where that would fuse with the chain.
    """

    name: str
    first: Input
    steps: tuple[Step, ...]
    check: tuple[Dims, ...] = CHECK_DIMS
    timing: tuple[Dims, ...] = TIME_DIMS
    fused: bool = False
    extra_heads: tuple[int, ...] = ()
    feeds: bool = True


def of(*shape: Any) -> Shape:
    """Return a shape function; ``"c"`` stands for that dimension, ``"2c"`` for twice, ``"c/2"`` for half."""

    def resolve(part: Any, dims: Dims) -> int:
        if isinstance(part, int):
            return part
        match = re.fullmatch(r"(\d*)([ncs])(?:/(\d+))?", part)
        if match is None:
            raise ValueError(f"{part!r} is not a dimension")
        return int(match[1] or 1) * int(getattr(dims, match[2])) // int(match[3] or 1)

    return lambda dims: tuple(resolve(part, dims) for part in shape)


def count(part: str) -> Callable[[Dims], int]:
    """Return an attribute that depends on the dimensions, for example ``num_filter=count("c")``."""
    shape = of(part)
    return lambda dims: shape(dims)[0]


X = of("n", "c", "s", "s")
X3 = of("n", "c", "s")
X5 = of("n", "c", 4, "s", "s")
X2 = of("n", "c")
VEC = of("c")
PER_CHANNEL = of(1, "c", 1, 1)
PER_IMAGE = of("n", "c", 1, 1)


def weight(*shape: Any) -> Input:
    """Return a parameter that is cast offline."""
    return Input(of(*shape), role="weight", values="weight")


def step(op: str, *inputs: Input | Ref, low_only: bool = False, **attrs: Any) -> Step:
    """Return one operator of a chain."""
    return Step(op, inputs, attrs, low_only)


NORM_PARAMS = (
    Input(VEC, "fp32", "gamma"),
    Input(VEC, "fp32", "normal"),
    Input(VEC, "fp32", "normal"),
    Input(VEC, "fp32", "gamma"),
)
BN = step("BatchNorm", *NORM_PARAMS, fix_gamma=False, eps=1e-5)
RELU = step("Activation", act_type="relu")
CLIP6 = step("clip", a_min=0, a_max=6)
UP = step("amp_cast", dtype="float32", low_only=True)
DOWN = step("amp_cast", dtype="bfloat16", low_only=True)


def conv(
    kernel: Sequence[int],
    *,
    bias: bool = False,
    groups: str | int = 1,
    channels: str | int = "c",
    **attrs: Any,
) -> Step:
    """Return a Convolution from ``channels`` to ``c`` channels; ``groups="c"`` is depthwise."""
    per_group: Any = 1 if groups == "c" else (channels if groups == 1 else f"c/{groups}")
    inputs = [weight("c", per_group, *kernel)]
    if bias:
        inputs.append(weight("c"))
    attrs.setdefault("pad", tuple(size // 2 for size in kernel))
    return step(
        "Convolution",
        *inputs,
        kernel=tuple(kernel),
        num_filter=count("c"),
        num_group=count("c") if groups == "c" else groups,
        no_bias=not bias,
        **attrs,
    )


def deconv(kernel: Sequence[int], *, bias: bool = False, groups: int = 1, **attrs: Any) -> Step:
    """Return a Deconvolution from ``c`` to ``c`` channels."""
    inputs = [weight("c", "c" if groups == 1 else f"c/{groups}", *kernel)]
    if bias:
        inputs.append(weight("c"))
    return step(
        "Deconvolution",
        *inputs,
        kernel=tuple(kernel),
        num_filter=count("c"),
        num_group=groups,
        no_bias=not bias,
        **attrs,
    )


def dense(*, bias: bool = True, flatten: bool = True, width: Any = "c", units: Any = "c") -> Step:
    """Return a FullyConnected."""
    inputs = [weight(units, width)] + ([weight(units)] if bias else [])
    hidden = count(units) if isinstance(units, str) else units
    return step("FullyConnected", *inputs, num_hidden=hidden, no_bias=not bias, flatten=flatten)


def single(name: str, first: Input | Shape, op: str | Step, *inputs: Input | Ref, **options: Any) -> Case:
    """Return a case of one operator; ``check`` and ``timing`` are the case's, other options attributes."""
    first = first if isinstance(first, Input) else Input(first)
    placement = {key: options.pop(key) for key in ("check", "timing") if key in options}
    only = op if isinstance(op, Step) else step(op, *inputs, **options)
    return Case(name, first, (only,), **placement)


def fused(name: str, *steps: Step, first: Input | Shape = X, **options: Any) -> Case:
    """Return a chain that the backend may fuse."""
    return Case(
        f"fused: {name}", first if isinstance(first, Input) else Input(first), steps, fused=True, **options
    )


def activation_cases() -> Iterator[Case]:
    """Element by element functions of one input."""
    for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
        yield single(f"Activation {kind}", X, "Activation", act_type=kind)
    yield single("Activation relu 5-D", X5, "Activation", act_type="relu", timing=(Dims(1, 64, 28),))
    yield single("Activation relu 3-D", X3, "Activation", act_type="relu", timing=(Dims(1, 256, 512),))
    yield single("Activation relu 2-D", X2, "Activation", act_type="relu", timing=(Dims(1, 4096, 1),))
    yield single("Activation sigmoid 2-D", X2, "Activation", act_type="sigmoid", timing=(Dims(1, 4096, 1),))
    for op in ("relu", "sigmoid", "tanh", "softsign", "hard_sigmoid", "exp", "square", "abs", "floor", "erf"):
        yield single(op, X, op)
    for op in ("sqrt", "log2", "log", "rsqrt"):
        yield single(op, Input(X, values="positive"), op)
    for op in ("_copy", "BlockGrad", "ones_like", "zeros_like", "shape_array", "Flatten", "negative"):
        yield single(op, X, op)
    for kind in ("leaky", "elu", "selu", "gelu"):
        yield single(f"LeakyReLU {kind}", X, "LeakyReLU", act_type=kind, slope=0.1)
    yield single("LeakyReLU prelu", X, "LeakyReLU", Input(VEC, "weight", "gamma"), act_type="prelu")
    yield single(
        "LeakyReLU prelu one slope", X, "LeakyReLU", Input(of(1), "weight", "gamma"), act_type="prelu"
    )
    yield single("Dropout", X, "Dropout", p=0.5)
    yield single("clip 0..6", X, "clip", a_min=0, a_max=6)
    yield single("clip 0..0.3 (bound not a bfloat16)", X, "clip", a_min=0, a_max=0.3)


def scalar_cases() -> Iterator[Case]:
    """Operators with a scalar, one that bfloat16 holds (3) and one that it does not (0.3)."""
    for op in ("_plus_scalar", "_minus_scalar", "_rminus_scalar", "_mul_scalar", "_div_scalar"):
        for scalar in (3, 0.3):
            yield single(f"{op} {scalar}", X, op, scalar=scalar)
    for op in ("_maximum_scalar", "_minimum_scalar", "_greater_scalar", "_lesser_scalar", "_equal_scalar"):
        yield single(f"{op} 0.5", X, op, scalar=0.5)
    yield single("_rdiv_scalar 1", Input(X, values="positive"), "_rdiv_scalar", scalar=1)
    yield single("_power_scalar 2", X, "_power_scalar", scalar=2)


def pairwise_cases() -> Iterator[Case]:
    """Operators of several data inputs."""
    ranks = (("4-D", X, TIME_DIMS), ("5-D", X5, (Dims(1, 64, 28),)), ("3-D", X3, (Dims(1, 256, 512),)))
    for label, shape, timing in (*ranks, ("2-D", X2, (Dims(1, 4096, 1),)), ("1-D", VEC, (Dims(1, 4096, 1),))):
        yield single(f"elemwise_add {label}", shape, "elemwise_add", Input(shape), timing=timing)
    for op in ("elemwise_sub", "elemwise_mul"):
        yield single(op, X, op, Input(X))
    yield single("elemwise_mul 2-D", X2, "elemwise_mul", Input(X2), timing=(Dims(1, 4096, 1),))
    yield single("elemwise_div", X, "elemwise_div", Input(X, values="positive"))
    for op in ("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_minimum", "broadcast_maximum"):
        yield single(f"{op} same shape", X, op, Input(X))
        yield single(f"{op} per image and channel", X, op, Input(PER_IMAGE))
        yield single(f"{op} parameter per channel", X, op, Input(PER_CHANNEL, "weight"))
    yield single(
        "broadcast_div per image and channel", X, "broadcast_div", Input(PER_IMAGE, values="positive")
    )
    yield single(
        "broadcast_mod", Input(X, values="positive"), "broadcast_mod", Input(PER_IMAGE, values="gamma")
    )
    for op in ("broadcast_equal", "broadcast_greater"):
        yield single(op, X, op, Input(PER_IMAGE))
    yield single("broadcast_axis", PER_IMAGE, "broadcast_axis", axis=(2, 3), size=(14, 14))
    yield single("broadcast_like", PER_IMAGE, "broadcast_like", Input(X), lhs_axes=(2, 3), rhs_axes=(2, 3))
    for number in (2, 3, 4):
        others = [Input(X)] * (number - 1)
        yield single(f"add_n {number}", X, "add_n", *others, num_args=number)
    yield single("where", Input(X, values="binary"), "where", Input(X), Input(X))
    yield single("where, float32 condition", Input(X, "fp32", "binary"), "where", Input(X), Input(X))
    yield single("dot", of(24, "c"), "dot", Input(of("c", 40)), timing=(Dims(1, 1024, 1),))
    attention: dict[str, Any] = {"check": (Dims(2, 32, 14), Dims(1, 20, 14)), "timing": (Dims(12, 64, 196),)}
    rows = of("n", "s", "c")
    yield single("batch_dot", rows, "batch_dot", Input(of("n", "c", "s")), **attention)
    yield single("batch_dot transpose_b", rows, "batch_dot", Input(rows), transpose_b=True, **attention)
    yield single("_contrib_div_sqrt_dim", rows, "_contrib_div_sqrt_dim", **attention)
    square = of("c", "c")
    yield single("_linalg_gemm2", square, "_linalg_gemm2", Input(square), timing=(Dims(1, 512, 1),))


def cast_cases() -> Iterator[Case]:
    """Casts; the FP32 graph of ``down`` and ``up`` has none, so read their bfloat16 time alone."""
    for op in ("amp_cast", "Cast"):
        yield Case(f"{op} down", Input(X, "fp32", "unrounded"), (step(op, dtype="bfloat16", low_only=True),))
        yield Case(f"{op} up", Input(X), (step(op, dtype="float32", low_only=True),))
    yield single("Cast to int32", Input(X, values="positive"), "Cast", dtype="int32")
    yield single("amp_multicast two bfloat16", X, "amp_multicast", Input(X), num_outputs=2)
    yield single("amp_multicast bfloat16 and float32", X, "amp_multicast", Input(X, "fp32"), num_outputs=2)
    narrow: dict[str, Any] = {"num_outputs": 2, "cast_narrow": True}
    yield single("amp_multicast narrow", X, "amp_multicast", Input(X, "fp32", "unrounded"), **narrow)


def layout_cases() -> Iterator[Case]:
    """Operators that only move data."""
    for dim in (1, 0, 2, 3, -1):
        yield single(f"Concat dim={dim}", X, "Concat", Input(X), dim=dim, num_args=2)
    mixed = (Input(of("n", "c/2", "s", "s")), Input(of("n", 7, "s", "s")))
    yield single("Concat dim=1 mixed sizes", X, "Concat", *mixed, dim=1, num_args=3)
    yield single("Concat dim=2 mixed sizes", X, "Concat", Input(of("n", "c", 5, "s")), dim=2, num_args=2)
    yield single("Concat 3-D dim=1", X3, "Concat", Input(of("n", "2c", "s")), dim=1, num_args=2)
    yield single("Concat 3-D dim=2", X3, "Concat", Input(X3), dim=2, num_args=2)
    yield single("Concat 2-D dim=1", X2, "Concat", Input(X2), dim=1, num_args=2, timing=(Dims(1, 2048, 1),))
    yield single("Concat 5-D dim=1", X5, "Concat", Input(X5), dim=1, num_args=2, timing=(Dims(1, 32, 28),))
    yield single("stack axis=1", X, "stack", Input(X), axis=1, num_args=2)
    yield single("stack axis=0", X, "stack", Input(X), axis=0, num_args=2)
    codes = (
        (0, -1),
        (0, 0, -1),
        (-1, 0),
        (0, -4, 4, -1, -2),
        (-3, 0, 0),
        (0, 0, -3),
        (-2,),
        (-1,),
        (0, -3, -2),
    )
    for code in codes:
        yield single(f"Reshape {code}", X, "Reshape", shape=code)
    yield single("Reshape 2-D to 4-D", X2, "Reshape", shape=(0, 0, 1, 1), timing=(Dims(1, 4096, 1),))
    yield single("reshape_like", X, "reshape_like", Input(of("n", "s", "c", "s")))
    for axis in (1, 2, 3):
        yield single(f"SliceChannel 2 axis={axis}", X, "SliceChannel", num_outputs=2, axis=axis)
    yield single("SliceChannel 4 axis=1", X, "SliceChannel", num_outputs=4, axis=1)
    yield single(
        "SliceChannel squeeze",
        X,
        "SliceChannel",
        num_outputs=count("c"),
        axis=1,
        squeeze_axis=True,
        timing=(),
    )
    yield single("_split_v2 axis=1", X, "_split_v2", indices=(0, 5), axis=1, squeeze_axis=False)
    yield single("SwapAxis 1 2", X, "SwapAxis", dim1=1, dim2=2)
    yield single("SwapAxis 2 3", X, "SwapAxis", dim1=2, dim2=3)
    yield single("SwapAxis 1 2, 5-D", of("n", 2, "c/2", "s", "s"), "SwapAxis", dim1=1, dim2=2)
    yield single("SwapAxis 1 2, 3-D", X3, "SwapAxis", dim1=1, dim2=2)
    for axes in ((0, 2, 3, 1), (0, 2, 1, 3), (0, 3, 1, 2)):
        yield single(f"transpose {axes}", X, "transpose", axes=axes)
    yield single("transpose (0, 2, 1)", X3, "transpose", axes=(0, 2, 1), timing=(Dims(1, 256, 512),))
    yield single("transpose (1, 0)", X2, "transpose", axes=(1, 0), timing=(Dims(64, 512, 1),))
    yield single("transpose 5-D", of("n", 2, "c/2", "s", "s"), "transpose", axes=(0, 2, 1, 3, 4))
    yield single("expand_dims axis=1", X, "expand_dims", axis=1)
    yield single("expand_dims 2-D axis=2", X2, "expand_dims", axis=2, timing=(Dims(1, 4096, 1),))
    yield single("squeeze", PER_IMAGE, "squeeze", axis=(2, 3), timing=(Dims(1, 4096, 1),))
    yield single("slice", X, "slice", begin=(None, 3, 1), end=(None, 17, 9))
    yield single(
        "slice step", X, "slice", begin=(0, 0, 0, 0), end=(None, None, None, None), step=(1, 1, 2, 2)
    )
    for axis, end in ((1, 16), (1, 13), (2, 9), (3, 9), (-1, 9), (0, 1)):
        yield single(f"slice_axis axis={axis} end={end}", X, "slice_axis", axis=axis, begin=0, end=end)
    yield single("slice_axis axis=1 begin=5", X, "slice_axis", axis=1, begin=5, end=None)
    yield single(
        "slice_axis 3-D axis=2", X3, "slice_axis", axis=2, begin=0, end=9, timing=(Dims(1, 256, 512),)
    )
    yield single(
        "slice_axis 2-D axis=1", X2, "slice_axis", axis=1, begin=2, end=9, timing=(Dims(1, 4096, 1),)
    )
    yield single("slice_like", X, "slice_like", Input(of(1, 1, 9, 9)), axes=(2, 3))
    yield single("tile", X, "tile", reps=(1, 2, 1, 1))
    yield single("repeat", X, "repeat", repeats=2, axis=1)
    yield single("reverse", X, "reverse", axis=3)
    for mode in ("reflect", "constant", "edge"):
        yield single(f"Pad {mode}", X, "Pad", mode=mode, pad_width=(0, 0, 0, 0, 1, 1, 1, 1), constant_value=0)
    yield single("UpSampling nearest", X, "UpSampling", scale=2, sample_type="nearest", num_args=1)
    yield single("depth_to_space", X, "depth_to_space", block_size=2)
    yield single("space_to_depth", X, "space_to_depth", block_size=2)
    yield single("Crop", X, "Crop", num_args=1, h_w=(9, 9), center_crop=True)


def index_cases() -> Iterator[Case]:
    """Operators that sort, select or look up."""
    distinct = Input(of("n", 100), values="distinct")
    sorting: dict[str, Any] = {"check": (Dims(1, 1, 1), Dims(2, 1, 1)), "timing": (Dims(16, 1, 1),)}
    yield single("argsort", distinct, "argsort", **sorting)
    yield single("argmax", distinct, "argmax", axis=1, **sorting)
    for kind in ("indices", "value", "both", "mask"):
        yield single(f"topk {kind}", distinct, "topk", k=10, ret_typ=kind, **sorting)
    table = weight(50, "c")
    lookup: dict[str, Any] = {"check": (Dims(3, 32, 1), Dims(7, 20, 1)), "timing": (Dims(128, 768, 1),)}
    index = Input(of("n"), "fp32", "index:50")
    yield single("Embedding", index, "Embedding", table, input_dim=50, output_dim=count("c"), **lookup)
    yield single(
        "take axis=0", Input(of(50, "c")), "take", Input(of("n"), "fp32", "index:50"), axis=0, **lookup
    )
    yield single(
        "take axis=1", Input(of("c", 50)), "take", Input(of("n"), "fp32", "index:50"), axis=1, **lookup
    )
    yield single(
        "gather_nd", Input(of(50, "c")), "gather_nd", Input(of(1, "n"), "fp32", "index:50"), **lookup
    )
    yield single("pick", Input(of("n", 50)), "pick", index, axis=1, **lookup)
    lengths = Input(of("n"), "fp32", "index:10")
    masking: dict[str, Any] = {"use_sequence_length": True, "axis": 1, "value": -1.0, **lookup}
    yield single("SequenceMask", Input(of("n", 14, "c")), "SequenceMask", lengths, **masking)


def reduction_cases() -> Iterator[Case]:
    """Reductions, softmax and normalisation."""
    for op in ("sum", "mean", "max"):
        yield single(f"{op} spatial", X, op, axis=(2, 3), keepdims=True)
        yield single(f"{op} channel", X, op, axis=1)
        yield single(f"{op} last axis", X, op, axis=-1)
    yield single("norm", X, "norm", ord=2, axis=1)
    for op in ("softmax", "log_softmax"):
        yield single(f"{op} 2-D", X2, op, timing=(Dims(1, 1000, 1), Dims(64, 1000, 1)))
        yield single(f"{op} axis=1", X, op, axis=1, timing=(Dims(1, 21, 56),))
        yield single(f"{op} 3-D", X3, op, axis=-1, timing=(Dims(12, 196, 196),))
    yield single(
        "SoftmaxActivation channel", X, "SoftmaxActivation", mode="channel", timing=(Dims(1, 21, 56),)
    )
    for mode in ("channel", "instance", "spatial"):
        yield single(f"L2Normalization {mode}", X, "L2Normalization", mode=mode)
    yield single("BatchNorm", X, BN)
    yield single("BatchNorm fix_gamma", X, "BatchNorm", *NORM_PARAMS, fix_gamma=True)
    yield single("BatchNorm 5-D", X5, BN, timing=(Dims(1, 64, 28),))
    yield single("BatchNorm 3-D", X3, BN, timing=(Dims(1, 256, 512),))
    yield single("BatchNorm 2-D", X2, BN, timing=(Dims(1, 4096, 1),))
    low_params = tuple(Input(part.shape, "weight", part.values) for part in NORM_PARAMS)
    yield single("BatchNorm bfloat16 parameters", X, "BatchNorm", *low_params, fix_gamma=False)
    sync: dict[str, Any] = {"fix_gamma": False, "ndev": 1, "key": "k"}
    yield single("_contrib_SyncBatchNorm", X, "_contrib_SyncBatchNorm", *NORM_PARAMS, **sync)
    name = "_contrib_SyncBatchNorm bfloat16 parameters"
    yield single(name, X, "_contrib_SyncBatchNorm", *low_params, **sync)
    affine = (Input(VEC, "weight", "gamma"), weight("c"))
    affine_fp32 = NORM_PARAMS[:2]
    tokens: dict[str, Any] = {"timing": (Dims(1, 768, 197),)}
    yield single("LayerNorm", of("n", "s", "c"), "LayerNorm", *affine, axis=-1, **tokens)
    yield single("LayerNorm float32 affine", of("n", "s", "c"), "LayerNorm", *affine_fp32, axis=-1, **tokens)
    yield single("InstanceNorm", X, "InstanceNorm", *affine)
    # MXNet 1.9 keeps one gamma and one beta a group, not a channel.
    per_group = (Input(of(4), "weight", "gamma"), Input(of(4), "weight", "normal"))
    yield single("GroupNorm", X, "GroupNorm", *per_group, num_groups=4)
    yield single("LRN", X, "LRN", nsize=5)


def dense_cases() -> Iterator[Case]:
    """Convolution, deconvolution, fully connected, pooling, resampling, detection operators."""
    yield single("Convolution 1x1", X, conv((1, 1)))
    yield single("Convolution 1x1 bias", X, conv((1, 1), bias=True))
    yield single("Convolution 1x1 stride 2", X, conv((1, 1), stride=(2, 2)))
    yield single("Convolution 3x3", X, conv((3, 3)))
    yield single("Convolution 3x3 bias", X, conv((3, 3), bias=True))
    yield single("Convolution 3x3 stride 2", X, conv((3, 3), stride=(2, 2)))
    yield single("Convolution 3x3 dilated 2", X, conv((3, 3), dilate=(2, 2), pad=(2, 2)))
    yield single("Convolution 1x7", X, conv((1, 7)))
    for side, stride, timing in (
        (7, 2, Dims(1, 64, 224)),
        (3, 2, Dims(1, 32, 224)),
        (3, 1, Dims(1, 64, 224)),
    ):
        name = f"Convolution {side}x{side} stem stride {stride}"
        stem = conv((side, side), channels=3, stride=(stride, stride))
        yield single(name, of("n", 3, "s", "s"), stem, timing=(timing,))
    yield single("Convolution depthwise 3x3", X, conv((3, 3), groups="c"))
    # oneDNN's bfloat16 kernels want channels in blocks of 16 (depthwise) or an even number of input channels;
    # without them it falls back to a plain one, which is right but slower than FP32.
    eights: dict[str, Any] = {
        "check": (Dims(1, 24, 14), Dims(2, 40, 14)),
        "timing": (Dims(1, 24, 28), Dims(1, 72, 28)),
    }
    yield single("Convolution depthwise 3x3, 8 mod 16 channels", X, conv((3, 3), groups="c"), **eights)
    yield single("Convolution depthwise 5x5, 8 mod 16 channels", X, conv((5, 5), groups="c"), **eights)
    odd: dict[str, Any] = {
        "check": (Dims(1, 17, 14), Dims(2, 33, 14)),
        "timing": (Dims(1, 17, 56), Dims(1, 65, 56)),
    }
    yield single("Convolution 3x3, odd channels", X, conv((3, 3)), **odd)
    yield single("Convolution 1x1, odd channels", X, conv((1, 1)), **odd)
    yield single("Convolution depthwise 5x5 stride 2", X, conv((5, 5), groups="c", stride=(2, 2)))
    wide: dict[str, Any] = {
        "check": (Dims(1, 64, 14), Dims(2, 128, 14)),
        "timing": (Dims(1, 128, 56), Dims(1, 256, 56)),
    }
    yield single("Convolution 3x3 groups 32", X, conv((3, 3), groups=32), **wide)
    yield single("Convolution 3x3 groups 2", X, conv((3, 3), groups=2), **wide)
    yield single("Convolution 1-D 3", X3, conv((3,)), timing=(Dims(1, 256, 512),))
    volume: dict[str, Any] = {"timing": (Dims(1, 64, 28),)}
    yield single("Convolution 3-D 3x3x3", X5, conv((3, 3, 3), bias=True), **volume)
    yield single("Convolution 3-D 1x3x3", X5, conv((1, 3, 3)), **volume)
    yield single("Convolution 3-D 3x1x1", X5, conv((3, 1, 1)), **volume)
    up2: dict[str, Any] = {"stride": (2, 2)}
    small: dict[str, Any] = {"timing": (Dims(1, 64, 28), Dims(1, 256, 14))}
    yield single("Deconvolution 4x4 stride 2", X, deconv((4, 4), pad=(1, 1), **up2), **small)
    yield single("Deconvolution 4x4 stride 2 bias", X, deconv((4, 4), bias=True, pad=(1, 1), **up2), **small)
    yield single("Deconvolution 2x2 stride 2", X, deconv((2, 2), **up2), **small)
    yield single("Deconvolution 2x2 stride 2 bias", X, deconv((2, 2), bias=True, **up2), **small)
    yield single(
        "Deconvolution 3x3 stride 2 adj 1", X, deconv((3, 3), pad=(1, 1), adj=(1, 1), **up2), **small
    )
    yield single("Deconvolution 4x4 groups 4", X, deconv((4, 4), pad=(1, 1), groups=4, **up2), **small)
    yield single("Deconvolution 1-D", X3, deconv((4,), pad=(1,), stride=(2,)), timing=(Dims(1, 64, 128),))
    yield single("Deconvolution 3-D", X5, deconv((2, 2, 2), stride=(2, 2, 2)), timing=(Dims(1, 32, 14),))
    rows: dict[str, Any] = {"timing": (Dims(1, 2048, 1), Dims(16, 2048, 1))}
    yield single("FullyConnected 2-D", X2, dense(units=1000), **rows)
    yield single("FullyConnected no bias", X2, dense(bias=False, units=1000), **rows)
    yield single(
        "FullyConnected flattens 4-D",
        of("n", "c", 7, 7),
        dense(width="49c", units=100),
        timing=(Dims(1, 256, 7),),
    )
    yield single(
        "FullyConnected flatten=False", of("n", "s", "c"), dense(flatten=False), timing=(Dims(1, 768, 197),)
    )
    yield single(
        "FullyConnected flatten=False 4-D",
        of("n", 2, "s", "c"),
        dense(flatten=False),
        timing=(Dims(1, 256, 56),),
    )
    yield from pooling_cases()
    yield from detection_cases()


def pooling_cases() -> Iterator[Case]:
    """Pooling and resampling."""
    window: dict[str, Any] = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}
    for kind in ("max", "avg", "sum", "lp"):
        more: dict[str, Any] = {"p_value": 2} if kind == "lp" else {}
        yield single(f"Pooling {kind} 3x3 stride 2", X, "Pooling", pool_type=kind, **window, **more)
    yield single("Pooling max 2x2", X, "Pooling", pool_type="max", kernel=(2, 2), stride=(2, 2))
    yield single("Pooling avg 2x2", X, "Pooling", pool_type="avg", kernel=(2, 2), stride=(2, 2))
    yield single(
        "Pooling avg excluding pad", X, "Pooling", pool_type="avg", count_include_pad=False, **window
    )
    yield single(
        "Pooling max full",
        X,
        "Pooling",
        pool_type="max",
        pooling_convention="full",
        kernel=(3, 3),
        stride=(2, 2),
    )
    yield single(
        "Pooling avg full",
        X,
        "Pooling",
        pool_type="avg",
        pooling_convention="full",
        kernel=(3, 3),
        stride=(2, 2),
    )
    for kind in ("avg", "max"):
        yield single(f"Pooling global {kind}", X, "Pooling", pool_type=kind, kernel=(1, 1), global_pool=True)
        cube: dict[str, Any] = {"kernel": (2, 2, 2), "stride": (2, 2, 2), "timing": (Dims(1, 64, 28),)}
        yield single(f"Pooling {kind} 3-D", X5, "Pooling", pool_type=kind, **cube)
        line: dict[str, Any] = {"kernel": (2,), "stride": (2,), "timing": (Dims(1, 256, 512),)}
        yield single(f"Pooling {kind} 1-D", X3, "Pooling", pool_type=kind, **line)
    yield single("Pooling global avg 3-D", X5, "Pooling", pool_type="avg", kernel=(1, 1, 1), global_pool=True)
    for size in (1, 6, 7):
        yield single(
            f"_contrib_AdaptiveAvgPooling2D {size}", X, "_contrib_AdaptiveAvgPooling2D", output_size=size
        )
    yield single("_contrib_BilinearResize2D", X, "_contrib_BilinearResize2D", height=28, width=28)
    like: dict[str, Any] = {"mode": "like"}
    yield single(
        "_contrib_BilinearResize2D like",
        X,
        "_contrib_BilinearResize2D",
        Input(of("n", 1, "2s", "2s")),
        **like,
    )
    bilinear: dict[str, Any] = {
        "scale": 2,
        "sample_type": "bilinear",
        "num_filter": count("c"),
        "num_args": 2,
        "timing": (),
    }
    yield single("UpSampling bilinear", X, "UpSampling", weight("c", 1, 4, 4), **bilinear)


def detection_cases() -> Iterator[Case]:
    """Region, box and deformable operators, and recurrent layers."""
    rois = of(10, 5)
    region: dict[str, Any] = {"pooled_size": (7, 7), "spatial_scale": 1.0, "timing": (Dims(1, 64, 56),)}
    for op, extra in (("_contrib_ROIAlign", {"sample_ratio": 2}), ("ROIPooling", {})):
        yield single(f"{op} bfloat16 rois", X, op, Input(rois, "weight", "rois"), **extra, **region)
        yield single(f"{op} float32 rois", X, op, Input(rois, "fp32", "rois"), **extra, **region)
    deformable: dict[str, Any] = {
        "kernel": (3, 3),
        "pad": (1, 1),
        "num_filter": count("c"),
        "num_deformable_group": 1,
        "no_bias": True,
    }
    offset = Input(of("n", 18, "s", "s"))
    kernel = weight("c", "c", 3, 3)
    yield single(
        "_contrib_DeformableConvolution", X, "_contrib_DeformableConvolution", offset, kernel, **deformable
    )
    mask = Input(of("n", 9, "s", "s"), values="unit")
    modulated = "_contrib_ModulatedDeformableConvolution"
    yield single(modulated, X, modulated, offset, mask, kernel, **deformable)
    anchors = Input(of(1, 100, 4), "weight", "boxes")
    decode: dict[str, Any] = {
        "check": (Dims(1, 1, 1), Dims(2, 1, 1)),
        "timing": (Dims(1, 1, 1),),
        "format": "center",
    }
    deltas = of("n", 100, 4)
    yield single("_contrib_box_decode", deltas, "_contrib_box_decode", anchors, **decode)
    anchors_fp32 = Input(of(1, 100, 4), "fp32", "boxes")
    yield single("_contrib_box_decode float32 anchors", deltas, "_contrib_box_decode", anchors_fp32, **decode)
    candidates = Input(of("n", 60, 6), values="detections")
    suppression: dict[str, Any] = {
        "overlap_thresh": 0.5,
        "valid_thresh": 0.01,
        "topk": 40,
        "coord_start": 2,
        "score_index": 1,
        "id_index": 0,
    }
    checks: dict[str, Any] = {"check": decode["check"], "timing": decode["timing"]}
    yield single("_contrib_box_nms", candidates, "_contrib_box_nms", **suppression, **checks)
    hidden = 16
    for mode, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1)):
        size = gates * hidden * (20 + hidden + 2)
        state = Input(of(1, "n", hidden), "weight", "zero")
        inputs = [weight(size), state] + ([state] if mode == "lstm" else [])
        recurrent: dict[str, Any] = {
            "state_size": hidden,
            "num_layers": 1,
            "mode": mode,
            "state_outputs": False,
        }
        yield single(
            f"RNN {mode}",
            of(5, "n", 20),
            "RNN",
            *inputs,
            check=CHECK_DIMS[:2],
            timing=(Dims(8, 1, 1),),
            **recurrent,
        )


def fused_cases() -> Iterator[Case]:
    """Chains that the oneDNN subgraph backend fuses, or might."""
    conv3, conv1 = conv((3, 3)), conv((1, 1))
    residual = Input(X)
    add = step("elemwise_add", residual)
    leaky = step("LeakyReLU", act_type="leaky", slope=0.1)
    sigmoid, tanh = step("Activation", act_type="sigmoid"), step("Activation", act_type="tanh")
    softrelu = step("Activation", act_type="softrelu")
    for label, first in (("Conv3x3", conv3), ("Conv1x1", conv1), ("Depthwise3x3", conv((3, 3), groups="c"))):
        yield fused(f"{label}+relu", first, RELU)
        yield fused(f"{label}+BN", first, BN)
        yield fused(f"{label}+BN+relu", first, BN, RELU)
        yield fused(f"{label}+clip6", first, CLIP6)
        yield fused(f"{label}+BN+clip6", first, BN, CLIP6)
    yield fused("Conv3x3 bias+BN+relu", conv((3, 3), bias=True), BN, RELU)
    yield fused("Conv3x3 bias+relu", conv((3, 3), bias=True), RELU)
    yield fused("Conv3x3+relu operator", conv3, step("relu"))
    yield fused("Conv3x3+sigmoid operator", conv3, step("sigmoid"))
    wide: dict[str, Any] = {"check": (Dims(1, 64, 14), Dims(2, 128, 14)), "timing": (Dims(1, 128, 56),)}
    yield fused("Conv3x3 groups 32+BN+relu", conv((3, 3), groups=32), BN, RELU, **wide)
    for label, tail in (("sigmoid", sigmoid), ("tanh", tanh), ("softrelu", softrelu), ("leaky", leaky)):
        yield fused(f"Conv3x3+BN+{label}", conv3, BN, tail)
        yield fused(f"Conv3x3+{label}", conv3, tail)
    prelu = step("LeakyReLU", Input(VEC, "weight", "gamma"), act_type="prelu")
    yield fused("Conv3x3+prelu", conv3, prelu)
    yield fused("Conv3x3+BN+prelu", conv3, BN, prelu)
    for kind in ("elu", "selu", "gelu"):
        yield fused(f"Conv3x3+{kind}", conv3, step("LeakyReLU", act_type=kind, slope=0.25))
    yield fused("Conv3x3+clip -1..1", conv3, step("clip", a_min=-1, a_max=1))
    yield fused("Conv3x3+BN+clip 0..0.3", conv3, BN, step("clip", a_min=0, a_max=0.3))
    yield fused("Conv3x3+add", conv3, add)
    yield fused("Conv3x3+add+relu", conv3, add, RELU)
    yield fused("Conv3x3+BN+add", conv3, BN, add)
    yield fused("Conv3x3+BN+add+relu", conv3, BN, add, RELU)
    yield fused("Conv1x1+BN+add+relu", conv1, BN, add, RELU)
    yield fused("Conv3x3+BN+add+clip6", conv3, BN, add, CLIP6)
    yield fused("Conv3x3+BN+relu+add", conv3, BN, RELU, add)
    yield fused("Depthwise3x3+BN+add", conv((3, 3), groups="c"), BN, add)
    yield fused("Conv3x3+BN+broadcast_add", conv3, BN, step("broadcast_add", residual))
    yield fused("Conv3x3+BN+_plus (a+b)", conv3, BN, step("_plus", residual))
    yield fused("Conv3x3+BN+add_n", conv3, BN, step("add_n", residual, num_args=2))
    three, over6 = step("_plus_scalar", scalar=3), step("_div_scalar", scalar=6)
    yield fused("Conv1x1+BN+hard sigmoid in three", conv1, BN, three, CLIP6, over6)
    yield fused(
        "Conv1x1+BN+hard swish in three", conv1, BN, three, CLIP6, over6, step("elemwise_mul", Ref(2))
    )
    yield fused("Conv1x1+BN+hard_sigmoid operator", conv1, BN, step("hard_sigmoid", alpha=1 / 6, beta=0.5))
    yield fused("Conv1x1+BN+mul_scalar", conv1, BN, step("_mul_scalar", scalar=0.17))
    # Residual blocks: the addend is read again later, so an in-place sum would show.
    yield fused("Residual block", conv3, BN, RELU, conv3, BN, step("elemwise_add", Ref(0)), RELU)
    yield fused(
        "Residual, addend read again",
        conv3,
        BN,
        step("elemwise_add", Ref(0)),
        step("Concat", Ref(0), dim=1, num_args=2),
    )
    yield fused(
        "Residual, stem shared", conv3, conv3, step("elemwise_add", Ref(1)), step("elemwise_mul", Ref(1))
    )
    yield fused("Conv output is also a head", conv3, RELU, extra_heads=(1,))
    yield fused("BN output is also a head", conv3, BN, RELU, extra_heads=(2,))
    yield fused("Conv read twice", conv3, RELU, step("elemwise_mul", Ref(1)))
    # Casts inside a group.
    yield fused("Conv > up > BN > relu", conv3, UP, BN, RELU)
    yield fused("Conv+BN > up > relu > down", conv3, BN, UP, RELU, DOWN)
    yield fused("Conv+BN > up > clip6 > down", conv3, BN, UP, CLIP6, DOWN)
    yield fused("Conv > up > clip6 > down > Conv", conv3, UP, CLIP6, DOWN, conv1)
    residual_fp32 = step("elemwise_add", Input(X, "fp32"))
    yield fused("Conv+BN + float32 residual", conv3, BN, residual_fp32)
    yield fused("Conv+BN > up > + float32 residual", conv3, BN, UP, residual_fp32, RELU)
    yield fused("down > Conv+BN+relu > up", DOWN, conv3, BN, RELU, UP, first=Input(X, "fp32", "normal"))
    recast = Step("Convolution", (Input(of("c", "c", 3, 3), "recast", "weight"),), conv3.attrs)
    yield fused("Conv+BN+relu, weight cast at run time", recast, BN, RELU)
    low_params = tuple(Input(part.shape, "weight", part.values) for part in NORM_PARAMS)
    yield fused("Conv+BN bfloat16 parameters", conv3, step("BatchNorm", *low_params, fix_gamma=False))
    sync = step("_contrib_SyncBatchNorm", *NORM_PARAMS, fix_gamma=False, ndev=1, key="k")
    yield fused("Conv+SyncBatchNorm+relu", conv3, sync, RELU)
    volume: dict[str, Any] = {"first": X5, "timing": (Dims(1, 64, 28),)}
    yield fused("Conv 3-D+BN+relu", conv((3, 3, 3)), BN, RELU, **volume)
    yield fused("Conv 1-D+BN+relu", conv((3,)), BN, RELU, first=X3, timing=(Dims(1, 256, 512),))
    up2 = deconv((4, 4), stride=(2, 2), pad=(1, 1))
    small: dict[str, Any] = {"timing": (Dims(1, 64, 28), Dims(1, 256, 14))}
    yield fused("Deconv+BN", up2, BN, **small)
    yield fused("Deconv+BN+relu", up2, BN, RELU, **small)
    yield fused("Deconv+relu", up2, RELU, **small)
    # The executor removes these two at inference when the backend is on; elsewhere they run, or raise.
    yield fused("Conv3x3+relu+Dropout", conv3, RELU, step("Dropout", p=0.5))
    yield fused("Conv3x3+relu+identity", conv3, RELU, step("_copy"))
    stem: dict[str, Any] = {"first": of("n", 3, "s", "s"), "timing": (Dims(1, 64, 224),), "feeds": False}
    yield fused("Stem7x7+BN+relu", conv((7, 7), channels=3, stride=(2, 2)), BN, RELU, **stem)
    yield fused("BN+relu", BN, RELU, feeds=False)
    yield fused("BN+relu+Conv", BN, RELU, conv3, feeds=False)
    yield fused(
        "Conv+Concat+BN+relu+Conv", conv3, step("Concat", Ref(0), dim=1, num_args=2), BN2, RELU, CONV2
    )
    yield from fused_dense_cases()


BN2 = step(
    "BatchNorm",
    *(Input(of("2c"), "fp32", part.values) for part in NORM_PARAMS),
    fix_gamma=False,
)
CONV2 = step("Convolution", weight("c", "2c", 1, 1), kernel=(1, 1), num_filter=count("c"), no_bias=True)


def fused_dense_cases() -> Iterator[Case]:
    """FullyConnected with what follows it."""
    rows: dict[str, Any] = {"first": X2, "timing": (Dims(1, 2048, 1), Dims(16, 2048, 1))}
    layer = dense()
    for kind in ("relu", "sigmoid", "tanh", "softrelu"):
        yield fused(f"FC+{kind}", layer, step("Activation", act_type=kind), **rows)
    for op in ("exp", "square", "sqrt", "abs", "relu", "sigmoid"):
        yield fused(f"FC+{op} operator", layer, step(op), **rows)
    for kind in ("leaky", "elu", "gelu"):
        yield fused(f"FC+{kind}", layer, step("LeakyReLU", act_type=kind, slope=0.1), **rows)
    yield fused("FC+clip6", layer, CLIP6, **rows)
    yield fused("FC+BN", layer, BN, **rows)
    yield fused("FC+add", layer, step("elemwise_add", Input(X2)), **rows)
    yield fused("FC no bias+relu", dense(bias=False), RELU, **rows)
    tokens: dict[str, Any] = {"first": of("n", "s", "c"), "timing": (Dims(1, 768, 197),)}
    yield fused("FC flatten=False+relu", dense(flatten=False), RELU, **tokens)
    yield fused("FC flatten=False+gelu", dense(flatten=False), step("LeakyReLU", act_type="gelu"), **tokens)


def numpy_cases() -> Iterator[Case]:
    """Operators of MXNet's NumPy mode that a policy may want in bfloat16."""
    few = (Dims(1, 64, 56),)
    for newshape in ((-1,), (-1, 14, 14), (-1, "c")):
        shape: Any = newshape if "c" not in newshape else lambda dims: (-1, dims.c)
        yield single(f"_np_reshape {newshape}", X, "_np_reshape", newshape=shape, timing=few)
    yield single("_npx_reshape (-2, -2, -1)", X, "_npx_reshape", newshape=(-2, -2, -1), timing=few)
    yield single("_npx_reshape (-2, -1)", X, "_npx_reshape", newshape=(-2, -1), timing=few)
    yield single("_np_squeeze", PER_IMAGE, "_np_squeeze", axis=(2, 3), timing=(Dims(1, 4096, 1),))
    yield single("_np_transpose (0, 2, 3, 1)", X, "_np_transpose", axes=(0, 2, 3, 1), timing=few)
    yield single("_np_transpose (0, 2, 1)", X3, "_np_transpose", axes=(0, 2, 1), timing=())
    yield single("_np_moveaxis", X, "_np_moveaxis", source=(1,), destination=(3,), timing=few)
    yield single("_np_roll", X, "_np_roll", shift=(3,), axis=(2,), timing=few)
    yield single("_np_copy", X, "_np_copy", timing=few)
    yield single("_npi_flip", X, "_npi_flip", axis=(3,), timing=few)
    yield single("_npi_rot90", X, "_npi_rot90", k=1, axes=(2, 3), timing=few)
    yield single("_npi_tril", of("c", "c"), "_npi_tril", timing=(Dims(1, 512, 1),))
    shape = of("n", "c", 14, 14)
    yield single("_npi_broadcast_to", PER_IMAGE, "_npi_broadcast_to", shape=shape, timing=())
    widths = ((0, 0), (0, 0), (1, 1), (1, 1))
    yield single("_npi_pad constant", X, "_npi_pad", pad_width=widths, timing=few)
    yield single("_npi_pad edge", X, "_npi_pad", pad_width=widths, mode="edge", timing=few)
    joined: dict[str, Any] = {"num_args": 2}
    for axis in (1, 0, 3):
        name = f"_npi_concatenate axis={axis}"
        yield single(name, X, "_npi_concatenate", Input(X), axis=axis, timing=few, **joined)
    for rank, shape in ((2, X2), (3, X3), (5, X5)):
        name = f"_npi_concatenate {rank}-D"
        yield single(name, shape, "_npi_concatenate", Input(shape), axis=1, timing=(), **joined)
    yield single("_npi_stack", X, "_npi_stack", Input(X), axis=1, num_args=2, timing=few)
    moves: tuple[tuple[str, dict[str, Any]], ...] = (
        ("_np_reshape", {"newshape": (-1,)}),
        ("_npx_reshape", {"newshape": (-2, -1)}),
        ("_np_transpose", {"axes": (0, 2, 3, 4, 1)}),
        ("_np_moveaxis", {"source": (1,), "destination": (4,)}),
        ("_np_roll", {"shift": (3,), "axis": (2,)}),
        ("_np_copy", {}),
        ("_npi_flip", {"axis": (3,)}),
        ("_npi_rot90", {"k": 1, "axes": (2, 3)}),
        ("_npi_pad", {"pad_width": (*widths, (0, 0))}),
        ("_npi_hsplit", {"indices": (0, 7), "axis": 1}),
    )
    for op, attrs in moves:
        yield single(f"{op} 5-D", X5, op, timing=(), **attrs)
    for op in ("_npi_vstack", "_npi_column_stack"):
        yield single(op, X, op, Input(X), num_args=2, timing=few)
    yield single("_npi_hsplit", X, "_npi_hsplit", indices=(0, 7), axis=1, timing=few)
    yield single("_npi_dsplit", X, "_npi_dsplit", indices=(0, 7), axis=2, timing=few)
    yield single("_npi_where", Input(X, "fp32", "binary"), "_npi_where", Input(X), Input(X), timing=few)
    yield single(
        "_npi_where_lscalar", Input(X, "fp32", "binary"), "_npi_where_lscalar", Input(X), scalar=0, timing=few
    )
    for op in ("_npi_add", "_npi_subtract", "_npi_multiply"):
        yield single(f"{op} same shape", X, op, Input(X), timing=few)
        yield single(f"{op} parameter per channel", X, op, Input(PER_CHANNEL, "weight"), timing=few)
        yield single(f"{op}_scalar", X, f"{op}_scalar", scalar=0.3, is_int=False, timing=few)
    yield single("_npi_rsubtract_scalar", X, "_npi_rsubtract_scalar", scalar=1, timing=few)
    yield single("_npi_copysign", X, "_npi_copysign", Input(X), timing=few)
    yield single("_npi_greater", X, "_npi_greater", Input(PER_IMAGE), timing=few)
    yield single("_npi_greater_scalar", X, "_npi_greater_scalar", scalar=0.5, is_int=False, timing=few)
    for op in ("_npx_relu", "_npx_sigmoid", "_npi_tanh", "_npi_absolute", "_npi_negative", "_npi_sign"):
        yield single(op, X, op, timing=few)
    yield single("_npi_sqrt", Input(X, values="positive"), "_npi_sqrt", timing=few)
    for op in ("_np_max", "_np_min"):
        yield single(op, X, op, axis=(2, 3), timing=few)
    yield single("_npi_diff", X, "_npi_diff", timing=few)
    yield single("_np_dot", of(24, "c"), "_np_dot", Input(of("c", 40)), timing=())
    yield single("_npi_matmul", of("n", "s", "c"), "_npi_matmul", Input(of("n", "c", "s")), timing=())
    yield single(
        "_npi_tensordot_int_axes", X2, "_npi_tensordot_int_axes", Input(of("c", 5)), axes=1, timing=()
    )
    yield single(
        *("_npi_tensordot", X2, "_npi_tensordot", Input(of(5, "c"))),
        a_axes_summed=(1,),
        b_axes_summed=(1,),
        timing=(),
    )
    yield single(
        "_npi_einsum", X2, "_npi_einsum", Input(of(5, "c")), num_args=2, subscripts="nc,dc->nd", timing=()
    )


def all_cases() -> list[Case]:
    """Return every case, in the order of the report."""
    groups: tuple[Callable[[], Iterable[Case]], ...] = (
        dense_cases,
        activation_cases,
        scalar_cases,
        pairwise_cases,
        cast_cases,
        layout_cases,
        reduction_cases,
        index_cases,
        numpy_cases,
        fused_cases,
    )
    return [case for group in groups for case in group()]


# -------------------------------------------------------------------------------------------------- values


def draw(values: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Draw one float32 array of the named kind."""
    kind, _, option = values.partition(":")
    if kind == "index":
        return rng.integers(0, int(option), size=shape).astype(np.float32)
    simple: dict[str, Callable[[], Array]] = {
        "normal": lambda: rng.standard_normal(shape),
        "unrounded": lambda: rng.standard_normal(shape),
        "positive": lambda: rng.uniform(0.1, 4.0, shape),
        "unit": lambda: rng.uniform(0.0, 1.0, shape),
        "binary": lambda: rng.integers(0, 2, shape),
        "gamma": lambda: rng.uniform(0.5, 1.5, shape),
        "zero": lambda: np.zeros(shape),
        "weight": lambda: rng.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:]))),
        "distinct": lambda: distinct(shape, rng),
        "boxes": lambda: corners(shape, rng),
        "rois": lambda: np.concatenate(
            [np.zeros((*shape[:-1], 1)), 13 * corners((*shape[:-1], 4), rng)], axis=-1
        ),
        "detections": lambda: np.concatenate(
            [
                rng.integers(0, 3, (*shape[:-1], 1)),
                distinct((*shape[:-1], 1), rng) / 8,
                corners((*shape[:-1], 4), rng),
            ],
            axis=-1,
        ),
    }
    return np.asarray(simple[kind](), np.float32)


def distinct(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return shuffled distinct bfloat16 values: ties would make the order of a sort arbitrary."""
    size = math.prod(shape)
    patterns = (0x3D00 + np.arange(size) % 0x400).astype(np.uint16)
    return rng.permutation(patterns).view(ml_dtypes.bfloat16).astype(np.float32).reshape(shape)


def corners(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return boxes (x0, y0, x1, y1) in the unit square."""
    low = rng.uniform(0.0, 0.6, (*shape[:-1], 2))
    return np.concatenate([low, low + rng.uniform(0.1, 0.4, low.shape)], axis=-1)


def to_bfloat16(array: Array) -> Array:
    """Round float32 to the nearest bfloat16 and return it as float32."""
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


# -------------------------------------------------------------------------------------------------- worker


class Built(NamedTuple):
    """A symbol and the NumPy value (float32) and role of each of its variables."""

    symbol: Any
    values: dict[str, tuple[Array, str]]


class Builder:
    """Builds the symbols of one case in one precision."""

    def __init__(self, mx: Any, case: Case, dims: Dims, precision: str, feed: str) -> None:
        self._mx = mx
        self._case = case
        self._dims = dims
        self._low = precision == "bfloat16"
        # float64 and float32 references read the identity convolution away: its result is its input.
        self._feed = feed if precision != "float64" else "plain"
        self._rng = np.random.default_rng(zlib.crc32(case.name.encode()) + sum(dims))
        self._values: dict[str, tuple[Array, str]] = {}
        self._feeds: list[Any] = []

    def build(self, *, feeds_only: bool = False) -> Built:
        """Return the symbol; with ``feeds_only`` only the convolutions in front, for timing."""
        flow = [self._variable(self._case.first, is_first=True)]
        for one in self._case.steps:
            if one.low_only and not self._low:
                flow.append(flow[-1])
                continue
            inputs = [
                flow[part.step] if isinstance(part, Ref) else self._variable(part) for part in one.inputs
            ]
            attrs = {key: value(self._dims) if callable(value) else value for key, value in one.attrs.items()}
            flow.append(self._operator(one.op)(flow[-1], *inputs, **attrs))
        if feeds_only:
            return self._result(self._feeds)
        heads = [flow[-1], *(flow[index] for index in self._case.extra_heads)]
        return self._result(heads)

    def _result(self, heads: list[Any]) -> Built:
        symbol = heads[0] if len(heads) == 1 else self._mx.sym.Group(heads)
        used = set(symbol.list_arguments()) | set(symbol.list_auxiliary_states())
        return Built(symbol, {name: value for name, value in self._values.items() if name in used})

    def _operator(self, op: str) -> Callable[..., Any]:
        sym = self._mx.sym
        if op.startswith(("_np_", "_npi_", "_npx_")):
            return lambda *inputs, **attrs: self._numpy(op, inputs, attrs)
        for prefix, module in (("_contrib_", sym.contrib), ("_linalg_", sym.linalg)):
            if op.startswith(prefix):
                return getattr(module, op[len(prefix) :])  # type: ignore[no-any-return]
        return getattr(sym._internal if op.startswith("_") else sym, op)  # type: ignore[no-any-return]

    def _numpy(self, op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Compose an operator whose Python function takes NumPy-mode Symbols alone."""
        from mxnet._ctypes.symbol import _symbol_creator

        handle = ctypes.c_void_p()
        self._mx.base.check_call(self._mx.base._LIB.NNGetOpHandle(op.encode(), ctypes.byref(handle)))
        return _symbol_creator(
            handle.value, list(inputs), None, list(attrs), list(attrs.values()), None, False
        )

    def _variable(self, spec: Input, *, is_first: bool = False) -> Any:
        name = f"in{len(self._values)}"
        shape = spec.shape(self._dims)
        array = draw(spec.values, shape, self._rng)
        if spec.role in ("data", "weight", "recast"):
            array = to_bfloat16(array)
        self._values[name] = (array, spec.role)
        variable = self._mx.sym.Variable(name)
        if spec.role == "recast" and self._low:
            return self._mx.sym.amp_cast(variable, dtype="bfloat16")
        wanted = self._feed.startswith("conv") and (is_first or self._feed != "conv first")
        if spec.role != "data" or not wanted or not feedable(shape):
            return variable
        fed = self._identity(variable, name, shape)
        self._feeds.append(fed)
        return fed

    def _identity(self, variable: Any, name: str, shape: tuple[int, ...]) -> Any:
        """Put a convolution (2-D: a fully connected) in front that returns its input, in oneDNN's layout."""
        channels = shape[1]
        kernel = self._mx.sym.Variable(f"{name}_identity")
        if len(shape) == 2:
            self._values[f"{name}_identity"] = (np.eye(channels, dtype=np.float32), "weight")
            return self._mx.sym.FullyConnected(variable, kernel, num_hidden=channels, no_bias=True)
        ones = (1,) * (len(shape) - 2)
        depthwise = self._feed == "conv depthwise"
        matrix = np.ones((channels, 1), np.float32) if depthwise else np.eye(channels, dtype=np.float32)
        self._values[f"{name}_identity"] = (matrix.reshape(*matrix.shape, *ones), "weight")
        groups = channels if depthwise else 1
        return self._mx.sym.Convolution(
            variable, kernel, kernel=ones, num_filter=channels, num_group=groups, no_bias=True
        )


def feedable(shape: tuple[int, ...]) -> bool:
    """Whether a tensor of this shape can come from a convolution or a fully connected."""
    return 2 <= len(shape) <= 5 and shape[1] <= 512


def bind(mx: Any, built: Built, precision: str, backend: str) -> Any:
    """Bind with the given subgraph backend; MXNet reads the variable when it binds."""
    os.environ["MXNET_SUBGRAPH_BACKEND"] = backend
    arrays = {}
    for name, (array, role) in built.values.items():
        if precision == "bfloat16" and role in ("data", "weight"):
            # Not astype("bfloat16"): once ml_dtypes is imported NumPy resolves the name to ml_dtypes' type,
            # which MXNet does not know.
            arrays[name] = mx.nd.amp_cast(mx.nd.array(array, dtype=np.float32), dtype="bfloat16")
        else:
            arrays[name] = mx.nd.array(array, dtype=np.float64 if precision == "float64" else np.float32)
    auxiliary = built.symbol.list_auxiliary_states()
    args = {name: arrays[name] for name in built.symbol.list_arguments()}
    aux = {name: arrays[name] for name in auxiliary}
    return built.symbol.bind(mx.cpu(), args=args, aux_states=aux, grad_req="null")


def read(array: Any) -> tuple[Array, str]:
    """Return an NDArray's values and the name of its dtype."""
    values = array.asnumpy()
    if values.dtype.names:
        return values.view(np.uint16).view(ml_dtypes.bfloat16).astype(np.float64), "bfloat16"
    return values.astype(np.float64), values.dtype.name


def ulp(reference: Array) -> Array:
    """Return the spacing of bfloat16 at each value."""
    exponent = np.frexp(reference)[1] - 1
    return np.ldexp(1.0, np.maximum(exponent, -126) - 7)


def compare(got: Array, reference: Array, *, chain: bool) -> dict[str, Any]:
    """Return error figures of one output; see the module docstring for the classes."""
    if got.shape != reference.shape:
        return {"class": "wrong", "note": f"shape {got.shape} instead of {reference.shape}"}
    if not np.array_equal(np.isfinite(got), np.isfinite(reference)):
        return {"class": "wrong", "note": "NaN or infinity where the reference is finite, or the other way"}
    finite = np.isfinite(reference)
    got, reference = got[finite], reference[finite]
    if not got.size:
        return {"class": "exact", "max_ulp": 0.0, "bias_ulp": 0.0, "max_rel": 0.0, "rel_l2": 0.0, "count": 0}
    error = got - reference
    magnitude = np.abs(reference)
    rms = float(np.sqrt(np.mean(reference**2)))
    floor = max((CHAIN_FLOOR if chain else FLOOR) * rms, 1e-30)
    scaled = error / ulp(np.maximum(magnitude, floor))
    signed = (np.sign(reference) * scaled)[magnitude >= floor]
    bias = float(signed.mean()) if signed.size else 0.0
    max_ulp = float(np.abs(scaled).max())
    # A mean of uniform rounding errors over few elements is itself noisy: three standard deviations.
    limit = BIAS_LIMIT + 3 * math.sqrt(1 / 12 / max(1, signed.size))
    rel_l2 = float(np.linalg.norm(error)) / max(float(np.linalg.norm(reference)), 1e-30)
    if rel_l2 > CHAIN_REL_L2 if chain else max_ulp > GROSS_ULP:
        label = "wrong"
    elif abs(bias) > limit:
        label = "biased"
    else:
        label = "exact" if max_ulp <= HALF_ULP else "inexact"
    return {
        "class": label,
        "max_ulp": round(max_ulp, 3),
        "bias_ulp": round(bias, 4),
        "max_rel": float(f"{np.abs(error).max() / max(magnitude.max(), 1e-30):.3g}"),
        "rel_l2": float(f"{rel_l2:.3g}"),
        "count": int(got.size),
    }


def run_symbol(mx: Any, case: Case, dims: Dims, precision: str, feed: str, backend: str) -> dict[str, Any]:
    """Run one symbol three times; return its outputs, or why it raised."""
    try:
        built = Builder(mx, case, dims, precision, feed).build()
        executor = bind(mx, built, precision, backend)
        rounds = [[read(output) for output in executor.forward(is_train=False)] for _ in range(3)]
    except mx.base.MXNetError as error:
        return {"raises": message(str(error))}
    except (TypeError, ValueError, KeyError) as error:
        return {"raises": f"{type(error).__name__}: {message(str(error))}"}
    outputs, dtypes = [value for value, _ in rounds[0]], [name for _, name in rounds[0]]
    stable = all(
        np.array_equal(value, again, equal_nan=True)
        for other in rounds[1:]
        for value, (again, _) in zip(outputs, other)
    )
    return {"outputs": outputs, "dtypes": dtypes, "stable": stable, "executed": executed(executor)}


def executed(executor: Any) -> list[str]:
    """Return the operators the executor really runs, fused ones with what they contain."""
    graph = json.loads(executor.get_optimized_symbol().tojson(remove_amp_cast=False))
    names = []
    for node in graph["nodes"]:
        if node["op"] == "null":
            continue
        inner = [
            part["op"] for sub in node.get("subgraphs", []) for part in sub["nodes"] if part["op"] != "null"
        ]
        names.append(f"{node['op']}[{'+'.join(inner)}]" if inner else node["op"])
    return names


def message(text: str) -> str:
    """Return the telling line of an MXNet error, without the C++ stack."""
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("[bt]")
    ]
    telling = [
        line for line in lines if re.search(r"Check failed|Error in operator|not |unknown|could not", line)
    ]
    chosen = " | ".join(dict.fromkeys(telling[-2:] or lines[-1:]))
    return re.sub(r"\S*/src/", "src/", chosen)[:300]


def check(mx: Any, case: Case, dims: Dims, feed: str) -> dict[str, Any]:
    """Compare the bfloat16 outputs with the reference."""
    fp32 = run_symbol(mx, case, dims, "float32", "plain" if case.fused else feed, "NONE")
    if "raises" in fp32:
        return {"class": "fp32 raises", "message": fp32["raises"]}
    fp64 = run_symbol(mx, case, dims, "float64", "plain", "NONE")
    reference = fp64 if "outputs" in fp64 else fp32
    low = run_symbol(mx, case, dims, "bfloat16", feed, "MKLDNN" if case.fused else "NONE")
    result = assess(low, reference, chain=case.fused)
    result["reference"] = "float64" if reference is fp64 else "float32"
    if reference is fp64:
        result["fp32_rel_l2"] = max(
            compare(a, b, chain=case.fused).get("rel_l2", 9.9)
            for a, b in zip(fp32["outputs"], fp64["outputs"])
        )
    if case.fused:
        result["unfused"] = assess(
            run_symbol(mx, case, dims, "bfloat16", feed, "NONE"), reference, chain=case.fused
        )
        fp32_fused = run_symbol(mx, case, dims, "float32", feed, "MKLDNN")
        result["fp32_fused"] = assess(fp32_fused, reference, chain=case.fused)
    return result


def assess(run: dict[str, Any], reference: dict[str, Any], *, chain: bool) -> dict[str, Any]:
    """Return the class and the error figures of a run, worst output first."""
    if "raises" in run:
        return {"class": "raises", "message": run["raises"]}
    parts = [compare(got, want, chain=chain) for got, want in zip(run["outputs"], reference["outputs"])]
    worst = max(parts, key=lambda part: (CLASS_ORDER.index(part["class"]), part.get("max_ulp", 1e9)))
    result = {**worst, "dtypes": sorted(set(run["dtypes"])), "executed": run["executed"]}
    if not run["stable"]:
        result["class"], result["note"] = "wrong", "three runs on the same inputs differ"
    return result


def measure(mx: Any, case: Case, dims: Dims, rounds: int) -> dict[str, Any]:
    """Time FP32 and bfloat16 alternately; microseconds."""
    executors = {}
    if case.fused:
        for backend in ("MKLDNN", "NONE"):
            for precision in ("float32", "bfloat16"):
                built = Builder(mx, case, dims, precision, "plain").build()
                executors[f"{precision} {backend}"] = bind(mx, built, precision, backend)
    else:
        fed = case.first.role == "data" and feedable(case.first.shape(dims))
        for precision in ("float32", "bfloat16"):
            executors[f"{precision} plain"] = bind(
                mx, Builder(mx, case, dims, precision, "plain").build(), precision, "NONE"
            )
            if fed:
                for label, only in (("feed", True), ("fed", False)):
                    built = Builder(mx, case, dims, precision, "conv depthwise").build(feeds_only=only)
                    executors[f"{precision} {label}"] = bind(mx, built, precision, "NONE")
    samples = alternate({label: runner(executor) for label, executor in executors.items()}, rounds)
    times = {label: median_us(values) for label, values in samples.items()}
    result: dict[str, Any] = {"us": times}
    if case.fused:
        result["ratio"] = round(times["bfloat16 MKLDNN"] / times["float32 MKLDNN"], 3)
        result["ratio_unfused"] = round(times["bfloat16 NONE"] / times["float32 NONE"], 3)
        return result
    result["ratio"] = round(times["bfloat16 plain"] / times["float32 plain"], 3)
    if "float32 fed" in times:
        # Differences within a round: what disturbs a round disturbs both of its windows.
        result["after_conv_us"] = {
            precision: median_us(
                fed - feed for fed, feed in zip(samples[f"{precision} fed"], samples[f"{precision} feed"])
            )
            for precision in ("float32", "bfloat16")
        }
    return result


def runner(executor: Any) -> Callable[[], None]:
    """Return a function that runs one forward pass to its end."""

    def run() -> None:
        for output in executor.forward(is_train=False):
            output.wait_to_read()

    return run


def median_us(seconds: Iterable[float]) -> float:
    """Return the median in microseconds."""
    return round(float(np.median(list(seconds))) * 1e6, 1)


def alternate(
    functions: dict[str, Callable[[], None]], rounds: int, window: float = 2e-3
) -> dict[str, list[float]]:
    """Return the seconds of one call of each function, a value a round, measured in alternating windows."""
    repeats = {}
    for label, function in functions.items():
        function()
        function()
        start = time.perf_counter()
        function()
        repeats[label] = max(1, min(50, int(window / (time.perf_counter() - start))))
    samples: dict[str, list[float]] = {label: [] for label in functions}
    for _ in range(rounds):
        for label, function in functions.items():
            start = time.perf_counter()
            for _ in range(repeats[label]):
                function()
            samples[label].append((time.perf_counter() - start) / repeats[label])
    return samples


def jobs_of(case: Case) -> list[dict[str, Any]]:
    """Return what a worker does for one case, in order: checks first, then timings."""
    feeds = ["plain"]
    specs = [case.first, *(part for one in case.steps for part in one.inputs if isinstance(part, Input))]
    fed = [spec for spec in specs if spec.role == "data" and feedable(spec.shape(case.check[0]))]
    if fed and case.feeds:
        feeds.append("conv")
    if case.feeds and len(fed) > 1 and case.first in fed:
        feeds.append("conv first")
    checks = [{"job": "check", "dims": list(dims), "feed": feed} for dims in case.check for feed in feeds]
    return checks + [{"job": "time", "dims": list(dims)} for dims in case.timing]


def work(name: str, path: Path, start: int, rounds: int) -> int:
    """Run the jobs of one case from ``start`` on and append a line a job to ``path``."""
    import mxnet as mx

    case = next(case for case in all_cases() if case.name == name)
    with path.open("a", encoding="utf-8") as stream:

        def tell(record: dict[str, Any]) -> None:
            # Flushed before the next native call, so that a crash loses nothing.
            stream.write(json.dumps(record) + "\n")
            stream.flush()

        for index, job in enumerate(jobs_of(case)):
            if index < start:
                continue
            tell({"index": index, "begins": True})
            dims = Dims(*job["dims"])
            try:
                outcome = (
                    check(mx, case, dims, job["feed"])
                    if job["job"] == "check"
                    else measure(mx, case, dims, rounds)
                )
            except mx.base.MXNetError as error:
                outcome = {"class": "raises", "message": message(str(error))}
            # Freeing the arrays here makes the heap check blame the job that overran them.
            gc.collect()
            mx.nd.waitall()
            tell({"index": index, **job, **outcome})
    return 0


# -------------------------------------------------------------------------------------------------- driver


def worker_environment(threads: int, heap_check: bool) -> dict[str, str]:
    """Return the environment of a worker: fixed thread count, and glibc's heap check where it exists."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MXNET_SUBGRAPH_VERBOSE="0")
    # An exported backend would decide the fusion of every case; the worker sets it for each bind.
    environment.pop("MXNET_SUBGRAPH_BACKEND", None)
    library = "libc_malloc_debug.so.0"
    if heap_check:
        try:
            ctypes.CDLL(library)
        except OSError:
            print(
                "no glibc heap check here: an operator that overruns its output may go unseen",
                file=sys.stderr,
            )
        else:
            environment.update(LD_PRELOAD=library, GLIBC_TUNABLES="glibc.malloc.check=3")
    return environment


def run_case(case: Case, arguments: argparse.Namespace, environment: dict[str, str]) -> dict[str, Any]:
    """Run one case in processes of its own, starting a new one behind each job that kills it."""
    jobs = jobs_of(case)
    records: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.jsonl"
        path.touch()
        start = 0
        for _ in range(MAX_RESTARTS):
            command = [sys.executable, __file__, "--worker", case.name, "--lines", str(path)]
            command += ["--start", str(start), "--rounds", str(arguments.rounds)]
            death = spawn(command, environment, arguments.limit)
            begun = -1
            for line in path.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                begun = max(begun, record["index"])
                if "job" in record:
                    records[record["index"]] = record
            if death is None:
                break
            failed = begun if begun not in records else len(jobs)
            if failed < len(jobs):
                records[max(failed, 0)] = {"index": failed, **jobs[max(failed, 0)], **death}
                start = failed + 1
            else:
                # It died after its last job: the heap check caught it while the process ended.
                records[begun] = {**records[begun], **death}
                break
            if start >= len(jobs):
                break
    return {
        "name": case.name,
        "operators": [one.op for one in case.steps],
        "attrs": [{key: str(v) for key, v in one.attrs.items() if not callable(v)} for one in case.steps],
        "fused": case.fused,
        "jobs": [records.get(index, {**job, "class": "not run"}) for index, job in enumerate(jobs)],
    }


def spawn(command: list[str], environment: dict[str, str], limit: float) -> dict[str, Any] | None:
    """Run a worker; return how it died, or None."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {"class": "hangs", "message": f"no answer in {limit:g} s"}
    if done.returncode == 0:
        return None
    last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
    if done.returncode < 0:
        return {
            "class": "crashes",
            "signal": signal.Signals(-done.returncode).name,
            "message": "".join(last)[:200],
        }
    return {"class": "crashes", "message": f"exit status {done.returncode}: {''.join(last)[:300]}"}


def machine(arguments: argparse.Namespace) -> dict[str, Any]:
    """Describe what was measured on."""
    probe = "import mxnet, numpy; print(mxnet.__version__, numpy.__version__)"
    versions = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    ).stdout.split()
    cpu = platform.processor()
    flags: list[str] = []
    if Path("/proc/cpuinfo").exists():
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        found = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
        cpu = found[1] if found else cpu
        listed = re.search(r"^flags\s*:\s*(.*)$", text, re.MULTILINE)
        flags = [flag for flag in (listed[1].split() if listed else []) if "bf16" in flag or "avx512" in flag]
    return {
        "mxnet": versions[0],
        "numpy": versions[1],
        "python": platform.python_version(),
        "cpu": cpu,
        "flags": flags,
        "cores": os.cpu_count(),
        "omp_threads": arguments.threads,
        "rounds": arguments.rounds,
    }


# -------------------------------------------------------------------------------------------------- report


def worst(jobs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the job with the worst class, and of those the largest error."""
    order = ("not run", *CLASS_ORDER, "fp32 raises")
    return max(
        jobs, key=lambda job: (order.index(job["class"]), job.get("max_ulp", 0.0)), default={"class": "-"}
    )


def describe(job: dict[str, Any]) -> str:
    """Return class and error figures in a few words."""
    if job["class"] in ("exact", "inexact", "biased", "wrong"):
        if "max_ulp" in job:
            return f"{job['class']} ({job['bias_ulp']:+.2f}, max {job['max_ulp']:.3g})"
        return f"{job['class']} ({job.get('note', '')})"
    if job["class"] in ("raises", "fp32 raises"):
        return f"{job['class']}: {job['message'][:90]}".replace("|", "/")
    return f"{job['class']} {job.get('signal', '')}".strip()


def summarise(result: dict[str, Any]) -> str:
    """Return the Markdown tables."""
    about = result["machine"]
    lines = [
        f"MXNet {about['mxnet']}, {about['cpu']}, OMP_NUM_THREADS={about['omp_threads']}.",
        "Error: class (bias in ulp, largest error in ulp). Times in µs, FP32 -> BF16 (ratio); "
        "`after conv` includes layout changes, fusion off.",
        "",
        "| case | plain input | after a convolution | plain time | time after conv |",
        "|---|---|---|---|---|",
    ]
    lines += [single_row(case) for case in result["cases"] if not case["fused"]]
    lines += [
        "",
        "| chain | runs as (BF16) | BF16 fused | BF16 unfused | FP32 fused | fused time | unfused time |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [fused_row(case) for case in result["cases"] if case["fused"]]
    return "\n".join(lines) + "\n"


def single_row(case: dict[str, Any]) -> str:
    """Return the table row of a single operator."""
    checks = [job for job in case["jobs"] if job["job"] == "check"]
    plain = worst(job for job in checks if job["feed"] == "plain")
    fed = worst(job for job in checks if job["feed"] != "plain")
    times, after = [], []
    for job in case["jobs"]:
        if job["job"] == "time" and "us" in job:
            us = job["us"]
            times.append(f"{us['float32 plain']:.0f} -> {us['bfloat16 plain']:.0f} ({job['ratio']:.2f})")
            if "after_conv_us" in job:
                after.append("{float32:.0f} -> {bfloat16:.0f}".format(**job["after_conv_us"]))
        elif job["job"] == "time":
            times.append(job["class"])
    return (
        f"| {case['name']} | {describe(plain)} | {describe(fed)} | {'; '.join(times)} | {'; '.join(after)} |"
    )


def fused_row(case: dict[str, Any]) -> str:
    """Return the table row of a chain."""
    checks = [job for job in case["jobs"] if job["job"] == "check"]
    low = worst(checks)
    unfused = worst(job["unfused"] for job in checks if "unfused" in job)
    fp32 = max(
        (job["fp32_fused"] for job in checks if "fp32_fused" in job),
        key=lambda part: part.get("rel_l2", 9.0),
        default={"class": "-"},
    )
    fp32_text = f"{fp32['rel_l2']:.0e}" if "rel_l2" in fp32 else describe(fp32)
    runs = "; ".join(part.replace("_sg_mkldnn_", "") for part in low.get("executed", []))
    low_text, unfused_text = (f"{describe(part)} {part.get('rel_l2', '')}" for part in (low, unfused))
    times, slow = [], []
    for job in case["jobs"]:
        if job["job"] == "time" and "us" in job:
            us = job["us"]
            times.append(f"{us['float32 MKLDNN']:.0f} -> {us['bfloat16 MKLDNN']:.0f} ({job['ratio']:.2f})")
            slow.append(f"{us['float32 NONE']:.0f} -> {us['bfloat16 NONE']:.0f}")
    row = (case["name"][7:], runs, low_text, unfused_text, fp32_text, "; ".join(times), "; ".join(slow))
    return "| " + " | ".join(row) + " |"


def save(path: Path, text: str) -> None:
    """Write through a temporary file, so that an interrupted run leaves the old result whole."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], epilog="See the file's docstring for the method."
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("cpu-bf16.json"), help="result JSON (default: %(default)s)"
    )
    parser.add_argument("--summary", type=Path, help="write the Markdown tables here too")
    parser.add_argument(
        "--only", metavar="GLOB", action="append", help="run the cases whose name matches; may be repeated"
    )
    parser.add_argument(
        "--merge", action="store_true", help="keep the other cases that --output already holds"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the cases and stop")
    parser.add_argument(
        "--threads", type=int, default=1, help="OMP_NUM_THREADS of the workers (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=9, help="alternating timing rounds (default: %(default)s)"
    )
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds a worker may take (default: %(default)s)"
    )
    parser.add_argument("--no-heap-check", action="store_true", help="run without glibc's heap check")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--lines", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    arguments = parse_arguments(argv)
    if arguments.worker is not None:
        return work(arguments.worker, arguments.lines, arguments.start, arguments.rounds)
    cases = [
        case
        for case in all_cases()
        if not arguments.only or any(fnmatch.fnmatchcase(case.name, glob) for glob in arguments.only)
    ]
    if arguments.list:
        print("\n".join(case.name for case in cases))
        return 0
    if not cases:
        print("no case matches --only; see --list", file=sys.stderr)
        return 2
    environment = worker_environment(arguments.threads, not arguments.no_heap_check)
    measured: dict[str, Any] = {}
    if arguments.merge and arguments.output.exists():
        old = json.loads(arguments.output.read_text(encoding="utf-8"))
        measured = {case["name"]: case for case in old["cases"]}
    about = machine(arguments)
    for number, case in enumerate(cases, 1):
        started = time.monotonic()
        measured[case.name] = run_case(case, arguments, environment)
        checks = [job for job in measured[case.name]["jobs"] if job["job"] == "check"]
        took = time.monotonic() - started
        print(
            f"[{number}/{len(cases)}] {case.name}: {describe(worst(checks))} ({took:.1f} s)",
            file=sys.stderr,
            flush=True,
        )
        order = [known.name for known in all_cases() if known.name in measured]
        result = {"machine": about, "cases": [measured[name] for name in order]}
        save(arguments.output, json.dumps(result, indent=1) + "\n")
    if arguments.summary is not None:
        save(arguments.summary, summarise(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
