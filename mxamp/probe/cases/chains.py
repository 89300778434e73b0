"""Chains that the backend fuses, or might: what it swallows is read from what it then runs."""

from __future__ import annotations

from typing import Any, Iterator

from mxamp.probe.case import (
    BATCH_NORM,
    CLIP6,
    NORM_PARAMS,
    PER_ENTRY,
    RELU,
    X2,
    X3,
    X5,
    Case,
    Dims,
    Input,
    Ref,
    X,
    convolution,
    count,
    deconvolution,
    dense,
    fused,
    of,
    step,
    weight,
)

_CHECK = (Dims(1, 32, 14), Dims(2, 24, 14))


def layer_chains() -> Iterator[Case]:
    """Yield chains behind convolutions."""
    conv3, conv1 = convolution((3, 3)), convolution((1, 1))
    add = step("elemwise_add", Input(X))
    heads = (("Conv3x3", conv3), ("Conv1x1", conv1), ("Depthwise3x3", convolution((3, 3), groups="c")))
    for label, first in heads:
        yield _chain(f"{label}+relu", first, RELU)
        yield _chain(f"{label}+BN", first, BATCH_NORM)
        yield _chain(f"{label}+BN+relu", first, BATCH_NORM, RELU)
        yield _chain(f"{label}+clip6", first, CLIP6)
        yield _chain(f"{label}+BN+clip6", first, BATCH_NORM, CLIP6)
    yield _chain("Conv3x3 bias+BN+relu", convolution((3, 3), bias=True), BATCH_NORM, RELU)
    yield _chain("Conv3x3 bias+relu", convolution((3, 3), bias=True), RELU)
    wide: dict[str, Any] = {"check": (Dims(1, 64, 14), Dims(2, 128, 14))}
    yield _chain("Conv3x3 groups 32+BN+relu", convolution((3, 3), groups=32), BATCH_NORM, RELU, **wide)
    tails = [(kind, step("Activation", act_type=kind)) for kind in ("sigmoid", "tanh", "softrelu")]
    tails += [
        (kind, step("LeakyReLU", act_type=kind, slope=0.25)) for kind in ("leaky", "elu", "selu", "gelu")
    ]
    tails.append(("prelu", step("LeakyReLU", Input(PER_ENTRY, "weight", "gamma"), act_type="prelu")))
    tails += [(f"{op} operator", step(op)) for op in ("relu", "sigmoid", "tanh", "exp", "square", "abs")]
    for label, tail in tails:
        yield _chain(f"Conv3x3+{label}", conv3, tail)
        yield _chain(f"Conv3x3+BN+{label}", conv3, BATCH_NORM, tail)
        yield _chain(f"Conv3x3+BN+add+{label}", conv3, BATCH_NORM, add, tail)
    yield _chain("Conv3x3+clip -1..1", conv3, step("clip", a_min=-1, a_max=1))
    yield _chain("Conv3x3+BN+clip 0..0.3", conv3, BATCH_NORM, step("clip", a_min=0, a_max=0.3))
    yield _chain("Conv3x3+add", conv3, add)
    yield _chain("Conv3x3+add+relu", conv3, add, RELU)
    yield _chain("Conv3x3+BN+add", conv3, BATCH_NORM, add)
    yield _chain("Conv3x3+BN+add+relu", conv3, BATCH_NORM, add, RELU)
    yield _chain("Conv1x1+BN+add+relu", conv1, BATCH_NORM, add, RELU)
    yield _chain("Conv3x3+add+clip6", conv3, add, CLIP6)
    yield _chain("Conv3x3+BN+add+clip6", conv3, BATCH_NORM, add, CLIP6)
    yield _chain("Conv3x3+BN+relu+add", conv3, BATCH_NORM, RELU, add)
    yield _chain("Depthwise3x3+BN+add", convolution((3, 3), groups="c"), BATCH_NORM, add)
    yield _chain("Conv3x3+BN+broadcast_add", conv3, BATCH_NORM, step("broadcast_add", Input(X)))
    yield _chain("Conv3x3+BN+add_n", conv3, BATCH_NORM, step("add_n", Input(X), num_args=2))
    three, sixth = step("_plus_scalar", scalar=3), step("_div_scalar", scalar=6)
    yield _chain("Conv1x1+BN+hard sigmoid in three", conv1, BATCH_NORM, three, CLIP6, sixth)
    hard_sigmoid = step("hard_sigmoid", alpha=1 / 6, beta=0.5)
    yield _chain("Conv1x1+BN+hard_sigmoid operator", conv1, BATCH_NORM, hard_sigmoid)
    yield _chain("Conv1x1+BN+mul_scalar", conv1, BATCH_NORM, step("_mul_scalar", scalar=0.17))
    # The addend is read again later, so a sum in its place would show.
    block = (conv3, BATCH_NORM, RELU, conv3, BATCH_NORM, step("elemwise_add", Ref(0)), RELU)
    yield _chain("Residual block", *block)
    again = (step("elemwise_add", Ref(0)), step("Concat", Ref(0), dim=1, num_args=2))
    yield _chain("Residual, addend read again", conv3, BATCH_NORM, *again)
    # What somebody else reads must be kept, so it is not fused.
    yield _chain("BN output is also a head", conv3, BATCH_NORM, RELU, extra_heads=(2,))
    yield _chain("Conv read twice", conv3, RELU, step("elemwise_mul", Ref(1)))
    volume: dict[str, Any] = {"first": Input(X5), "check": (Dims(1, 32, 6), Dims(2, 24, 6))}
    yield _chain("Conv 3-D+relu", convolution((3, 3, 3)), RELU, **volume)
    yield _chain("Conv 3-D+BN+relu", convolution((3, 3, 3)), BATCH_NORM, RELU, **volume)
    yield _chain("Conv 3-D+BN+clip6", convolution((3, 3, 3)), BATCH_NORM, CLIP6, **volume)
    residual = step("elemwise_add", Input(X5))
    yield _chain("Conv 3-D+BN+add+relu", convolution((3, 3, 3)), BATCH_NORM, residual, RELU, **volume)
    yield _chain("Conv 1-D+BN+relu", convolution((3,)), BATCH_NORM, RELU, first=Input(X3))
    up2 = deconvolution((4, 4), stride=(2, 2), pad=(1, 1))
    yield _chain("Deconv+BN+relu", up2, BATCH_NORM, RELU)
    yield _chain("Deconv+relu", up2, RELU)
    stem: dict[str, Any] = {"first": Input(of("n", 3, "s", "s")), "feeds": False}
    yield _chain("Stem7x7+BN+relu", convolution((7, 7), channels=3, stride=(2, 2)), BATCH_NORM, RELU, **stem)
    yield _chain("BN+relu", BATCH_NORM, RELU, feeds=False)
    yield _chain("BN+relu+Conv", BATCH_NORM, RELU, conv3, feeds=False)
    norm2 = step(
        "BatchNorm", *(Input(of("2c"), "fp32", part.values) for part in NORM_PARAMS), fix_gamma=False
    )
    join2 = step("Concat", Ref(0), dim=1, num_args=2)
    half = step("Convolution", weight("c", "2c", 1, 1), kernel=(1, 1), num_filter=count("c"), no_bias=True)
    yield _chain("Conv+Concat+BN+relu+Conv", conv3, join2, norm2, RELU, half)


