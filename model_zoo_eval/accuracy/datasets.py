"""Models of the zoo on public data sets, through GluonCV's own data sets, transforms and metrics.

The images of a data set are prepared as in the scripts that GluonCV's published figures come from, but for
segmentation, which is measured at one scale on the centre of each image; GluonCV publishes it over several
scales, so figures differ for FP32 too. FP32 and converted models always see the same inputs.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from model_zoo_eval.accuracy.coco_meters import BoxMeter, KeypointMeter, needs_pycocotools
from model_zoo_eval.accuracy.evaluate import Sample, Subject
from model_zoo_eval.accuracy.job import AccuracyJob
from model_zoo_eval.accuracy.layouts import check_folder
from model_zoo_eval.accuracy.meters import ClassMeter, PixelMeter, VocMeter
from model_zoo_eval.build import RANDOM, BuiltModel, build_model
from model_zoo_eval.registry import PRIMITIVE, Case, find_entry
from mxamp.errors import DataError, ParamsError

__all__ = ["dataset_subject"]

Array = NDArray[Any]

_CROP_RATIO = 0.875
"""How much of an image's shorter side the centre crop keeps: verify_pretrained.py of GluonCV."""

_MAX_SIDE = {600: 1000, 800: 1333}
"""Longest side of what R-CNN reads, by the shorter one: GluonCV's eval_faster_rcnn.py."""


def dataset_subject(job: AccuracyJob) -> tuple[Subject, dict[str, Any]]:
    """Return a model of the zoo with the samples of a data set, and what its row says of both.

    Raises
    ------
    DataError
        When the data set cannot be read, or does not fit the model.
    ModelFileNotFoundError
        When the folder is not laid out as it should be.
    ParamsError
        When there are no trained weights.
    """
    entry = find_entry(job.name)
    assert job.folder is not None
    folder = Path(job.folder)
    layout = check_folder(job.data, entry.task, folder)
    built = build_model(
        # With trained weights GluonCV builds a detector in this form.
        Case(entry.name, PRIMITIVE if PRIMITIVE in entry.forms else ""),
        params=Path(job.params) if job.params else None,
    )
    if built.weights == RANDOM:
        raise ParamsError(
            f"There are no trained weights of {job.name!r} ({built.origin}), and random ones have no "
            f"accuracy. Put {job.name}.params into a folder and give it with --params."
        )
    make = MAKERS[job.data, entry.task]
    total, samples, meter, metric_note = make(built, folder)
    count = min(job.samples or total, total)
    if not count:
        raise DataError(f"There are no samples of {layout.title} in {str(folder)!r}.")
    official = total == layout.official
    if official:
        data = layout.title if count == total else f"the first {count} of {layout.title}"
    else:
        # A part of a data set, or another one in its folders, is not that data set.
        data = f"{count} of {total} samples in {folder.name!r}, not {layout.title}"
    described = {
        "task": entry.task,
        "data": data,
        "weights": built.weights,
        "weights_from": built.origin,
        "network": entry.name,
        "notes": [metric_note] if metric_note else [],
    }
    if entry.published is not None and official:
        described["published"] = f"{entry.published.metric} {entry.published.value:g}"

    def chosen() -> Iterator[Sample]:
        return (samples(number) for number in range(count))

    return Subject(built.model, chosen, meter), described


def _input_name(built: BuiltModel) -> str:
    return next(iter(built.shapes))


def _size(built: BuiltModel) -> tuple[int, int]:
    height, width = next(iter(built.shapes.values()))[-2:]
    return height, width


# ---------------------------------------------------------------------- classification


