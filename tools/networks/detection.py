"""A detector of symbols: Faster R-CNN as it was written before Gluon, with ``add_n`` for residual sums."""

from __future__ import annotations

from typing import Any, Sequence

import mxnet as mx

__all__ = ["faster_rcnn"]

_SCALES, _RATIOS = (8, 16, 32), (0.5, 1, 2)


def faster_rcnn(*, units: Sequence[int] = (2, 2, 2, 2), classes: int = 21, candidates: int = 64) -> Any:
    """Return a detector over the fourth of a pre-activation ResNet's five sizes, for images of batch one.

    References
    ----------
    Ren et al., "Faster R-CNN: Towards Real-Time Object Detection with Region Proposal Networks", 2015,
    arXiv:1506.01497; He et al., "Identity Mappings in Deep Residual Networks", 2016, arXiv:1603.05027.
    """
    x = _features(mx.sym.var("data"), units)
    anchors = len(_SCALES) * len(_RATIOS)
    searched = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=512, name="rpn_conv_3x3")
    searched = mx.sym.Activation(searched, act_type="relu", name="rpn_relu")
    scores = mx.sym.Convolution(searched, kernel=(1, 1), num_filter=2 * anchors, name="rpn_cls_score")
    shifts = mx.sym.Convolution(searched, kernel=(1, 1), num_filter=4 * anchors, name="rpn_bbox_pred")
    scores = mx.sym.Reshape(scores, shape=(0, 2, -1, 0), name="rpn_cls_score_reshape")
    scores = mx.sym.SoftmaxActivation(scores, mode="channel", name="rpn_cls_prob")
    scores = mx.sym.Reshape(scores, shape=(0, 2 * anchors, -1, 0), name="rpn_cls_prob_reshape")
    places = mx.sym.contrib.Proposal(
        cls_prob=scores,
        bbox_pred=shifts,
        im_info=mx.sym.var("im_info"),
        feature_stride=16,
        scales=_SCALES,
        ratios=_RATIOS,
        rpn_pre_nms_top_n=600,
        rpn_post_nms_top_n=candidates,
        threshold=0.7,
        rpn_min_size=16,
        name="rois",
    )
    x = mx.sym.ROIPooling(x, places, pooled_size=(14, 14), spatial_scale=1 / 16, name="roi_pool5")
    x = _stage(x, units[3], 512, 2, 4)
    x = mx.sym.Activation(_norm(x, "bn1"), act_type="relu", name="relu1")
    x = mx.sym.Pooling(x, global_pool=True, kernel=(7, 7), pool_type="avg", name="pool1")
    chosen = mx.sym.softmax(mx.sym.FullyConnected(x, num_hidden=classes, name="cls_score"), name="cls_prob")
    boxes = mx.sym.FullyConnected(x, num_hidden=4 * classes, name="bbox_pred")
    return mx.sym.Group([places, chosen, boxes])


def _features(x: Any, units: Sequence[int]) -> Any:
    x = mx.sym.BatchNorm(x, fix_gamma=True, eps=2e-5, use_global_stats=True, name="bn_data")
    x = mx.sym.Convolution(
        x, num_filter=64, kernel=(7, 7), stride=(2, 2), pad=(3, 3), no_bias=True, name="conv0"
    )
    x = mx.sym.Activation(_norm(x, "bn0"), act_type="relu", name="relu0")
    x = mx.sym.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max", name="pool0")
    for number, (count, channels) in enumerate(zip(units[:3], (64, 128, 256)), start=1):
        x = _stage(x, count, channels, 1 if number == 1 else 2, number)
    return x


def _stage(x: Any, count: int, channels: int, stride: int, number: int) -> Any:
    for unit in range(count):
        name = f"stage{number}_unit{unit + 1}"
        normed = mx.sym.Activation(_norm(x, f"{name}_bn1"), act_type="relu", name=f"{name}_relu1")
        own_stride = 1 if unit else stride
        branch = _conv(normed, channels, 1, 1, f"{name}_conv1")
        branch = mx.sym.Activation(_norm(branch, f"{name}_bn2"), act_type="relu", name=f"{name}_relu2")
        branch = _conv(branch, channels, 3, own_stride, f"{name}_conv2")
        branch = mx.sym.Activation(_norm(branch, f"{name}_bn3"), act_type="relu", name=f"{name}_relu3")
        branch = _conv(branch, 4 * channels, 1, 1, f"{name}_conv3")
        shortcut = x if unit else _conv(normed, 4 * channels, 1, own_stride, f"{name}_sc")
        x = mx.sym.add_n(branch, shortcut, name=f"{name}_plus")
    return x


def _conv(x: Any, channels: int, kernel: int, stride: int, name: str) -> Any:
    return mx.sym.Convolution(
        x,
        num_filter=channels,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        pad=(kernel // 2, kernel // 2),
        no_bias=True,
        name=name,
    )


def _norm(x: Any, name: str) -> Any:
    return mx.sym.BatchNorm(x, fix_gamma=False, eps=2e-5, use_global_stats=True, name=name)
