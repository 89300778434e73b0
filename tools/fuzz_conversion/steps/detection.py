"""Boxes and regions."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from tools.fuzz_conversion.draft import Draft, Value

__all__ = ["STEPS"]


def _corners(draft: Draft, *shape: int, size: float = 5.0) -> NDArray[np.float32]:
    """Draw boxes as corners."""
    first = draft.random.uniform(0, size, (*shape, 2))
    second = first + draft.random.uniform(0.5, size, (*shape, 2))
    return np.concatenate([first, second], axis=-1).astype(np.float32)


def _regions(draft: Draft, x: Value) -> Value:
    count = draft.integer(1, 4)
    name = f"rois{len(draft.nodes)}"

    def draw() -> NDArray[np.float32]:
        numbers = draft.random.integers(0, x.shape[0], (count, 1))
        return np.concatenate([numbers, _corners(draft, count)], axis=1).astype(np.float32)

    return draft.input(name, draw, positions=True)


def prior(draft: Draft) -> Any:
    """Make anchors."""
    return mx.sym.contrib.MultiBoxPrior(draft.pick(ndim=4).sym, sizes=(0.5, 0.25), ratios=(1, 2))


def box_nms(draft: Draft) -> Any:
    """Suppress boxes that overlap, by the scores a layer computes."""
    x = draft.pick(ndim=(2, 3)).sym
    scores = mx.sym.sigmoid(mx.sym.FullyConnected(x, num_hidden=6))
    score = mx.sym.Reshape(scores, shape=(0, 6, 1))
    kind = mx.sym.zeros_like(score)
    boxes = draft.constant(_corners(draft, 1, 6))
    placed = mx.sym.broadcast_like(boxes.sym, score, lhs_axes=(0,), rhs_axes=(0,))
    joined = mx.sym.Concat(kind, score, placed, dim=2)
    return mx.sym.contrib.box_nms(joined, overlap_thresh=0.5, id_index=0, topk=4)


def box_iou(draft: Draft) -> Any:
    """Measure how boxes overlap."""
    name = f"boxes{len(draft.nodes)}"
    count = draft.integer(1, 4)
    boxes = draft.input(name, lambda: _corners(draft, count), positions=True)
    return mx.sym.contrib.box_iou(boxes.sym, draft.constant(_corners(draft, 3)).sym, format="corner")


def box_decode(draft: Draft) -> Any:
    """Decode what a layer says about anchors."""
    x = draft.pick(ndim=(2, 3, 4)).sym
    anchors = draft.constant(_corners(draft, 1, 3))
    offsets = mx.sym.Reshape(mx.sym.FullyConnected(x, num_hidden=12), shape=(0, 3, 4))
    return mx.sym.contrib.box_decode(offsets, anchors.sym, format="corner")


def roi_align(draft: Draft) -> Any:
    """Sample regions, bilinearly."""
    x = draft.pick(ndim=4)
    attrs = {"pooled_size": (2, 2), "spatial_scale": draft.choice([1.0, 0.5]), "sample_ratio": 2}
    return mx.sym.contrib.ROIAlign(x.sym, _regions(draft, x).sym, **attrs)


def roi_pooling(draft: Draft) -> Any:
    """Sample regions, by their largest values."""
    x = draft.pick(ndim=4)
    return mx.sym.ROIPooling(x.sym, _regions(draft, x).sym, pooled_size=(2, 2), spatial_scale=0.5)


def multibox_detection(draft: Draft) -> Any:
    """Detect as SSD does."""
    x = draft.pick(ndim=4).sym
    anchors = draft.constant(np.clip(_corners(draft, 1, 4, size=0.5), 0, 1))
    scores = mx.sym.Reshape(mx.sym.FullyConnected(x, num_hidden=12), shape=(0, 3, 4))
    offsets = mx.sym.FullyConnected(x, num_hidden=16)
    return mx.sym.contrib.MultiBoxDetection(mx.sym.softmax(scores, axis=1), offsets, anchors.sym)


def yolo_decode(draft: Draft) -> Any:
    """Decode centres and sizes from primitive operators."""
    x = draft.pick(ndim=4)
    y = mx.sym.Reshape(mx.sym.Convolution(x.sym, num_filter=4, kernel=(1, 1)), shape=(0, 4, -1))
    y = mx.sym.transpose(y, axes=(0, 2, 1))
    centres = mx.sym.slice_axis(y, axis=-1, begin=0, end=2)
    sizes = mx.sym.slice_axis(y, axis=-1, begin=2, end=None)
    cells = x.shape[2] * x.shape[3]
    grid = np.stack([np.arange(cells) % x.shape[3], np.arange(cells) // x.shape[3]], axis=-1)
    offsets = draft.constant(grid[None].astype(np.float32))
    centres = mx.sym.broadcast_add(mx.sym.sigmoid(centres), offsets.sym) * 8
    sizes = mx.sym.exp(sizes) * draft.choice([4.0, 16.0])
    return mx.sym.Concat(centres - sizes / 2, centres + sizes / 2, dim=-1)


STEPS = (*(prior, box_nms, box_iou, box_decode, roi_align, roi_pooling, multibox_detection, yolo_decode),)
