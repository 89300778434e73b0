"""Small networks in MXNet, with weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mxamp.model import Model

mx = pytest.importorskip("mxnet")


def network(classes: int = 10) -> Any:
    x = mx.sym.var("data")
    for number in range(3):
        y = mx.sym.Convolution(
            x, num_filter=16, kernel=(3, 3), pad=(1, 1), no_bias=True, name=f"conv{number}"
        )
        y = mx.sym.BatchNorm(y, fix_gamma=False, name=f"norm{number}")
        x = mx.sym.Activation(y, act_type="relu", name=f"relu{number}")
    x = mx.sym.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg", name="pool")
    return mx.sym.FullyConnected(mx.sym.Flatten(x, name="flat"), num_hidden=classes, name="fc")


def with_weights(sym: Any, seed: int = 0, **shape: Any) -> Model:
    shapes, _, aux_shapes = sym.infer_shape(**shape)
    random = np.random.RandomState(seed)
    args = {}
    for name, size in zip(sym.list_arguments(), shapes):
        if name in shape:
            continue
        scale = 1 / math.sqrt(max(1, np.prod(size[1:])))
        values = (
            random.uniform(0.5, 1.5, size) if name.endswith("gamma") else scale * random.normal(size=size)
        )
        args[name] = mx.nd.array(values)
    auxs = {
        name: mx.nd.array(
            random.uniform(0.3, 0.6, size) if name.endswith("var") else 0.1 * random.normal(size=size)
        )
        for name, size in zip(sym.list_auxiliary_states(), aux_shapes)
    }
    return Model.of(sym, args, auxs)
