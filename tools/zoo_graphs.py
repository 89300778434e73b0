"""The networks that emulation is verified on, and how detectors are compared.

A detector ranks its candidates, and with random weights scores nearly tie: which boxes win is chaotic, in
FP32 too (fusion on against fusion off changes them). So two things are compared of a detector: the tensors
that enter the first ranking, where rounding shows and ranking does not; and the boxes, after each was matched
with its likest.
"""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Any, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from model_zoo_eval.heads import entries_before
from mxamp.graph import Entry, Graph
from mxamp.model import Model

__all__ = [
    "NETWORKS",
    "PRIMITIVE_FORMS",
    "BoxMatch",
    "before_ranking",
    "first_rankings",
    "match_boxes",
    "primitive_box_decoding",
    "with_heads",
]

CLASSIFIER = 224
NETWORKS = {
    "resnet18_v1": CLASSIFIER,
    "resnet50_v1": CLASSIFIER,
    "resnet50_v2": CLASSIFIER,
    "resnet50_v1d": CLASSIFIER,
    "se_resnext50_32x4d": CLASSIFIER,
    "resnest14": CLASSIFIER,
    "vgg16": CLASSIFIER,
    "vgg16_bn": CLASSIFIER,
    "alexnet": CLASSIFIER,
    "squeezenet1.1": CLASSIFIER,
    "densenet121": CLASSIFIER,
    "inceptionv3": 299,
    "mobilenet1.0": CLASSIFIER,
    "mobilenetv2_1.0": CLASSIFIER,
    "mobilenetv3_large": CLASSIFIER,
    # Detectors and segmentation on smaller images than they were trained for, to save time.
    "ssd_512_resnet50_v1_voc": 256,
    "yolo3_mobilenet1.0_voc": 224,
    "faster_rcnn_resnet50_v1b_voc": 320,
    "center_net_resnet18_v1b_voc": 256,
    "fcn_resnet50_voc": 240,
}
"""Name -> height and width of the input."""

PRIMITIVE_FORMS = ("ssd_512_resnet50_v1_voc", "faster_rcnn_resnet50_v1b_voc")
"""Networks that decode boxes with one operator, or with primitive ones where they were built pretrained."""

RANKING = frozenset({"_contrib_box_nms", "topk", "argsort", "_contrib_MultiBoxDetection", "broadcast_equal"})
"""Operators whose result jumps when two candidates change places; CenterNet finds its peaks by equality."""


@contextlib.contextmanager
def primitive_box_decoding() -> Iterator[None]:
    """Build detectors as with ``pretrained=True``: boxes decoded by primitive operators."""
    from gluoncv.model_zoo.rcnn.rpn import proposal
    from gluoncv.model_zoo.ssd import ssd

    modules = [module for module in (ssd, proposal) if hasattr(module, "NormalizedBoxCenterDecoder")]
    from gluoncv.model_zoo.rcnn.faster_rcnn import faster_rcnn

    modules += [faster_rcnn] if hasattr(faster_rcnn, "NormalizedBoxCenterDecoder") else []
    originals = [module.NormalizedBoxCenterDecoder for module in modules]

    def minimal(original: Any) -> Any:
        @functools.wraps(original, updated=())
        def build(*args: Any, **options: Any) -> Any:
            return original(*args, **{**options, "minimal_opset": True})

        return build

    try:
        for module, original in zip(modules, originals):
            module.NormalizedBoxCenterDecoder = minimal(original)
        yield
    finally:
        for module, original in zip(modules, originals):
            module.NormalizedBoxCenterDecoder = original


def first_rankings(graph: Graph) -> list[str]:
    """Return the names of the ranking nodes that no other ranking node feeds."""
    after_ranking = set()
    first = []
    for position, node in enumerate(graph.nodes):
        if any(entry.node in after_ranking for entry in node.inputs):
            after_ranking.add(position)
        elif node.op in RANKING:
            after_ranking.add(position)
            first.append(node.name)
    return first


