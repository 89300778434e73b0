"""Random graphs full of masks: whatever is rewritten computes what it did before."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxamp.graph import Entry, Graph
from mxamp.passes import RewriteMasks, run_passes
from mxamp.policy import Color, Policy
from tests.building import LOW, Net, capable, convert, state_for
from tests.passes.evaluation import Array, evaluate

SHAPE = (4, 6)
LARGE = (-1e18, 1e18, -1e18, -3.4028234663852886e38, 3.4e38, -1e12, -1e9, -1e5)
ENDS = ("softmax", "softmax", "softmax", "argmax", "exp", "relu")
MOVES_AND_SUMS = (
    *("broadcast_add", "broadcast_sub", "broadcast_mul", "where", "clip", "ones_like", "negative", "max"),
    *("_mul_scalar", "_plus_scalar", "_minus_scalar", "_rminus_scalar", "_maximum_scalar", "_full"),
    *("_equal_scalar", "_greater_scalar"),
)


def masked_graph(choice: random.Random) -> Graph:
    """Combine scores, masks and large constants at random, with softmax and the like at the end."""
    net = Net()
    scores = [net.op("erf", net.var(name)) for name in ("x", "y")]
    masks = [net.var(name) for name in ("m", "n")]

    def large() -> float:
        return choice.choice(LARGE)

    off = [
        net.op("_equal_scalar", masks[0], scalar=0),
        net.op("_rminus_scalar", masks[0], scalar=1),
        net.op("_equal_scalar", masks[1], scalar=0),
        masks[0],
    ]
    pool = [
        *scores,
        *off,
        net.op("_full", shape=SHAPE, value=large()),
        net.op("_mul_scalar", net.op("ones_like", scores[0]), scalar=large()),
        net.op("_mul_scalar", choice.choice(off), scalar=large()),
    ]

    def scalar(op: str, *ordinary: float) -> Entry:
        return net.op(op, choice.choice(pool), scalar=choice.choice([*ordinary, large()]))

    makers = [
        *2 * [lambda: net.op("where", choice.choice(masks), choice.choice(pool), choice.choice(pool))],
        *3 * [lambda: net.op("broadcast_add", choice.choice(pool), choice.choice(pool))],
        lambda: net.op("broadcast_sub", choice.choice(pool), choice.choice(pool)),
        lambda: net.op("broadcast_mul", choice.choice(pool), choice.choice(pool)),
        lambda: scalar("_mul_scalar", 2, -1, 0.5, 0.125),
        lambda: scalar("_plus_scalar", 1, -1),
        lambda: scalar("_minus_scalar", 1),
        lambda: scalar("_rminus_scalar", 1),
        lambda: scalar("_maximum_scalar", -50),
        lambda: net.op("_greater_scalar", choice.choice(pool), scalar=0),
        lambda: net.op("negative", choice.choice(pool)),
        lambda: net.op("max", choice.choice(pool), axis=-1, keepdims=True),
        lambda: net.op("clip", choice.choice(pool), a_min=choice.choice([-100, -1e18]), a_max=1e18),
    ]
    for _ in range(choice.randint(2, 7)):
        pool.append(choice.choice(makers)())
    heads = [net.op(choice.choice(ENDS), entry) for entry in pool[-choice.randint(1, 3) :]]
    return net.graph(*heads)


def inputs(seed: int, spread: float) -> dict[str, Array]:
    """Return scores that float16 holds, and masks with rows that are masked throughout."""
    generator = np.random.default_rng(seed)
    scores = {name: generator.normal(0, spread, SHAPE).astype(np.float16) for name in ("x", "y")}
    masks = {name: (generator.random(SHAPE) > 0.5).astype(np.float32) for name in ("m", "n")}
    masks["m"][0] = 0
    masks["n"][:2] = 0
    return {**{name: values.astype(np.float32) for name, values in scores.items()}, **masks}


@pytest.mark.parametrize("dtype", LOW, ids=str)
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_rewriting_masks_changes_no_result_in_float32(dtype, seed):
    graph = masked_graph(random.Random(seed))
    after = run_passes([RewriteMasks()], state_for(graph, {}, dtype)).graph
    values = inputs(seed, 20)
    for old, new in zip(graph.heads, after.heads):
        np.testing.assert_allclose(evaluate(after, values, new), evaluate(graph, values, old), atol=1e-6)


@pytest.mark.parametrize("softmax", [Color.GREEN, Color.RED], ids=["softmax low", "softmax float32"])
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_in_float16_masks_leave_finite_weights_that_agree(softmax, seed):
    graph = masked_graph(random.Random(seed))
    heads = tuple(head for head in graph.heads if graph.nodes[head.node].op == "softmax")
    values = inputs(seed, 4)
    expected = [evaluate(graph, values, head) for head in heads]
    if not heads or not all(np.isfinite(weights).all() for weights in expected):
        return
    policy = Policy.default("float16").with_operators(Color.GREEN, MOVES_AND_SUMS, "as low as can be")
    policy = policy.with_operators(softmax, ["softmax"], "asked for")
    model = convert(Graph(graph.nodes, heads), {}, policy.target_dtype, policy=policy, target=capable(LOW[0]))
    if not any(mask.after is not None for mask in model.report.masks):
        return
    for head, weights in zip(model.graph.heads, expected):
        found = evaluate(model.graph, values, head).astype(np.float32)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, weights, rtol=0, atol=0.05)
