"""Reductions, softmax and normalisation."""

from __future__ import annotations

from typing import Any, Iterator

from mxamp.probe.case import (
    BATCH_NORM,
    NORM_PARAMS,
    PER_ENTRY,
    X2,
    X3,
    X5,
    Case,
    Dims,
    Input,
    X,
    of,
    single,
    weight,
)


def reduction_cases() -> Iterator[Case]:
    """Yield reductions, softmax and normalisation."""
    for op in ("sum", "mean", "max", "min"):
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
    yield single("BatchNorm", X, BATCH_NORM)
    yield single("BatchNorm fix_gamma", X, "BatchNorm", *NORM_PARAMS, fix_gamma=True)
    yield single("BatchNorm 5-D", X5, BATCH_NORM, timing=(Dims(1, 64, 28),))
    yield single("BatchNorm 3-D", X3, BATCH_NORM, timing=(Dims(1, 256, 512),))
    yield single("BatchNorm 2-D", X2, BATCH_NORM, timing=(Dims(1, 4096, 1),))
    sync: dict[str, Any] = {"fix_gamma": False, "ndev": 1, "key": "k"}
    yield single("_contrib_SyncBatchNorm", X, "_contrib_SyncBatchNorm", *NORM_PARAMS, **sync)
    affine = (Input(PER_ENTRY, "weight", "gamma"), weight("c"))
    affine_fp32 = NORM_PARAMS[:2]
    tokens: dict[str, Any] = {"timing": (Dims(1, 768, 197),)}
    yield single("LayerNorm", of("n", "s", "c"), "LayerNorm", *affine, axis=-1, **tokens)
    yield single("LayerNorm float32 affine", of("n", "s", "c"), "LayerNorm", *affine_fp32, axis=-1, **tokens)
    yield single("InstanceNorm", X, "InstanceNorm", *affine)
    # MXNet 1.9 keeps one gamma and one beta a group, not a channel.
    per_group = (Input(of(4), "weight", "gamma"), Input(of(4), "weight", "normal"))
    yield single("GroupNorm", X, "GroupNorm", *per_group, num_groups=4)
    yield single("LRN", X, "LRN", nsize=5)
