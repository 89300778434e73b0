"""Networks for faces, all with PReLU: ArcFace's ResNet, MobileFaceNet, and two stages of MTCNN."""

from __future__ import annotations

from typing import Any, Sequence

import mxnet as mx

__all__ = ["arcface", "mobile_face_net", "mtcnn_output", "mtcnn_proposal", "mtcnn_refinement"]


def arcface(*, units: Sequence[int] = (3, 4, 6, 3), embedding: int = 512) -> Any:
    """Return a residual network for images of 112 by 112 pixels, with values from 0 to 255.

    References
    ----------
    Deng et al., "ArcFace: Additive Angular Margin Loss for Deep Face Recognition", CVPR 2019,
    arXiv:1801.07698; its ResNet is the one with 34 layers.
    """
    x = (mx.sym.var("data") - 127.5) * 0.0078125
    x = _prelu(_norm(_conv(x, 64, 3, 1, 1, "conv0"), "bn0"), "relu0")
    for stage, (count, channels) in enumerate(zip(units, (64, 128, 256, 512)), start=1):
        for number in range(count):
            x = _residual_unit(x, channels, 1 if number else 2, f"stage{stage}_unit{number + 1}")
    x = mx.sym.Dropout(_norm(x, "bn1"), p=0.4, name="dropout")
    x = mx.sym.FullyConnected(x, num_hidden=embedding, name="pre_fc1")
    return mx.sym.BatchNorm(x, fix_gamma=True, eps=2e-5, name="fc1")


def _residual_unit(x: Any, channels: int, stride: int, name: str) -> Any:
    branch = _norm(x, f"{name}_bn1")
    branch = _prelu(_norm(_conv(branch, channels, 3, 1, 1, f"{name}_conv1"), f"{name}_bn2"), f"{name}_relu1")
    branch = _norm(_conv(branch, channels, 3, stride, 1, f"{name}_conv2"), f"{name}_bn3")
    if stride > 1:
        x = _norm(_conv(x, channels, 1, stride, 0, f"{name}_conv1sc"), f"{name}_sc")
    return branch + x


def mobile_face_net(*, embedding: int = 512) -> Any:
    """Return a network of inverted residuals for images of 112 by 112 pixels.

    References
    ----------
    Chen et al., "MobileFaceNets: Efficient CNNs for Accurate Real-Time Face Verification on Mobile Devices",
    2018, arXiv:1804.07573.
    """
    x = (mx.sym.var("data") - 127.5) * 0.0078125
    x = _rectified(x, 64, 3, 2, 1, "conv1")
    x = _rectified(x, 64, 3, 1, 1, "conv2_dw", groups=64)
    size = 64
    stages = ((128, 64, 2, 5), (256, 128, 2, 1), (256, 128, 1, 6), (512, 128, 2, 1), (256, 128, 1, 2))
    for stage, (wide, channels, stride, count) in enumerate(stages, start=3):
        for number in range(count):
            name = f"stage{stage}_unit{number + 1}"
            branch = _rectified(x, wide, 1, 1, 0, f"{name}_expand")
            own_stride = 1 if number else stride
            branch = _rectified(branch, wide, 3, own_stride, 1, f"{name}_dw", groups=wide)
            branch = _norm(_conv(branch, channels, 1, 1, 0, f"{name}_project"), f"{name}_project_bn")
            x = branch + x if own_stride == 1 and size == channels else branch
            size = channels
    x = _rectified(x, 512, 1, 1, 0, "conv6_sep")
    x = _norm(_conv(x, 512, 7, 1, 0, "conv6_dw7_7", groups=512), "conv6_dw7_7_bn")
    # Without it the layer's result keeps oneDNN's order, and reading it in BatchNorm ends MXNet 1.9.1.
    x = mx.sym.Flatten(x, name="flatten")
    x = mx.sym.FullyConnected(x, num_hidden=embedding, name="pre_fc1")
    return mx.sym.BatchNorm(x, fix_gamma=True, eps=2e-5, name="fc1")


