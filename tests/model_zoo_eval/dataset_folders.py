"""Data sets of a few drawn images, in the folders and files that GluonCV reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "write_ade20k",
    "write_cityscapes",
    "write_coco",
    "write_imagenet_folders",
    "write_imagenet_records",
    "write_voc",
    "write_voc_segmentation",
]

WIDTH, HEIGHT = 80, 60


def picture(number: int) -> Any:
    """Return a picture: red, green, blue."""
    return np.random.RandomState(number).randint(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)


def write_picture(path: Path, pixels: Any) -> None:
    import cv2

    path.parent.mkdir(parents=True, exist_ok=True)
    assert cv2.imwrite(str(path), pixels[:, :, ::-1] if pixels.ndim == 3 else pixels)


def write_imagenet_folders(folder: Path, *, classes: int = 1000) -> Path:
    """Write a folder for every class, and an image into three of them."""
    for number in range(classes):
        (folder / "val" / f"n{number:08d}").mkdir(parents=True)
    for number in (0, 3, 7):
        if number < classes:
            write_picture(folder / "val" / f"n{number:08d}" / "image.JPEG", picture(number))
    return folder


def write_imagenet_records(folder: Path, *, labels: tuple[int, ...] = (0, 3, 7)) -> Path:
    """Write rec/val.rec with its index."""
    import mxnet as mx

    (folder / "rec").mkdir(parents=True)
    record = mx.recordio.MXIndexedRecordIO(
        str(folder / "rec" / "val.idx"), str(folder / "rec" / "val.rec"), "w"
    )
    for number, label in enumerate(labels):
        header = mx.recordio.IRHeader(0, float(label), number, 0)
        record.write_idx(number, mx.recordio.pack_img(header, picture(number), quality=95))
    record.close()
    return folder


def write_voc(folder: Path) -> Path:
    """Write VOC 2007's test set with three images, one box each; the last box is difficult."""
    root = folder / "VOC2007"
    (root / "ImageSets" / "Main").mkdir(parents=True)
    (root / "Annotations").mkdir()
    names = [f"{number:06d}" for number in (1, 2, 3)]
    (root / "ImageSets" / "Main" / "test.txt").write_text("".join(f"{name}\n" for name in names))
    for number, name in enumerate(names):
        write_picture(root / "JPEGImages" / f"{name}.jpg", picture(number))
        (root / "Annotations" / f"{name}.xml").write_text(
            f"<annotation><size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"
            f"<object><name>dog</name><difficult>{int(number == 2)}</difficult>"
            "<bndbox><xmin>11</xmin><ymin>11</ymin><xmax>51</xmax><ymax>41</ymax></bndbox></object></annotation>"
        )
    return folder


def write_voc_segmentation(folder: Path) -> Path:
    """Write VOC 2012's validation set with three images: the left half is of class 12."""
    root = folder / "VOC2012"
    (root / "ImageSets" / "Segmentation").mkdir(parents=True)
    names = [f"2012_{number:06d}" for number in (1, 2, 3)]
    (root / "ImageSets" / "Segmentation" / "val.txt").write_text("".join(f"{name}\n" for name in names))
    for number, name in enumerate(names):
        write_picture(root / "JPEGImages" / f"{name}.jpg", picture(number))
        write_picture(root / "SegmentationClass" / f"{name}.png", _halves(12, 0))
    return folder


def write_cityscapes(folder: Path) -> Path:
    """Write Cityscapes' validation set with one city; ids 7 and 11 are road and building."""
    for number in range(3):
        stem = f"aachen_{number:06d}_000019"
        write_picture(folder / "leftImg8bit" / "val" / "aachen" / f"{stem}_leftImg8bit.png", picture(number))
        write_picture(folder / "gtFine" / "val" / "aachen" / f"{stem}_gtFine_labelIds.png", _halves(7, 11))
    return folder


def write_ade20k(folder: Path) -> Path:
    """Write ADE20K's validation set; 0 is no class there, and 1 the first."""
    root = folder / "ADEChallengeData2016"
    for number in range(3):
        name = f"ADE_val_{number:08d}"
        write_picture(root / "images" / "validation" / f"{name}.jpg", picture(number))
        write_picture(root / "annotations" / "validation" / f"{name}.png", _halves(1, 5))
    return folder


def write_coco(folder: Path) -> Path:
    """Write COCO's val2017 with three images of one person each, with boxes and keypoints."""
    from gluoncv.data import COCODetection, COCOKeyPoints

    (folder / "annotations").mkdir(parents=True)
    images, things = [], []
    keypoints: list[float] = []
    for joint in range(17):
        keypoints += [15.0 + 2 * joint, 15.0 + joint, 2]
    for number in (1, 2, 3):
        write_picture(folder / "val2017" / f"{number:012d}.jpg", picture(number))
        address = f"http://images.cocodataset.org/val2017/{number:012d}.jpg"
        images.append({"id": number, "coco_url": address, "width": WIDTH, "height": HEIGHT})
        thing = {"id": number, "image_id": number, "category_id": 1, "bbox": [10, 10, 40, 30]}
        things.append({**thing, "area": 1200.0, "iscrowd": 0, "keypoints": keypoints, "num_keypoints": 17})
    for kind, names in (("instances", COCODetection.CLASSES), ("person_keypoints", COCOKeyPoints.CLASSES)):
        categories = [{"id": number + 1, "name": name} for number, name in enumerate(names)]
        document = {"images": images, "annotations": things, "categories": categories}
        (folder / "annotations" / f"{kind}_val2017.json").write_text(json.dumps(document))
    return folder


def _halves(left: int, right: int) -> Any:
    mask = np.full((HEIGHT, WIDTH), right, np.uint8)
    mask[:, : WIDTH // 2] = left
    return mask
