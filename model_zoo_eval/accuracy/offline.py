"""What is measured offline: the networks trained here, on digits and scenes that none of them has seen."""

from __future__ import annotations

from typing import Iterator

import numpy as np

from model_zoo_eval.accuracy.evaluate import Sample, Subject
from model_zoo_eval.accuracy.meters import ClassMeter, PixelMeter, VocMeter
from model_zoo_eval.accuracy.scenes import heldout_scenes, to_input
from model_zoo_eval.trained.networks import CLASSIFIER, DETECTOR, Network, enlarged, read
from mxamp.errors import DataError
from tools.digits import CLASSES, load_digits_split

__all__ = ["SCENES", "describe_data", "offline_subject"]

SCENES = 200
"""How many held-out scenes there are."""


def describe_data(network: Network) -> str:
    """Say what a network is judged on."""
    if network.task == CLASSIFIER:
        return "digits of scikit-learn, held out"
    return "scenes of digits over photographs, held out"


def offline_subject(network: Network, samples: int | None = None) -> Subject:
    """Return a trained network and the held-out samples to judge it by.

    Parameters
    ----------
    network
        The network.
    samples
        How many samples, from the first on; by default all there are.

    Raises
    ------
    DataError
        When there are not so many samples, or a package is missing that data comes with.
    ModelFileNotFoundError, ParamsError
        When the network's files are missing or damaged.
    """
    model = read(network)
    if network.task == CLASSIFIER:
        split = load_digits_split()
        count = _count(samples, len(split.heldout_labels), "digits")

        def digits() -> Iterator[Sample]:
            for number in range(count):
                label = np.array(split.heldout_labels[number])
                image = enlarged(split.heldout_images[number : number + 1], network)
                yield {"data": image}, {"label": label}

        return Subject(model, digits, ClassMeter)
    count = _count(samples, SCENES, "scenes")
    scenes = heldout_scenes(SCENES)[:count]
    images = to_input(scenes)

    def composed() -> Iterator[Sample]:
        for number, scene in enumerate(scenes):
            truth = {"boxes": scene.boxes, "labels": scene.labels, "mask": scene.mask}
            yield {"data": images[number : number + 1]}, {**truth, "objects": scene.objects}

    if network.task == DETECTOR:
        names = [str(digit) for digit in range(CLASSES)]
        return Subject(model, composed, lambda: VocMeter(names))
    return Subject(model, composed, lambda: PixelMeter(CLASSES + 1, items="digits"))


def _count(wanted: int | None, available: int, what: str) -> int:
    if wanted is not None and not 1 <= wanted <= available:
        raise DataError(
            f"There are {available} held-out {what}, so --samples can be 1 to {available}, not {wanted}."
        )
    return wanted or available