def before_ranking(model: Model, names: Sequence[str]) -> Model:
    """Return the model that computes what enters the named nodes."""
    return with_heads(model, entries_before(model.graph, tuple(names)))


def with_heads(model: Model, heads: Sequence[Entry]) -> Model:
    """Return the model that computes other entries of the same graph, without the nodes they do not need."""
    graph = model.graph
    needed = set()
    stack = [head.node for head in heads]
    while stack:
        position = stack.pop()
        if position not in needed:
            needed.add(position)
            stack.extend(entry.node for entry in graph.nodes[position].inputs)
    order = sorted(needed)
    moved = {old: new for new, old in enumerate(order)}
    nodes = tuple(
        graph.nodes[old]._replace(
            inputs=tuple(Entry(moved[entry.node], entry.output) for entry in graph.nodes[old].inputs)
        )
        for old in order
    )
    kept = Graph(nodes, tuple(Entry(moved[head.node], head.output) for head in heads), graph.attrs)
    return Model(
        kept,
        {key: value for key, value in model.arg_params.items() if key in kept.variables},
        {key: value for key, value in model.aux_params.items() if key in kept.variables},
    )


# ---------------------------------------------------------------------- boxes


@dataclass(frozen=True)
class BoxMatch:
    """How alike two sets of detections are.

    Attributes
    ----------
    boxes
        How many boxes the reference has.
    matched
        The share that has a box of its own in the other, of the same class, which it overlaps by half at
        least.
    mean_overlap
        The mean intersection over union of the matched ones.
    score_error
        The mean difference of their scores.
    """

    boxes: int
    matched: float
    mean_overlap: float
    score_error: float


def match_boxes(
    reference: Sequence[NDArray[Any]], other: Sequence[NDArray[Any]], *, overlap: float = 0.5
) -> BoxMatch:
    """Match every detection with the likest one of its class.

    Parameters
    ----------
    reference, other
        Class numbers, scores and boxes (x0, y0, x1, y1): shapes (1, n, 1) or (1, n), and (1, n, 4). A class
        of -1 is no detection, and neither is a box without area.
    overlap
        The intersection over union from which two boxes may be the same.

    Notes
    -----
    Greedy, best scores first, one box to one box.
    """
    classes, scores, boxes = _columns(reference)
    other_classes, other_scores, other_boxes = _columns(other)
    valid = np.flatnonzero((classes >= 0) & np.all(boxes[:, 2:] > boxes[:, :2], axis=1))
    valid = valid[np.argsort(-scores[valid], kind="stable")]
    free = other_classes >= 0
    overlaps, errors = [], []
    for number in valid:
        candidates = np.flatnonzero(free & (other_classes == classes[number]))
        if not candidates.size:
            continue
        shared = _overlaps(boxes[number], other_boxes[candidates])
        best = int(np.argmax(shared))
        if shared[best] >= overlap:
            free[candidates[best]] = False
            overlaps.append(float(shared[best]))
            errors.append(abs(float(other_scores[candidates[best]] - scores[number])))
    return BoxMatch(
        boxes=int(valid.size),
        matched=len(overlaps) / valid.size if valid.size else 1.0,
        mean_overlap=float(np.mean(overlaps)) if overlaps else 0.0,
        score_error=float(np.mean(errors)) if errors else 0.0,
    )


def _columns(detections: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    classes, scores, boxes = (np.asarray(values[0], np.float64) for values in detections)
    return classes.reshape(-1), scores.reshape(-1), boxes.reshape(-1, 4)


def _overlaps(box: NDArray[Any], others: NDArray[Any]) -> NDArray[Any]:
    low = np.maximum(box[:2], others[:, :2])
    high = np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.clip(high - low, 0.0, None), axis=1)
    area = np.prod(np.clip(box[2:] - box[:2], 0.0, None))
    areas = np.prod(np.clip(others[:, 2:] - others[:, :2], 0.0, None), axis=1)
    union: NDArray[Any] = area + areas - shared
    return np.asarray(shared / np.maximum(union, 1e-12))
