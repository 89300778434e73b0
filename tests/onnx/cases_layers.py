"""Layers, normalisation, activations, resampling."""

from __future__ import annotations

from typing import Iterator

import numpy as np

from tests.onnx.operators import Case, case

__all__ = ["layer_cases"]

X = (2, 6, 9, 11)
PIXELS = np.random.default_rng(8).integers(0, 256, (5, 6, 3)).astype(np.uint8)


def positive(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).uniform(0.5, 1.5, shape).astype(np.float32)


def layer_cases() -> Iterator[Case]:
    yield from convolution_cases()
    yield from pooling_cases()
    yield from normalization_cases()
    yield from activation_cases()
    yield from resampling_cases()


def convolution_cases() -> Iterator[Case]:
    yield case("Convolution", X, (8, 6, 3, 3), (8,), parameters=(1, 2), kernel="(3, 3)", num_filter=8)
    yield case(
        *("Convolution", X, (8, 3, 3, 2)),
        parameters=(1,),
        kernel="(3, 2)",
        num_filter=8,
        no_bias=True,
        num_group=2,
        stride="(2, 1)",
        pad="(1, 2)",
        dilate="(2, 1)",
    )
    yield case("Convolution", (2, 3, 20), (4, 3, 3), (4,), kernel="(3,)", num_filter=4, pad="(1,)")
    yield case(
        "Convolution",
        (1, 3, 5, 6, 7),
        (4, 3, 3, 3, 3),
        (4,),
        kernel="(3, 3, 3)",
        num_filter=4,
        pad="(1, 1, 1)",
    )
    yield case(
        *("Deconvolution", X, (6, 4, 4, 4)),
        kernel="(4, 4)",
        num_filter=4,
        stride="(2, 2)",
        pad="(1, 1)",
        no_bias=True,
    )
    yield case(
        *("Deconvolution", X, (6, 2, 3, 3), (4,)),
        kernel="(3, 3)",
        num_filter=4,
        stride="(2, 2)",
        num_group=2,
        no_bias=False,
        adj="(1, 1)",
        pad="(1, 1)",
    )
    yield case("FullyConnected", (3, 4, 5), (7, 20), (7,), num_hidden=7)
    yield case("FullyConnected", (3, 4, 5), (7, 5), (7,), num_hidden=7, flatten=False)
    yield case("FullyConnected", (3, 5), (7, 5), num_hidden=7, no_bias=True, flatten=False)
    yield from _correlations()
    yield from _columns()
    yield case(
        *("_contrib_DeformableConvolution", X, (2, 18, 9, 11), (8, 6, 3, 3), (8,)),
        kernel="(3, 3)",
        num_filter=8,
        pad="(1, 1)",
        tolerance=1e-5,
    )
    yield case(
        *("_contrib_ModulatedDeformableConvolution", X, (2, 36, 9, 11), (2, 18, 9, 11), (8, 6, 3, 3), (8,)),
        kernel="(3, 3)",
        num_filter=8,
        pad="(1, 1)",
        num_deformable_group=2,
        tolerance=1e-5,
    )


