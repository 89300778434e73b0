"""Small models whose conversion is known, and recorded comparisons."""

from __future__ import annotations

from typing import Callable

import numpy as np
import pytest

from mxamp.compare.fidelity import Fidelity, LayerFidelity, OutputFidelity
from mxamp.compare.metrics import Distance
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter


def _conv_net(name: str = "data", **data_attrs: str) -> Model:
    """Return conv0 -> relu0 -> conv1 -> pool -> fc0, for 3-channel images of any size."""
    generator = np.random.default_rng(3)
    shapes = {
        "conv0_weight": (4, 3, 3, 3),
        "conv1_weight": (4, 4, 3, 3),
        "fc0_weight": (5, 4),
        "fc0_bias": (5,),
    }
    params = {
        key: ArrayParameter(generator.normal(0, 0.3, shape).astype("float32"))
        for key, shape in shapes.items()
    }
    conv = {"kernel": "(3, 3)", "num_filter": "4", "no_bias": "True"}
    nodes = (
        Node(VARIABLE, name, data_attrs),
        Node(VARIABLE, "conv0_weight"),
        Node("Convolution", "conv0", conv, (Entry(0), Entry(1))),
        Node("Activation", "relu0", {"act_type": "relu"}, (Entry(2),)),
        Node(VARIABLE, "conv1_weight"),
        Node("Convolution", "conv1", conv, (Entry(3), Entry(4))),
        Node("Pooling", "pool", {"global_pool": "True", "pool_type": "avg", "kernel": "(1, 1)"}, (Entry(5),)),
        Node(VARIABLE, "fc0_weight"),
        Node(VARIABLE, "fc0_bias"),
        Node("FullyConnected", "fc0", {"num_hidden": "5"}, (Entry(6), Entry(7), Entry(8))),
    )
    return Model(Graph(nodes, (Entry(9),), {"mxnet_version": ["int", 10901]}), params, {})


@pytest.fixture
def conv_net() -> Callable[..., Model]:
    """Build a model: ``conv_net(name="data", **attributes of the input)``."""
    return _conv_net


def _distance(relative: float) -> Distance:
    return Distance(10, relative, relative / 2, -relative / 4, 1.0)


def _layer(name: str, relative: float, jump: float = 1.0) -> LayerFidelity:
    return LayerFidelity(name, "Convolution", name, "bfloat16", (1, 4, 8, 8), _distance(relative), jump)


@pytest.fixture
def fidelity() -> Fidelity:
    """Return a comparison in which ``conv1`` goes wrong."""
    layers = (_layer("conv0", 0.002), _layer("conv1", 0.5, 90.0), _layer("stage2_unit10_conv2_fwd", 0.4))
    return Fidelity(
        outputs=(OutputFidelity("fc0_output", (8, 5), _distance(0.25), 0.875, 0.25),),
        layers=layers,
        unmatched=("bn0",),
        samples=8,
        batch_size=4,
        layer_samples=4,
        ctx="cpu(0)",
        low_dtype="bfloat16",
        threshold=0.0625,
        fusion=True,
        notes=("A note.",),
    )
