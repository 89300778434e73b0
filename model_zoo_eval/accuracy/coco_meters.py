"""COCO's metrics, through GluonCV's classes and pycocotools, on all images or on some."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import tempfile
from pathlib import Path
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from model_zoo_eval.accuracy.meters import Truth, found_boxes, placed_boxes
from mxamp.errors import DataError

__all__ = ["BoxMeter", "KeypointMeter", "needs_pycocotools"]

Array = NDArray[Any]


def needs_pycocotools() -> None:
    """Check that pycocotools is here; GluonCV would try to install it by itself.

    Raises
    ------
    DataError
        When it is not.
    """
    if importlib.util.find_spec("pycocotools") is None:
        raise DataError(
            "COCO's data and metrics need pycocotools, which is not installed. Install a version built for "
            "this NumPy: pip install 'pycocotools<2.0.8'"
        )


def _evaluated(gluoncv_metric: type, images: Sequence[int], kind: str) -> type:
    """Return a class of GluonCV's that judges some images only, instead of counting the rest as missed."""

    class OnSome(gluoncv_metric):  # type: ignore[misc, valid-type]
        def _update(self) -> Any:
            import json

            from pycocotools.cocoeval import COCOeval

            # pycocotools cannot read an empty list of results.
            nothing = {"image_id": images[0], "category_id": 0, "bbox": [0, 0, 0, 0], "score": 0}
            Path(self._filename).write_text(json.dumps(self._results or [nothing]), "utf-8")
            coco = self.dataset.coco
            self._coco_eval = COCOeval(coco, coco.loadRes(self._filename), kind)
            self._coco_eval.params.imgIds = sorted(set(images))
            if kind == "keypoints":
                self._coco_eval.params.useSegm = None
            self._coco_eval.evaluate()
            self._coco_eval.accumulate()
            self._coco_eval.summarize()
            return self._coco_eval

    return OnSome


class BoxMeter:
    """COCO's box AP, through GluonCV's ``COCODetectionMetric``; ids, scores and boxes are the outputs.

    Parameters
    ----------
    dataset
        ``gluoncv.data.COCODetection``.
    affine
        Whether images were fitted into the input whole, as for CenterNet, and not stretched to its sides.
    """

    items = "boxes"

    def __init__(self, dataset: Any, *, affine: bool = False) -> None:
        self._dataset = dataset
        self._affine = affine
        self._seen: list[tuple[int, tuple[int, int] | None, Array, Array, Array]] = []
        self._right: list[bool] = []

    def add(self, outputs: Sequence[Array], truth: Truth) -> None:
        """See :class:`model_zoo_eval.accuracy.meters.Meter`."""
        ids, scores, boxes = outputs[:3]
        boxes, true_boxes = placed_boxes(boxes, truth)
        placed = {**truth, "boxes": true_boxes}
        self._right += found_boxes(ids[0].ravel(), scores[0].ravel(), boxes[0], placed)
        # With a scale the boxes are in the image's own pixels already.
        shape = None if "scale" in truth else (int(truth["size"][0]), int(truth["size"][1]))
        self._seen.append((int(truth["image"]), shape, boxes, ids, scores))

    def metrics(self) -> dict[str, float]:
        """See :class:`model_zoo_eval.accuracy.meters.Meter`."""
        from gluoncv.data.transforms.presets.center_net import get_post_transform
        from gluoncv.utils.metrics.coco_detection import COCODetectionMetric

        images = [image for image, *_ in self._seen]
        with tempfile.TemporaryDirectory(prefix="mxamp-coco-") as folder, _quiet():
            metric = _evaluated(COCODetectionMetric, images, "bbox")(
                self._dataset,
                str(Path(folder, "boxes")),
                data_shape=self._seen[0][1],
                post_affine=get_post_transform if self._affine else None,
            )
            metric._img_ids = images
            for _, _, boxes, ids, scores in self._seen:
                metric.update(boxes, ids, scores)
            stats = metric._update().stats
        return {"COCO box AP": float(stats[0]), "AP at 0.5": float(stats[1])}

    def right(self) -> NDArray[np.bool_]:
        """See :class:`model_zoo_eval.accuracy.meters.Meter`."""
        return np.array(self._right, bool)

    def resampled(self, samples: NDArray[np.int64]) -> float:
        """Return NaN: pycocotools keeps one record an image, so none can be drawn twice."""
        return float("nan")


class KeypointMeter:
    """COCO's keypoint AP, through GluonCV's ``COCOKeyPointsMetric``; the output is a heat map a joint."""

    items = ""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._seen: list[tuple[Any, Any, Array, Array]] = []

    def add(self, outputs: Sequence[Array], truth: Truth) -> None:
        """See :class:`model_zoo_eval.accuracy.meters.Meter`."""
        import mxnet as mx
        from gluoncv.data.transforms.pose import get_final_preds

        centre, scale = truth["centre"][np.newaxis], truth["scale"][np.newaxis]
        joints, scores = get_final_preds(mx.nd.array(outputs[0]), centre, scale)
        self._seen.append((joints, scores, truth["score"].reshape(1), truth["image"].reshape(1)))

    def metrics(self) -> dict[str, float]:
        """See :class:`model_zoo_eval.accuracy.meters.Meter`."""
        import mxnet as mx
        from gluoncv.utils.metrics.coco_keypoints import COCOKeyPointsMetric

        images = [int(image[0]) for *_, image in self._seen]
        with tempfile.TemporaryDirectory(prefix="mxamp-coco-") as folder, _quiet():
            metric = _evaluated(COCOKeyPointsMetric, images, "keypoints")(
                self._dataset, str(Path(folder, "joints")), in_vis_thresh=0
            )
            for joints, scores, score, image in self._seen:
                # float64: an image's number may have more digits than float32 holds.
                metric.update(joints, scores, mx.nd.array(score), mx.nd.array(image, dtype="float64"))
            stats = metric._update().stats
        return {"COCO keypoint AP": float(stats[0]), "AP at 0.5": float(stats[1])}

    def right(self) -> NDArray[np.bool_]:
        """Return nothing: a person's keypoints are right by degrees."""
        return np.zeros(0, bool)

    def resampled(self, samples: NDArray[np.int64]) -> float:
        """Return NaN: pycocotools keeps one record an image, so none can be drawn twice."""
        return float("nan")


@contextlib.contextmanager
def _quiet() -> Any:
    """Keep pycocotools, which prints what it does, from printing."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