def pooling_cases() -> Iterator[Case]:
    yield case("Pooling", X, kernel="(3, 2)")
    for kind in ("max", "avg", "sum"):
        yield case("Pooling", X, pool_type=kind, kernel="(3, 2)")
        yield case("Pooling", X, pool_type=kind, kernel="(3, 3)", stride="(2, 2)", pad="(1, 1)")
        yield case("Pooling", X, pool_type=kind, global_pool=True, kernel="(1, 1)")
    for kind in ("max", "avg"):
        yield case(
            *("Pooling", X), pool_type=kind, kernel="(3, 3)", stride="(2, 2)", pooling_convention="full"
        )
        yield case(
            *("Pooling", (1, 2, 8, 8)),
            pool_type=kind,
            kernel="(2, 2)",
            stride="(2, 2)",
            pooling_convention="full",
            count_include_pad=False,
        )
    yield case(
        *("Pooling", X),
        pool_type="avg",
        kernel="(3, 3)",
        stride="(2, 2)",
        pad="(1, 1)",
        count_include_pad=False,
    )
    for kind in ("max", "avg"):
        last = {"layout": "NHWC", "pool_type": kind}
        yield case("Pooling", (2, 8, 9, 3), kernel="(3, 3)", stride="(2, 2)", pad="(1, 1)", **last)
        yield case("Pooling", (2, 8, 9, 3), kernel="(1, 1)", global_pool=True, **last)
    for power in (1, 2, 3):
        yield case("Pooling", X, pool_type="lp", p_value=power, kernel="(3, 2)", pad="(1, 1)")
        yield case("Pooling", X, pool_type="lp", p_value=power, kernel="(1, 1)", global_pool=True)
    for kind, counted in (("max", True), ("avg", True), ("avg", False), ("sum", True), ("lp", True)):
        full = {"pool_type": kind, "pooling_convention": "full", "count_include_pad": counted, "p_value": 2}
        for kernel, stride, pad in (
            *(("(4, 2)", "(3, 3)", "(2, 1)"), ("(2, 3)", "(3, 1)", "(1, 0)")),  # cut off; behind the padding
            *(("(1, 1)", "(2, 2)", "(0, 0)"), ("(2, 1)", "(4, 3)", "(1, 0)")),
        ):
            yield case("Pooling", (2, 3, 4, 7), kernel=kernel, stride=stride, pad=pad, **full)
        if kind != "avg":  # which is NaN over volumes, of nothing
            yield case(
                "Pooling", (1, 2, 3, 4, 5), kernel="(3, 2, 1)", stride="(2, 3, 2)", pad="(1, 1, 0)", **full
            )
    yield case("Pooling", (2, 3, 12), pool_type="max", kernel="(3,)", stride="(2,)")
    yield case("Pooling", (1, 2, 6, 7, 8), pool_type="avg", kernel="(2, 3, 2)", stride="(2, 2, 2)")
    yield case("_contrib_AdaptiveAvgPooling2D", X, output_size="(1,)")
    yield case("_contrib_AdaptiveAvgPooling2D", X, output_size="(4, 3)")
    yield case("_contrib_AdaptiveAvgPooling2D", X, output_size="5")


def normalization_cases() -> Iterator[Case]:
    yield case("LRN", X, nsize=3)
    yield case("LRN", X, nsize=5, alpha=1, beta=1, knorm=1)
    yield case("moments", X, axes="(2, 3)", outputs=2)
    yield case("moments", X, axes="(1,)", keepdims=True, outputs=2)
    yield case("_npi_var", X, axis="(2, 3)", numpy=True)
    yield case("_npi_std", X, axis=None, keepdims=True, numpy=True)
    yield case("LayerNorm", (2, 3, 8), positive(8), (8,), output_mean_var=True, outputs=3)
    yield case("LayerNorm", X, positive(6), (6,), axis=1, output_mean_var=True, outputs=3)
    statistics = ((6,), (6,), (6,), positive(6))
    for op in ("BatchNorm", "_contrib_SyncBatchNorm"):
        more = {"key": "k"} if "Sync" in op else {}
        for attrs in ({}, {"fix_gamma": False, "eps": 1e-5}):
            yield case(op, X, *statistics, parameters=(1, 2, 3, 4), **attrs, **more)
    last = ((11,), (11,), (11,), positive(11))
    yield case("BatchNorm", X, *last, parameters=(1, 2, 3, 4), axis=-1, fix_gamma=False)
    yield case("LayerNorm", X, (11,), (11,))
    yield case("LayerNorm", X, (6,), (6,), axis=1, eps=1e-3)
    yield case("InstanceNorm", X, (6,), (6,), tolerance=3e-6)
    yield case("GroupNorm", X, (3,), (3,), num_groups=3, tolerance=3e-6)
    for mode in ("instance", "channel", "spatial"):
        yield case("L2Normalization", X, mode=mode)
    yield case("LRN", X, nsize=5, alpha=1e-2, beta=0.6, knorm=1.5)


