"""What loops take is told for every iteration, by what was decided inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="loops are traced by MXNet")

import mxamp

UNITS = 1024


def loop(steps: int, *, layers: int = 1, kind: str = "foreach") -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return a network that runs dense layers in every step, its weights, and its inputs' shapes."""
    weights = [mx.sym.var(f"w{number}") for number in range(layers)]

    def step(state: Any) -> Any:
        for weight in weights:
            state = mx.sym.FullyConnected(state, weight, num_hidden=UNITS, no_bias=True)
        return mx.sym.Activation(state, act_type="tanh")

    data, start = mx.sym.var("data"), mx.sym.var("start")
    shapes = {"data": (steps, 1, UNITS), "start": (1, UNITS)}
    if kind == "foreach":
        outputs, _ = mx.sym.contrib.foreach(
            lambda x, states: ([step(x + states[0])], [step(x + states[0])]), data, [start]
        )
        symbol = outputs[0]
    elif kind == "while_loop":
        outputs, _ = mx.sym.contrib.while_loop(
            cond=lambda count, state: count < steps,
            func=lambda count, state: ([step(state)], [count + 1, step(state)]),
            loop_vars=(mx.sym.zeros((1,)), start),
            max_iterations=steps,
        )
        symbol, shapes = outputs[0], {"start": (1, UNITS)}
    else:
        symbol = mx.sym.contrib.cond(
            mx.sym.sum(start) < 1, lambda: step(start), lambda: step(step(step(start)))
        )
        shapes = {"start": (1, UNITS)}
    random = np.random.default_rng(0)
    args = {f"w{number}": mx.nd.array(random.normal(0, 0.05, (UNITS, UNITS))) for number in range(layers)}
    return symbol, args, shapes


def told(steps: int, target: str = "cpu-bf16-zen5", **options: Any) -> mxamp.Report:
    symbol, args, shapes = loop(steps, **options)
    return mxamp.convert_model(symbol, args, {}, "bfloat16", target=target, input_shapes=shapes).report


def float32_us(report: mxamp.Report) -> float:
    (node,) = [node for node in report.nodes if node.op in ("_foreach", "_while_loop", "_cond")]
    assert node.float32_us is not None
    return node.float32_us


@pytest.mark.parametrize("kind", ["foreach", "while_loop"])
def test_every_iteration_counts(kind: str) -> None:
    one, many = (float32_us(told(steps, kind=kind)) for steps in (10, 100))
    assert many / one == pytest.approx(10, rel=0.05)


def test_what_is_inside_counts() -> None:
    one, three = (float32_us(told(20, layers=layers)) for layers in (1, 3))
    assert three > 1.5 * one


def test_of_branches_the_longest_counts() -> None:
    branch = float32_us(told(1, kind="cond"))
    dense = float32_us(told(1))
    assert branch > dense  # three layers, and two in a step of the loop


def test_what_is_low_inside_is_told_low() -> None:
    report = told(50)
    (node,) = [node for node in report.nodes if node.op == "_foreach"]
    assert node.float32_us is not None
    assert node.mixed_us is not None
    inner = [each for each in report.nodes if "/" in each.name and each.op == "FullyConnected"]
    assert {each.compute for each in inner} == {"bfloat16"}
    assert node.mixed_us < node.float32_us
    assert report.time is not None
    assert report.time.float32_us >= node.float32_us


def test_without_shapes_nothing_is_told() -> None:
    symbol, args, _ = loop(5)
    assert mxamp.convert_model(symbol, args, {}, "bfloat16").report.time is None
