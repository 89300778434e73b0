"""Saved models as a user without mxamp reads and runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

__all__ = ["predict"]


def predict(prefix: Path, images: NDArray[np.float32], *, batch_size: int = 128) -> NDArray[Any]:
    """Load a classifier with stock MXNet and run it.

    Parameters
    ----------
    prefix : pathlib.Path
        What the files' names start with; epoch 0 is read.
    images : numpy.ndarray
        float32, shape (images, channels, height, width), normalized.
    batch_size : int, default 128
        Images in one forward pass.

    Returns
    -------
    numpy.ndarray
        Shape (images, classes): the scores.
    """
    sym, args, auxs = mx.model.load_checkpoint(str(prefix), 0)
    module = mx.mod.Module(sym, data_names=["data"], label_names=None, context=mx.cpu())
    batches = mx.io.NDArrayIter(images, batch_size=min(batch_size, len(images)))
    module.bind(data_shapes=batches.provide_data, for_training=False)
    module.set_params(args, auxs)
    scores: NDArray[Any] = module.predict(batches).asnumpy()
    return scores