def dense_chains() -> Iterator[Case]:
    """Yield chains behind a FullyConnected."""
    rows: dict[str, Any] = {"first": Input(X2)}
    layer = dense()
    for kind in ("relu", "sigmoid", "tanh", "softrelu"):
        yield _chain(f"FC+{kind}", layer, step("Activation", act_type=kind), **rows)
    for op in ("exp", "square", "sqrt", "abs", "relu", "sigmoid"):
        yield _chain(f"FC+{op} operator", layer, step(op), **rows)
    for kind in ("leaky", "elu", "gelu"):
        yield _chain(f"FC+{kind}", layer, step("LeakyReLU", act_type=kind, slope=0.1), **rows)
    yield _chain("FC+clip6", layer, CLIP6, **rows)
    yield _chain("FC+BN", layer, BATCH_NORM, **rows)
    yield _chain("FC+add", layer, step("elemwise_add", Input(X2)), **rows)
    yield _chain("FC no bias+relu", dense(bias=False), RELU, **rows)
    tokens: dict[str, Any] = {"first": Input(of("n", "s", "c"))}
    yield _chain("FC flatten=False+relu", dense(flatten=False), RELU, **tokens)
    yield _chain("FC flatten=False+gelu", dense(flatten=False), step("LeakyReLU", act_type="gelu"), **tokens)


def _chain(name: str, *steps: Any, **options: Any) -> Case:
    options.setdefault("check", _CHECK)
    return fused(name, *steps, **options)
