"""Pooling, resampling, and the operators of detectors."""

from __future__ import annotations

from typing import Any, Iterator

from mxamp.probe.case import X3, X5, Case, Dims, Input, X, count, of, single, weight


def pooling_cases() -> Iterator[Case]:
    """Yield pooling and resampling."""
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
        plane: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2)}
        for layout in ("NCHW", "NHWC"):
            name = f"Pooling {kind} {layout}"
            yield single(name, X, "Pooling", pool_type=kind, layout=layout, **plane)
        cube: dict[str, Any] = {"kernel": (2, 2, 2), "stride": (2, 2, 2), "timing": (Dims(1, 64, 28),)}
        yield single(f"Pooling {kind} 3-D", X5, "Pooling", pool_type=kind, layout="NCDHW", **cube)
        line: dict[str, Any] = {"kernel": (2,), "stride": (2,), "timing": (Dims(1, 256, 512),)}
        yield single(f"Pooling {kind} 1-D", X3, "Pooling", pool_type=kind, layout="NCW", **line)
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
    """Yield region, box and deformable operators."""
    rois = of(10, 5)
    region: dict[str, Any] = {"pooled_size": (7, 7), "spatial_scale": 1.0, "timing": (Dims(1, 64, 56),)}
    for op, extra in (("_contrib_ROIAlign", {"sample_ratio": 2}), ("ROIPooling", {})):
        yield single(f"{op} low rois", X, op, Input(rois, "weight", "rois"), **extra, **region)
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
