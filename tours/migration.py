"""From mx.contrib.amp: the same program with another import, and what differs.

The model is the ResNet-20 of ``demo/``. Before: MXNet's own converter at its better setting. After: mxamp.
"""

from __future__ import annotations

from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet.contrib import amp as stock

import mxamp as amp
from tools.digits import load_digits_split
from tours.steps import ROOT, TourError, mxamp, say

MODEL = ROOT / "demo" / "cifar_resnet20_v1-digits"


def main(folder: Path) -> Path:
    """Take the tour, and return the report."""
    images = load_digits_split().heldout_images[:64]
    sym, args, auxs = mx.model.load_checkpoint(str(MODEL), 0)
    options = {"target_dtype": "bfloat16", "cast_optional_params": True}

    say("Before: mx.contrib.amp. It changes the dictionaries that it is given: these are copies.")
    before = stock.convert_model(sym, dict(args), dict(auxs), **options)
    print("outputs:", before[0].list_outputs())

    say("After: the same call, of mxamp. The triple unpacks as before; it is a Model, too.")
    after = amp.convert_model(sym, args, auxs, **options)
    sym16, args16, auxs16 = after
    print("outputs:", sym16.list_outputs(), "parameters:", len(args16) + len(auxs16))
    if sym16.list_outputs() != sym.list_outputs():
        raise TourError("mxamp changed the names of the outputs")

    say("How far is each from FP32, on the same images?")
    for name, model in (("mx.contrib.amp", before), ("mxamp", after)):
        fidelity = amp.compare_models((sym, args, auxs), model, images, layers=False, by_position=True)
        print(f"{name:<15} relative L2 error {fidelity.outputs[0].distance.relative_l2:.2e}")

    say("Saving: MXNet's own save drops the casts, without a word. model.save keeps them.")
    converted = folder / "digits-bf16"
    after.save(converted)
    mxamp("inspect", converted)

    say("The report.")
    samples, report = folder / "images.npz", folder / "report.html"
    np.savez(samples, data=images)
    mxamp("report", converted, "--against", MODEL, "--data", samples, "--latency-seconds", 1, "-o", report)
    return report
