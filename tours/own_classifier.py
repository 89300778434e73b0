"""A classifier of one's own on a CPU server: convert, evaluate on one's labels, deploy, report.

The model is a ResNet-20 trained on handwritten digits (``demo/``); the data are digits it has never seen.
Yours are a pair of files from ``export`` or ``save_checkpoint``, and an ``.npz`` with the arrays ``data``
and ``label``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tools.digits import load_digits_split
from tours.steps import ROOT, TourError, mxamp, run, say

MODEL = ROOT / "demo" / "cifar_resnet20_v1-digits"

# What a server does: MXNet's Module, and a SymbolBlock. Neither knows mxamp.
SERVE = """
import mxnet as mx, numpy as np
prefix, file, how = sys.argv[1:]
images = mx.nd.array(np.load(file)["data"])
if how == "Module":
    module = mx.mod.Module.load(prefix, 0, data_names=["data"], label_names=None)
    module.bind([("data", images.shape)], for_training=False)
    module.forward(mx.io.DataBatch([images]), is_train=False)
    scores = module.get_outputs()[0]
else:
    net = mx.gluon.SymbolBlock.imports(prefix + "-symbol.json", ["data"], prefix + "-0000.params")
    net.hybridize(static_alloc=True, static_shape=True)
    scores = net(images)
print("".join(str(digit) for digit in scores.asnumpy().argmax(axis=1)))
"""


def main(folder: Path) -> Path:
    """Take the tour, and return the report."""
    split = load_digits_split()
    samples, few = folder / "held-out.npz", folder / "few.npz"
    np.savez(samples, data=split.heldout_images, label=split.heldout_labels)
    np.savez(few, data=split.heldout_images[:16])
    converted, report = folder / "digits-bf16", folder / "report.html"

    say("Convert for this machine. The guard times both models by turns; what is not faster stays FP32.")
    mxamp("convert", MODEL, "--dtype", "bf16", "--target", "auto", "--data", few, "-o", converted)

    say("Is it as good? Accuracy on labels, paired, with what chance alone would do.")
    mxamp("evaluate", MODEL, converted, "--data", samples, "--latency-seconds", 1)

    say("Deploy: the two files load in stock MXNet, where mxamp is not installed.")
    answers = {how: run(SERVE, converted, few, how).strip() for how in ("Module", "SymbolBlock")}
    truth = "".join(map(str, split.heldout_labels[:16]))
    for how, digits in (*answers.items(), ("the labels", truth)):
        print(f"{how:<12} {digits}")
    if answers["Module"] != answers["SymbolBlock"]:
        raise TourError("Module and SymbolBlock answer differently")

    say("The report: what was converted and why, size, speed, fidelity layer by layer, accuracy.")
    mxamp("report", converted, "--against", MODEL, "--data", samples, "--latency-seconds", 1, "-o", report)
    return report
