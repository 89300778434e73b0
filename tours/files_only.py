"""Files only, and no MXNet: convert, inspect, verify, and hand over as ONNX; on Python 3.13, too.

The model is the ResNet-20 of ``demo/``; the data, 64 digits that it was not trained on, are beside this
script.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tours.steps import ROOT, mxamp, say

MODEL = ROOT / "demo" / "cifar_resnet20_v1-digits"
DIGITS = Path(__file__).resolve().parent / "digits.npz"
SHAPE = "data=64,3,32,32"


def main(folder: Path) -> Path:
    """Take the tour, and return the report."""
    # As the network was trained: ink from 0 to 1, less the mean of all pixels, by their deviation.
    told = json.loads(Path(f"{MODEL}.json").read_text(encoding="utf-8"))["input"]
    with np.load(DIGITS) as stored:
        pixels = stored["pixels"].astype(np.float32) / 255
    data = (pixels - told["mean"]) / told["std"]
    samples = folder / "digits.npz"
    np.savez(samples, data=data[:, None].repeat(3, axis=1).astype(np.float32))
    converted, report = folder / "digits-bf16", folder / "report.html"

    say("Convert. The shape lets costs decide; without MXNet nothing is run here.")
    mxamp("convert", MODEL, "--dtype", "bf16", "--input-shape", SHAPE, "--no-guard", "-o", converted)

    say("What runs in which precision, and are the files what was written?")
    mxamp("inspect", converted)
    mxamp("verify", converted)

    say("The same as ONNX: FP32, and each rounding as a Cast down and back, which any runtime computes.")
    before, after = folder / "digits.onnx", folder / "digits-bf16.onnx"
    mxamp("export", MODEL, "--input-shape", SHAPE, "-o", before)
    mxamp("export", converted, "--input-shape", SHAPE, "--explicit-casts", "-o", after)

    say("How far apart? ONNX Runtime computes both on the digits.")
    mxamp("compare", before, after, "--data", samples, "--tolerance", "0.02")

    say("The report, from the files alone.")
    mxamp("report", converted, "-o", report)
    return report