def mtcnn_proposal() -> Any:
    """Return MTCNN's first stage, which looks for faces everywhere in an image of any size.

    References
    ----------
    Zhang et al., "Joint Face Detection and Alignment using Multi-task Cascaded Convolutional Networks", 2016,
    arXiv:1604.02878.
    """
    x = _prelu(_biased(mx.sym.var("data"), 10, 3, "conv1"), "prelu1")
    x = _pooled(x, 2, "pool1")
    x = _prelu(_biased(x, 16, 3, "conv2"), "prelu2")
    x = _prelu(_biased(x, 32, 3, "conv3"), "prelu3")
    scores = mx.sym.softmax(_biased(x, 2, 1, "conv4_1"), axis=1, name="prob1")
    return mx.sym.Group([scores, _biased(x, 4, 1, "conv4_2")])


def mtcnn_refinement() -> Any:
    """Return MTCNN's second stage, which judges cuts of 24 by 24 pixels (see :func:`mtcnn_proposal`)."""
    x = mx.sym.var("data")
    for number, (channels, kernel, pool) in enumerate(((28, 3, 3), (48, 3, 3), (64, 2, 0)), start=1):
        x = _prelu(_biased(x, channels, kernel, f"conv{number}"), f"prelu{number}")
        if pool:
            x = _pooled(x, pool, f"pool{number}")
    x = _prelu(mx.sym.FullyConnected(x, num_hidden=128, name="conv4"), "prelu4")
    scores = mx.sym.softmax(mx.sym.FullyConnected(x, num_hidden=2, name="conv5_1"), name="prob1")
    return mx.sym.Group([scores, mx.sym.FullyConnected(x, num_hidden=4, name="conv5_2")])


def mtcnn_output() -> Any:
    """Return MTCNN's last stage, which judges cuts of 48 by 48 pixels (see :func:`mtcnn_proposal`)."""
    x = mx.sym.var("data")
    for number, (channels, kernel, pool) in enumerate(((32, 3, 3), (64, 3, 3), (64, 3, 2)), start=1):
        x = _prelu(_biased(x, channels, kernel, f"conv{number}"), f"prelu{number}")
        x = _pooled(x, pool, f"pool{number}")
    x = _prelu(_biased(x, 128, 2, "conv4"), "prelu4")
    x = _prelu(mx.sym.FullyConnected(x, num_hidden=256, name="conv5"), "prelu5")
    scores = mx.sym.softmax(mx.sym.FullyConnected(x, num_hidden=2, name="conv6_1"), name="prob1")
    boxes = mx.sym.FullyConnected(x, num_hidden=4, name="conv6_2")
    return mx.sym.Group([scores, boxes, mx.sym.FullyConnected(x, num_hidden=10, name="conv6_3")])


def _pooled(x: Any, side: int, name: str) -> Any:
    """Return the largest of each window, two places apart; windows may hang over the edge, as in Caffe."""
    return mx.sym.Pooling(
        x, pool_type="max", kernel=(side, side), stride=(2, 2), pooling_convention="full", name=name
    )


def _rectified(
    x: Any, channels: int, kernel: int, stride: int, padding: int, name: str, *, groups: int = 1
) -> Any:
    x = _conv(x, channels, kernel, stride, padding, name, groups=groups)
    return _prelu(_norm(x, f"{name}_bn"), f"{name}_relu")


def _conv(
    x: Any, channels: int, kernel: int, stride: int, padding: int, name: str, *, groups: int = 1
) -> Any:
    return mx.sym.Convolution(
        x,
        num_filter=channels,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        pad=(padding, padding),
        num_group=groups,
        no_bias=True,
        name=name,
    )


def _biased(x: Any, channels: int, kernel: int, name: str) -> Any:
    return mx.sym.Convolution(x, num_filter=channels, kernel=(kernel, kernel), name=name)


def _norm(x: Any, name: str) -> Any:
    return mx.sym.BatchNorm(x, fix_gamma=False, eps=2e-5, momentum=0.9, name=name)


def _prelu(x: Any, name: str) -> Any:
    return mx.sym.LeakyReLU(x, act_type="prelu", name=name)
