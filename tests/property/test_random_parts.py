"""Random networks of channels that are put together compute the same where layers read the parts."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.errors import OperatorError
from mxamp.graph import Graph
from mxamp.model import Model
from tests.building import parameters
from tests.passes.parts import Parts

SIDE = 40
SEEDS = range(40)


def network(seed: int) -> tuple[Parts, Graph]:
    """Return layers, norms, poolings and sums of random images, some of which are put together."""
    net = Parts(seed)
    random = net.random

    def choice(found: list[Any]) -> Any:
        return found[int(random.integers(len(found)))]

    first = 8 * int(random.integers(1, 4))
    images = [(net.layer(net.var("x"), "stem", 3, first, 3), first)]
    for number in range(int(random.integers(4, 14))):
        (image, channels), kind = choice(images), random.random()
        if kind < 0.35:
            filters = choice([8, 16, 24, 32, 12])
            options = {"no_bias": True} if random.random() < 0.3 else {}
            made = net.layer(image, f"layer{number}", channels, filters, choice([1, 3]), **options)
            images.append((made, filters))
        elif kind < 0.65:
            parts = [choice(images) for _ in range(int(random.integers(2, 4)))]
            made = net.joined(*[part for part, _ in parts], name=f"joined{number}")
            images.append((made, sum(size for _, size in parts)))
        elif kind < 0.75:
            images.append((net.relu(image, f"relu{number}"), channels))
        elif kind < 0.85:
            images.append((net.norm(image, f"norm{number}", channels), channels))
        elif kind < 0.93:
            pooled = net.op(
                "Pooling", image, name=f"pool{number}", kernel="(3, 3)", pad="(1, 1)",
                pool_type=choice(["max", "avg"]),
            )  # fmt: skip
            images.append((pooled, channels))
        else:
            others = [other for other, size in images if size == channels and other != image]
            if others:  # of one thing with itself MXNet's fusion makes a layer that it cannot run
                images.append((net.op("elemwise_add", image, choice(others), name=f"sum{number}"), channels))
    image, channels = images[-1]
    heads = [net.layer(image, "last", channels, 8)]
    if random.random() < 0.2:
        heads.append(choice(images)[0])
    return net, net.graph(*heads)


def distance(expected: list[np.ndarray], found: list[np.ndarray]) -> float:
    return max(
        float(np.linalg.norm(own - wanted) / np.linalg.norm(wanted)) for wanted, own in zip(expected, found)
    )


def run_fused(model: Model, data: dict[str, np.ndarray]) -> list[np.ndarray]:
    from mxamp.runtime.executor import run_outputs

    try:
        return run_outputs(model, data)
    except OperatorError as error:
        raise AssertionError("what runs fused does not where layers read parts") from error


@pytest.mark.filterwarnings("ignore:The target cpu-bf16-avx2", "ignore:Nothing was converted")
def test_layers_that_read_parts_compute_the_same() -> None:
    pytest.importorskip("mxnet", reason="networks are run")
    from mxamp.runtime.executor import run_outputs

    apart = checked = 0
    for seed in SEEDS:
        net, graph = network(seed)
        shapes = {"x": (1, 3, SIDE, SIDE)}
        model = mxamp.convert_model(
            graph, net.params, {}, "bfloat16", target="cpu-bf16-avx2", input_shapes=shapes
        )
        assert model.report is not None
        apart += any("readers read the parts" in node.reason for node in model.report.nodes)
        states = {name for name in net.params if name.endswith(("_mean", "_var"))}
        own = parameters(net.params)
        before = Model(
            graph,
            {name: value for name, value in own.items() if name not in states},
            {name: own[name] for name in states},
        )
        data = {"x": net.random.normal(0, 1, shapes["x"]).astype(np.float32)}
        expected = run_outputs(before, data, fusion=False)
        assert distance(expected, run_outputs(model, data, fusion=False)) < 1e-5, seed
        with contextlib.suppress(OperatorError):  # MXNet's fusion fails on some as they are, or errs
            if distance(expected, run_outputs(before, data)) < 1e-5:
                checked += 1
                assert distance(expected, run_fused(model, data)) < 1e-5, seed
    assert apart > len(SEEDS) // 2
    assert checked > len(SEEDS) // 2
