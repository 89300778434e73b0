"""Data sets: which model is for which, and how GluonCV lays each out on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

from model_zoo_eval.registry import Entry
from mxamp.errors import DataError, ModelFileNotFoundError, UnknownNameError, nearest_names

__all__ = ["LAYOUTS", "Layout", "check_folder", "dataset_for", "layout_of"]


@dataclass(frozen=True)
class Layout:
    """How one data set lies on disk.

    Attributes
    ----------
    title
        What it is called.
    official
        How many samples the published figures are measured on.
    needs
        One of these must be there: paths below the folder.
    looks
        What the folder holds, for who has to make it.
    script
        GluonCV's script that downloads or sorts it.
    """

    title: str
    official: int
    needs: tuple[str, ...]
    looks: str
    script: str


LAYOUTS: Mapping[tuple[str, str], Layout] = {
    ("imagenet", "classification"): Layout(
        "ImageNet's validation set",
        50_000,
        ("rec/val.rec", "val.rec", "val"),
        "val/n01440764/*.JPEG and 999 more folders of images, or rec/val.rec with rec/val.idx",
        "scripts/datasets/imagenet.py",
    ),
    ("voc", "detection"): Layout(
        "VOC 2007's test set",
        4_952,
        ("VOC2007/ImageSets/Main/test.txt",),
        "VOC2007/ImageSets/Main/test.txt, VOC2007/Annotations/*.xml and VOC2007/JPEGImages/*.jpg",
        "scripts/datasets/pascal_voc.py",
    ),
    ("voc", "segmentation"): Layout(
        "VOC 2012's validation set",
        1_449,
        ("VOC2012/ImageSets/Segmentation/val.txt",),
        "VOC2012/ImageSets/Segmentation/val.txt, VOC2012/SegmentationClass/*.png and "
        "VOC2012/JPEGImages/*.jpg",
        "scripts/datasets/pascal_voc.py",
    ),
    ("coco", "detection"): Layout(
        "COCO's val2017",
        5_000,
        ("annotations/instances_val2017.json",),
        "annotations/instances_val2017.json and val2017/*.jpg",
        "scripts/datasets/mscoco.py",
    ),
    ("coco", "pose"): Layout(
        "the persons of COCO's val2017",
        6_352,
        ("annotations/person_keypoints_val2017.json",),
        "annotations/person_keypoints_val2017.json and val2017/*.jpg",
        "scripts/datasets/mscoco.py",
    ),
    ("cityscapes", "segmentation"): Layout(
        "Cityscapes' validation set",
        500,
        ("leftImg8bit/val",),
        "leftImg8bit/val/CITY/*_leftImg8bit.png and gtFine/val/CITY/*_gtFine_labelIds.png",
        "scripts/datasets/cityscapes.py",
    ),
    ("ade20k", "segmentation"): Layout(
        "ADE20K's validation set",
        2_000,
        ("ADEChallengeData2016/images/validation",),
        "ADEChallengeData2016/images/validation/*.jpg and ADEChallengeData2016/annotations/validation/*.png",
        "scripts/datasets/ade20k.py",
    ),
}
"""(data set, task) -> how it lies on disk."""

_ENDINGS = {"_voc": "voc", "_coco": "coco", "_citys": "cityscapes", "_ade": "ade20k"}

_IMAGENET_CLASSES = 1000


def dataset_for(entry: Entry, given: str | None = None) -> str:
    """Return the name of the data set that a model is measured on.

    Parameters
    ----------
    entry
        The model.
    given
        What the user says it is; None for what the model's name says.

    Raises
    ------
    UnknownNameError
        When there is no such data set.
    DataError
        When it is not one for this model, or there is none for it here.
    """
    names = list(dict.fromkeys(name for name, _ in LAYOUTS))
    if given is not None and given not in names:
        raise UnknownNameError(
            f"There is no data set {given!r}.{nearest_names(given, names)} There are {', '.join(names)}."
        )
    own = next((name for ending, name in _ENDINGS.items() if entry.name.endswith(ending)), "")
    if entry.task == "classification" and entry.classes == _IMAGENET_CLASSES:
        own = "imagenet"
    if entry.task == "pose":
        own = "coco"
    if not entry.is_runnable:
        raise DataError(f"{entry.name!r} cannot be evaluated. {entry.unavailable}")
    if (own, entry.task) not in LAYOUTS:
        raise DataError(
            f"Accuracy of {entry.name!r} ({entry.task}) is not measured here: it is for models of ImageNet, "
            "for detectors and segmentation networks of VOC, COCO, Cityscapes and ADE20K, and for pose."
        )
    if given is not None and given != own:
        raise DataError(
            f"{entry.name!r} was trained for {own}, and its classes are not those of {given}. Leave "
            "--dataset out, or choose models of that data set."
        )
    return own


def layout_of(data: str, task: str) -> Layout:
    """Return how a data set lies on disk for a task."""
    return LAYOUTS[data, task]


def check_folder(data: str, task: str, folder: Path) -> Layout:
    """Check that a folder is laid out as GluonCV expects.

    Raises
    ------
    ModelFileNotFoundError
        When it is not; says what is expected.
    """
    layout = layout_of(data, task)
    found = [path for path in layout.needs if (folder / path).exists()]
    if not found:
        what = "no folder" if not folder.is_dir() else f"no {' or '.join(layout.needs)} in the folder"
        raise ModelFileNotFoundError(
            f"There is {what} {str(folder)!r}. As GluonCV lays out {layout.title}, it holds {layout.looks}. "
            f"GluonCV's {layout.script} makes it: "
            "https://cv.gluon.ai/build/examples_datasets/index.html"
        )
    return layout
