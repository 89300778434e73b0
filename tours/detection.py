"""A detector: convert an SSD, and judge it by boxes.

The model is an SSD with MobileNet 0.25, trained on digits over photographs (``model_zoo_eval/trained/``).
Indices, coordinates and the decoding of boxes stay FP32 by themselves; mean average precision says what is
lost.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from model_zoo_eval.accuracy.scenes import heldout_scenes, to_input
from model_zoo_eval.trained.networks import find_network, read
from tours.steps import mxamp, say

SCENES = 24


def main(folder: Path) -> Path:
    """Take the tour, and return the report."""
    model = folder / "ssd"
    read(find_network("ssd-mobilenet0.25-scenes")).save(model)
    scenes = heldout_scenes(SCENES)
    # Labels are rows of class, x1, y1, x2, y2 for each image, filled up with rows of class -1.
    labels = np.full((SCENES, max(len(scene.boxes) for scene in scenes), 5), -1, np.float32)
    for rows, scene in zip(labels, scenes):
        rows[: len(scene.boxes)] = np.column_stack([scene.labels, scene.boxes])
    samples, one = folder / "scenes.npz", folder / "one.npz"
    images = to_input(scenes)
    np.savez(samples, data=images, label=labels)
    np.savez(one, data=images[:1])
    converted, report = folder / "ssd-bf16", folder / "report.html"

    say("Convert for the images of one camera: batches of one.")
    mxamp("convert", model, "--dtype", "bf16", "--target", "auto", "--data", one, "-o", converted)

    say("Judge by the task: distances of outputs count every row that changed places in a ranking.")
    metric = ("--metric", "voc-map")
    mxamp("evaluate", model, converted, "--data", samples, *metric, "--latency-seconds", 1, "--batch-size", 1)

    say("The report; it says which nodes stayed FP32, and why.")
    options = ("--max-samples", 8, "--batch-size", 1, "--latency-seconds", 1)
    mxamp("report", converted, "--against", model, "--data", samples, *metric, *options, "-o", report)
    return report
