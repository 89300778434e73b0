"""BERT: masks, softmax and LayerNorm, and what FP16 would do on a GPU that is not here.

The encoder has BERT's form and two layers of 128 units; its weights are random, so that distances are
fidelity and nothing else. Its masks are of -1e18, which float16 does not hold.
"""

from __future__ import annotations

from pathlib import Path

import mxnet as mx
import numpy as np

from tools.networks.language import Bert
from tours.steps import mxamp, say

VOCABULARY, LENGTH, TEXTS = 1_000, 64, 8


def main(folder: Path) -> Path:
    """Take the tour, and return the report."""
    mx.random.seed(0)
    net = Bert(vocabulary=VOCABULARY, length=LENGTH, units=128, hidden=512, layers=2, heads=4)
    net.initialize(mx.init.Normal(0.1))
    net.hybridize()
    random = np.random.RandomState(0)
    words = random.randint(0, VOCABULARY, (TEXTS, LENGTH)).astype(np.float32)
    kinds = (np.arange(LENGTH) >= LENGTH // 2).astype(np.float32)[None].repeat(TEXTS, axis=0)
    lengths = random.randint(LENGTH // 2, LENGTH + 1, TEXTS).astype(np.float32)
    net(*(mx.nd.array(values) for values in (words, kinds, lengths)))
    model, converted, report = folder / "bert", folder / "bert-bf16", folder / "report.html"
    net.export(str(model))
    texts = folder / "texts.npz"
    np.savez(texts, data0=words, data1=kinds, data2=lengths)

    say("Convert. Every input has a shape, and the data has them all.")
    mxamp("convert", model, "--dtype", "bf16", "--target", "auto", "--data", texts, "-o", converted)

    say("And float16? Emulated on this CPU, mixed and with all in FP16, beside bfloat16 as it runs.")
    mxamp("compare", model, converted, "--emulate", "fp16", "--data", texts, "--no-layers")

    say("The report.")
    mxamp("report", converted, "--against", model, "--data", texts, "--latency-seconds", 1, "-o", report)
    return report
