"""Layers: convolutions, deconvolutions, fully connected and recurrent ones."""

from __future__ import annotations

from typing import Any, Iterator

from mxamp.probe.case import (
    CHECK_DIMS,
    X2,
    X3,
    X5,
    Case,
    Dims,
    Input,
    X,
    convolution,
    deconvolution,
    dense,
    of,
    single,
    weight,
)


def layer_cases() -> Iterator[Case]:
    """Yield layers with weights."""
    yield single("Convolution 1x1", X, convolution((1, 1)))
    yield single("Convolution 1x1 bias", X, convolution((1, 1), bias=True))
    yield single("Convolution 1x1 stride 2", X, convolution((1, 1), stride=(2, 2)))
    yield single("Convolution 3x3", X, convolution((3, 3)))
    yield single("Convolution 3x3 bias", X, convolution((3, 3), bias=True))
    yield single("Convolution 3x3 stride 2", X, convolution((3, 3), stride=(2, 2)))
    yield single("Convolution 3x3 dilated 2", X, convolution((3, 3), dilate=(2, 2), pad=(2, 2)))
    yield single("Convolution 1x7", X, convolution((1, 7)))
    for side, stride, timing in (
        (7, 2, Dims(1, 64, 224)),
        (3, 2, Dims(1, 32, 224)),
        (3, 1, Dims(1, 64, 224)),
    ):
        name = f"Convolution {side}x{side} stem stride {stride}"
        stem = convolution((side, side), channels=3, stride=(stride, stride))
        yield single(name, of("n", 3, "s", "s"), stem, timing=(timing,))
    yield single("Convolution depthwise 1x1 bias", X, convolution((1, 1), groups="c", bias=True))
    yield single("Convolution depthwise 3x3", X, convolution((3, 3), groups="c"))
    # oneDNN's bfloat16 kernels want channels in blocks of 16 (depthwise) or an even number of input channels;
    # without them it falls back to a plain one, which is right but slower than FP32.
    eights: dict[str, Any] = {
        "check": (Dims(1, 24, 14), Dims(2, 40, 14)),
        "timing": (Dims(1, 24, 28), Dims(1, 72, 28)),
    }
    yield single("Convolution depthwise 3x3, 8 mod 16 channels", X, convolution((3, 3), groups="c"), **eights)
    yield single("Convolution depthwise 5x5, 8 mod 16 channels", X, convolution((5, 5), groups="c"), **eights)
    odd: dict[str, Any] = {
        "check": (Dims(1, 17, 14), Dims(2, 33, 14)),
        "timing": (Dims(1, 17, 56), Dims(1, 65, 56)),
    }
    yield single("Convolution 3x3, odd channels", X, convolution((3, 3)), **odd)
    yield single("Convolution 1x1, odd channels", X, convolution((1, 1)), **odd)
    yield single("Convolution depthwise 5x5 stride 2", X, convolution((5, 5), groups="c", stride=(2, 2)))
    wide: dict[str, Any] = {
        "check": (Dims(1, 64, 14), Dims(2, 128, 14)),
        "timing": (Dims(1, 128, 56), Dims(1, 256, 56)),
    }
    yield single("Convolution 3x3 groups 32", X, convolution((3, 3), groups=32), **wide)
    yield single("Convolution 3x3 groups 2", X, convolution((3, 3), groups=2), **wide)
    yield single("Convolution 1-D 3", X3, convolution((3,)), timing=(Dims(1, 256, 512),))
    volume: dict[str, Any] = {"timing": (Dims(1, 64, 28),)}
    yield single("Convolution 3-D 3x3x3", X5, convolution((3, 3, 3), bias=True), **volume)
    yield single("Convolution 3-D 1x3x3", X5, convolution((1, 3, 3)), **volume)
    yield single("Convolution 3-D 3x1x1", X5, convolution((3, 1, 1)), **volume)
    up2: dict[str, Any] = {"stride": (2, 2)}
    small: dict[str, Any] = {"timing": (Dims(1, 64, 28), Dims(1, 256, 14))}
    yield single("Deconvolution 4x4 stride 2", X, deconvolution((4, 4), pad=(1, 1), **up2), **small)
    yield single(
        "Deconvolution 4x4 stride 2 bias", X, deconvolution((4, 4), bias=True, pad=(1, 1), **up2), **small
    )
    yield single("Deconvolution 2x2 stride 2", X, deconvolution((2, 2), **up2), **small)
    yield single("Deconvolution 2x2 stride 2 bias", X, deconvolution((2, 2), bias=True, **up2), **small)
    yield single(
        "Deconvolution 3x3 stride 2 adj 1", X, deconvolution((3, 3), pad=(1, 1), adj=(1, 1), **up2), **small
    )
    yield single("Deconvolution 4x4 groups 4", X, deconvolution((4, 4), pad=(1, 1), groups=4, **up2), **small)
    yield single(
        "Deconvolution 1-D", X3, deconvolution((4,), pad=(1,), stride=(2,)), timing=(Dims(1, 64, 128),)
    )
    yield single(
        "Deconvolution 3-D", X5, deconvolution((2, 2, 2), stride=(2, 2, 2)), timing=(Dims(1, 32, 14),)
    )
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
    yield from recurrent_cases()


def recurrent_cases() -> Iterator[Case]:
    """Yield recurrent layers."""
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
