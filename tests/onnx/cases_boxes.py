"""Detection: suppression, decoding, overlap, pooling of regions."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

from tests.onnx.operators import Case, case

__all__ = ["box_cases"]


def rows(samples: int, count: int, classes: int, *, seed: int = 0) -> Any:
    """Return rows of id, score, box: many overlap, a fifth are of the background or below the threshold."""
    generator = np.random.default_rng(seed)
    start = generator.uniform(0, 60, (samples, count, 2))
    size = generator.uniform(10, 40, (samples, count, 2))
    ids = generator.integers(-1, classes, (samples, count, 1))
    # All different, so that the order does not hang on ties.
    scores = generator.permutation(samples * count).reshape(samples, count, 1) / (samples * count)
    return np.concatenate([ids, scores, start, start + size], axis=-1).astype(np.float32)


def centered(values: Any) -> Any:
    start, end = values[..., 2:4], values[..., 4:6]
    return np.concatenate([values[..., :2], (start + end) / 2, end - start], axis=-1)


def regions(count: int, images: int) -> Any:
    generator = np.random.default_rng(3)
    start = generator.uniform(-4, 60, (count, 2))
    size = generator.uniform(0.5, 50, (count, 2))
    index = generator.integers(0, images, (count, 1))
    return np.concatenate([index, start, start + size], axis=-1).astype(np.float32)


def probabilities(samples: int, classes: int, anchors: int, *, seed: int) -> Any:
    """Return class probabilities (samples, classes, anchors), all different."""
    values = np.random.default_rng(seed).standard_normal((samples, classes, anchors)) * 2
    values = np.exp(values)
    return (values / values.sum(axis=1, keepdims=True)).astype(np.float32)


def multibox_cases() -> Iterator[Case]:
    name = "_contrib_MultiBoxDetection"
    generator = np.random.default_rng(8)
    anchors = rows(1, 50, 1, seed=9)[..., 2:] / 100
    shifts = (generator.standard_normal((2, 200)) / 2).astype(np.float32)
    given = (probabilities(2, 4, 50, seed=10), shifts, anchors)
    yield case(name, *given)
    yield case(name, *given, threshold=0.6, nms_threshold=0.45, nms_topk=400)
    yield case(name, *given, threshold=0.3, nms_threshold=0.3, nms_topk=12)  # more candidates than that
    yield case(name, *given, nms_threshold=0.4, force_suppress=True, clip=False)
    yield case(name, *given, threshold=0.5, nms_threshold=-1)  # no suppression
    yield case(name, *given, threshold=1.5)  # nothing is detected
    yield case(name, *given, variances="(0.2, 0.2, 0.1, 0.1)", nms_threshold=0.45)


def proposal_cases() -> Iterator[Case]:
    generator = np.random.default_rng(12)

    def given(samples: int) -> tuple[Any, ...]:
        scores = probabilities(samples, 24, 24, seed=13).reshape(samples, 24, 4, 6)
        shifts = (generator.standard_normal((samples, 48, 4, 6)) / 4).astype(np.float32)
        return scores, shifts, np.array([[60, 90, 1.5]] * samples, np.float32)

    common = {"rpn_pre_nms_top_n": 200, "rpn_post_nms_top_n": 30, "output_score": True, "outputs": 2}
    one, two = given(1), given(2)
    yield case("_contrib_Proposal", *one, **common)
    yield case("_contrib_Proposal", *one, **{**common, "rpn_pre_nms_top_n": -1, "threshold": 0.3})
    # Fewer are left than are asked for: they are repeated.
    yield case("_contrib_Proposal", *one, **{**common, "threshold": 0.05, "rpn_min_size": 8})
    yield case("_contrib_Proposal", *one, **common, iou_loss=True)
    small = {"scales": "(2, 4)", "ratios": "(0.5, 1, 2, 0.3, 3, 4)", "feature_stride": 15}
    yield case("_contrib_Proposal", *one, **common, **small)
    yield case("_contrib_MultiProposal", *two, **common)
    yield case("_contrib_MultiProposal", *two, **{**common, "threshold": 0.05, "rpn_min_size": 8})


def box_cases() -> Iterator[Case]:
    yield from multibox_cases()
    yield from proposal_cases()
    nms = "_contrib_box_nms"
    data = rows(3, 60, 5)
    yield case(nms, data, id_index=0, topk=30, valid_thresh=0.2, overlap_thresh=0.3, tolerance=0)
    yield case(nms, data, id_index=0, overlap_thresh=0.45, tolerance=0)
    yield case(nms, data, id_index=0, background_id=2, overlap_thresh=0.45, tolerance=0)
    yield case(nms, data, id_index=0, force_suppress=True, topk=400, overlap_thresh=0.45, tolerance=0)
    yield case(nms, data, overlap_thresh=0.7, topk=20, tolerance=0)
    yield case(nms, data, id_index=0, topk=0, overlap_thresh=0.45, tolerance=0)  # which copies
    turned = data.copy()  # with corners in the wrong order, and so without area in MXNet
    turned[:, ::3, [2, 4]] = turned[:, ::3, [4, 2]]
    turned[:, ::4, [3, 5]] = turned[:, ::4, [5, 3]]
    yield case(nms, turned, id_index=0, overlap_thresh=0.45, tolerance=0)
    yield case(nms, turned, id_index=0, force_suppress=True, overlap_thresh=0.1, tolerance=0)
    yield case(nms, data[0], id_index=0, valid_thresh=0.5, tolerance=0)
    yield case(nms, data[None], id_index=0, valid_thresh=0.99999, tolerance=0)
    yield case(nms, data, valid_thresh=2, tolerance=0)
    yield case(nms, data[..., 1:].copy(), score_index=0, coord_start=1, overlap_thresh=0.5, tolerance=0)
    yield case(nms, centered(data), id_index=0, in_format="center", out_format="center", tolerance=0)
    yield case(nms, centered(data), id_index=0, in_format="center", out_format="corner")
    yield case(nms, data, id_index=0, in_format="corner", out_format="center")
    decode = "_contrib_box_decode"
    anchors = rows(1, 20, 1, seed=4)[..., 2:]
    shifts = (np.random.default_rng(5).standard_normal((2, 20, 4)) / 2).astype(np.float32)
    for form in ("corner", "center"):
        yield case(decode, shifts, anchors, format=form, std0=0.1, std1=0.1, std2=0.2, std3=0.2)
    yield case(decode, shifts, anchors, format="corner", clip=0.3)
    for form in ("corner", "center"):
        left, right = rows(1, 7, 1, seed=6)[0, :, 2:], rows(1, 9, 1, seed=7)[0, :, 2:]
        yield case("_contrib_box_iou", left, right, format=form)
    yield case("_contrib_box_iou", rows(2, 3, 1)[..., 2:], rows(2, 4, 1)[..., 2:])
    features = (2, 3, 16, 20)
    for ratio in (-1, 2):
        for aligned in (False, True):
            yield case(
                *("_contrib_ROIAlign", features, regions(12, 2)),
                pooled_size="(7, 5)",
                spatial_scale=0.25,
                sample_ratio=ratio,
                aligned=aligned,
                tolerance=5e-6,
            )