def _imagenet(built: BuiltModel, folder: Path) -> Any:
    from gluoncv.data import ImageNet
    from mxnet.gluon.data.vision import ImageRecordDataset, transforms

    record = next((path for path in (folder / "rec" / "val.rec", folder / "val.rec") if path.is_file()), None)
    if record is not None:
        if not record.with_suffix(".idx").is_file():
            raise DataError(f"{str(record)!r} has no index beside it, {record.with_suffix('.idx').name!r}.")
        images: Any = ImageRecordDataset(str(record))
    else:
        images = ImageNet(str(folder), train=False)
        if len(images.synsets) != built.entry.classes:
            raise DataError(
                f"{str(folder / 'val')!r} has {len(images.synsets)} folders of classes, and "
                f"{built.entry.name!r} tells {built.entry.classes} apart. GluonCV numbers the "
                "classes by their folders' order, so none may be missing, even if it is empty."
            )
    height, _ = _size(built)
    transform = transforms.Compose(
        [
            transforms.Resize(math.ceil(height / _CROP_RATIO), keep_ratio=True),
            transforms.CenterCrop(height),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    name = _input_name(built)

    def sample(number: int) -> Sample:
        image, label = images[number]
        if not 0 <= int(label) < built.entry.classes:
            raise DataError(
                f"Sample {number} is of class {int(label)}, and {built.entry.name!r} tells "
                f"{built.entry.classes} apart: is this another data set?"
            )
        return {name: transform(image).asnumpy()[np.newaxis]}, {"label": np.array(int(label))}

    return len(images), sample, ClassMeter, ""


# ---------------------------------------------------------------------- detection


def _prepare_for(built: BuiltModel) -> Callable[[Any, Array], tuple[Array, dict[str, Array]]]:
    """Return what turns an image and its boxes into an input, and what is true in its coordinates."""
    from gluoncv.data.transforms import presets

    name = built.entry.name
    height, width = _size(built)
    if name.startswith("ssd"):
        transform: Any = presets.ssd.SSDDefaultValTransform(width, height)
    elif name.startswith("yolo"):
        transform = presets.yolo.YOLO3DefaultValTransform(width, height)
    elif name.startswith("center_net"):
        transform = presets.center_net.CenterNetDefaultValTransform(width, height)
    else:
        transform = presets.rcnn.FasterRCNNDefaultValTransform(height, _MAX_SIDE.get(height, 1333))

    def prepare(image: Any, boxes: Array) -> tuple[Array, dict[str, Array]]:
        made = transform(image, boxes.copy())
        pixels, placed = made[0].asnumpy()[np.newaxis], np.asarray(made[1], np.float32)
        truth = {
            "boxes": placed[:, :4],
            "labels": placed[:, 4].astype(np.int64),
            "size": np.array(pixels.shape[-2:]),
        }
        if len(made) > 2:
            truth["scale"] = np.array(float(made[2].asscalar()), np.float32)
        return pixels, truth

    return prepare


def _voc_boxes(built: BuiltModel, folder: Path) -> Any:
    from gluoncv.data import VOCDetection

    images = _opened("VOC", lambda: VOCDetection(str(folder), splits=[(2007, "test")]))
    prepare, name = _prepare_for(built), _input_name(built)

    def sample(number: int) -> Sample:
        image, boxes = images[number]
        pixels, truth = prepare(image, boxes)
        return {name: pixels}, {**truth, "difficult": boxes[:, 5]}

    return len(images), sample, lambda: VocMeter(images.classes), ""


def _coco_boxes(built: BuiltModel, folder: Path) -> Any:
    from gluoncv.data import COCODetection

    needs_pycocotools()
    images = _opened("COCO", lambda: COCODetection(str(folder), splits="instances_val2017", skip_empty=False))
    prepare, name = _prepare_for(built), _input_name(built)
    identifiers = sorted(images.coco.getImgIds())

    def sample(number: int) -> Sample:
        pixels, truth = prepare(*images[number])
        return {name: pixels}, {**truth, "image": np.array(identifiers[number])}

    affine = built.entry.name.startswith("center_net")
    return len(images), sample, lambda: BoxMeter(images, affine=affine), ""


# ---------------------------------------------------------------------- segmentation


def _segmentation(kind: str) -> Callable[[BuiltModel, Path], Any]:
    def make(built: BuiltModel, folder: Path) -> Any:
        from gluoncv import data
        from mxnet.gluon.data.vision import transforms

        height, width = _size(built)
        if height != width:
            raise DataError(f"{built.entry.name!r} reads {height}x{width}, and GluonCV cuts squares.")
        transform = transforms.Compose(
            [transforms.ToTensor(), transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
        )
        images = _opened(
            kind,
            lambda: getattr(data, kind)(
                root=str(folder),
                split="val",
                mode="val",
                # ToTensor reads uint8, and GluonCV hands over float32.
                transform=lambda image: transform(image.astype("uint8")),
                base_size=height,
                crop_size=height,
            ),
        )
        name = _input_name(built)

        def sample(number: int) -> Sample:
            image, mask = images[number]
            return {name: image.asnumpy()[np.newaxis]}, {"mask": mask.asnumpy()}

        note = "mIoU at one scale, on the centre of each image; GluonCV publishes it over several scales"
        return len(images), sample, lambda: PixelMeter(built.entry.classes), note

    return make


# ---------------------------------------------------------------------- pose


def _keypoints(built: BuiltModel, folder: Path) -> Any:
    from gluoncv.data import COCOKeyPoints
    from gluoncv.data.transforms.presets.simple_pose import SimplePoseDefaultValTransform

    needs_pycocotools()
    images = _opened("COCO", lambda: COCOKeyPoints(str(folder), splits="person_keypoints_val2017"))
    height, width = _size(built)
    transform = SimplePoseDefaultValTransform(images.num_joints, images.joint_pairs, (height, width))
    name = _input_name(built)

    def sample(number: int) -> Sample:
        image, label, identifier = images[number]
        pixels, scale, centre, score, _ = transform(image, label, identifier)
        return {name: pixels.asnumpy()[np.newaxis]}, {
            "scale": np.asarray(scale, np.float32),
            "centre": np.asarray(centre, np.float32),
            "score": np.array(score, np.float32),
            "image": np.array(identifier),
        }

    return len(images), sample, lambda: KeypointMeter(images), "persons are cut out by their true boxes"


def _opened(what: str, opening: Callable[[], Any]) -> Any:
    """Open a data set; GluonCV asserts, or raises what its reader does, where a file is missing."""
    try:
        return opening()
    except (AssertionError, OSError, RuntimeError, ValueError, KeyError) as error:
        said = str(error) or "a file that its lists name is missing"
        raise DataError(f"GluonCV cannot read the data set ({what}): {said}.") from error


MAKERS = {
    ("imagenet", "classification"): _imagenet,
    ("voc", "detection"): _voc_boxes,
    ("voc", "segmentation"): _segmentation("VOCSegmentation"),
    ("coco", "detection"): _coco_boxes,
    ("coco", "pose"): _keypoints,
    ("cityscapes", "segmentation"): _segmentation("CitySegmentation"),
    ("ade20k", "segmentation"): _segmentation("ADE20KSegmentation"),
}