def activation_cases() -> Iterator[Case]:
    for name in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
        yield case("Activation", X, act_type=name)
    for name in ("relu", "sigmoid", "softsign", "hard_sigmoid"):
        yield case(name, X)
    yield case("hard_sigmoid", X, alpha=0.3, beta=0.4)
    for name in ("leaky", "elu", "selu", "gelu", "rrelu"):
        yield case("LeakyReLU", X, act_type=name)
    yield case("LeakyReLU", X, act_type="leaky", slope=0.1)
    yield case("LeakyReLU", X, positive(6), parameters=(1,), act_type="prelu")
    yield case("LeakyReLU", (3, 6), positive(6), parameters=(1,), act_type="prelu")
    yield case("LeakyReLU", X, positive(1), parameters=(1,), act_type="prelu")
    for op in ("softmax", "log_softmax", "softmin"):
        yield case(op, X)
        yield case(op, X, axis=1, temperature=2.5)
    lengths = np.array([[3], [5]], np.int32).repeat(4, 1)
    yield case("softmax", (2, 4, 5), lengths, use_length=True, axis=-1)
    yield case("SoftmaxActivation", (3, 6))
    yield case("SoftmaxActivation", X, mode="channel")
    yield case("Dropout", X, p=0.5)
    for op in ("BlockGrad", "_copy", "make_loss", "MakeLoss"):
        yield case(op, X)
    for op in ("LinearRegressionOutput", "MAERegressionOutput", "LogisticRegressionOutput"):
        yield case(op, (3, 6), (3, 6))
    yield case("SVMOutput", (3, 6), (3,))
    yield case("SoftmaxOutput", (3, 6), (3,))
    yield case("SoftmaxOutput", (3, 6, 4), (3, 4), multi_output=True)
    yield case("SoftmaxOutput", (3, 6, 4), (3, 6), preserve_shape=True)
    yield case("_image_to_tensor", PIXELS)
    yield case("_image_normalize", (3, 5, 6), mean="(0.5, 0.4, 0.3)", std="(0.2, 0.3, 0.4)")


def resampling_cases() -> Iterator[Case]:
    grid = np.random.default_rng(3).uniform(-1.3, 1.3, (2, 2, 4, 5)).astype(np.float32)
    turns = np.array([[0.8, 0.3, 0.1, -0.4, 1.1, 0], [1, 0, 0, 0, 1, 0.5]], np.float32)
    yield case("BilinearSampler", X, grid)
    yield case("GridGenerator", turns, transform_type="affine", target_shape="(4, 5)")
    yield case("GridGenerator", (2, 2, 4, 5), transform_type="warp")
    yield case(
        *("SpatialTransformer", X, turns),
        transform_type="affine",
        sampler_type="bilinear",
        target_shape="(7, 6)",
        tolerance=1e-5,
    )
    resize = "_contrib_BilinearResize2D"
    for align in (True, False):
        yield case(resize, X, height=17, width=5, align_corners=align, tolerance=5e-6)
        yield case(resize, X, height=18, width=22, align_corners=align, tolerance=5e-6)
    yield case(resize, X, scale_height=2, scale_width=1.5, tolerance=5e-6)
    for mode in ("odd_scale", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up"):
        yield case(resize, X, scale_height=2, scale_width=2, mode=mode, tolerance=5e-6)
    yield case(resize, X, (2, 3, 13, 14), mode="like", tolerance=5e-6)
    yield case("UpSampling", X, scale=2, sample_type="nearest", num_args=1, tolerance=0)
    yield case(
        *("UpSampling", (1, 2, 8, 8), (1, 3, 4, 4)), scale=2, sample_type="nearest", num_args=2, tolerance=0
    )
    yield case(
        *("UpSampling", (1, 3, 5, 6), (3, 1, 4, 4)), scale=2, sample_type="bilinear", num_filter=3, num_args=2
    )
    for mode in ("constant", "reflect", "edge"):
        yield case("Pad", X, mode=mode, pad_width="(0, 0, 0, 0, 1, 2, 3, 4)", constant_value=1.5, tolerance=0)
    yield case("Crop", X, h_w="(4, 5)", offset="(2, 3)", num_args=1, tolerance=0)
    yield case("Crop", X, (2, 6, 5, 7), center_crop=True, num_args=2, tolerance=0)


def _columns() -> Iterator[Case]:
    window = {"kernel": "(3, 2)", "stride": "(2, 1)", "dilate": "(1, 2)", "pad": "(1, 0)"}
    yield case("im2col", (2, 3, 9, 10), kernel="(3, 3)", pad="(1, 1)", tolerance=0)
    yield case("im2col", (2, 3, 9, 10), **window, tolerance=0)
    yield case("col2im", (2, 27, 90), kernel="(3, 3)", pad="(1, 1)", output_size="(9, 10)")
    yield case("col2im", (2, 18, 40), output_size="(9, 10)", **window)


def _correlations() -> Iterator[Case]:
    images = (2, 3, 9, 10), (2, 3, 9, 10)
    yield case("Correlation", *images, kernel_size=1, max_displacement=2, pad_size=2)
    yield case("Correlation", *images, kernel_size=3, max_displacement=3, pad_size=4, stride2=2)
    yield case("Correlation", *images, kernel_size=3, max_displacement=2, pad_size=1, stride1=2)
    yield case("Correlation", *images, max_displacement=1, pad_size=1, is_multiply=False)
