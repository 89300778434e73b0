"""Values too large for the dtype keep what reads them in FP32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mxamp.graph import Entry
from mxamp.policy import Color, Policy
from mxamp.policy.parts import UserRule
from mxamp.policy.selector import Selector
from tests.building import BF16, F16, Net, colors, red

LEAST = float(np.finfo(np.float32).min)


def masked_scores(net: Net, factor: float = LEAST) -> Entry:
    """Return scores plus a mask times a factor; GREEN, RED, and the sum that the tests are about."""
    scores = net.fc(net.var("x"), "scores")
    mask = net.op("_mul_scalar", net.var("mask"), name="mask_values", scalar=factor)
    return net.op("broadcast_add", scores, mask, name="masked")


def test_the_region_ends_at_the_first_operator_that_neither_moves_nor_adds() -> None:
    net = Net()
    moved = net.op("Reshape", masked_scores(net), name="moved", shape="(0, -1)")
    weights = net.op("softmax", moved, name="weights")
    after = net.op("broadcast_add", weights, weights, name="after")
    verdicts = colors(net.graph(net.fc(after, "last")), net.params, F16)
    assert {"mask_values", "masked", "moved", "weights"} <= red(verdicts)
    assert not red(verdicts) & {"scores", "after", "last"}


def test_a_layer_that_reads_the_value_is_red_and_says_who_made_it() -> None:
    net = Net()
    verdicts = colors(net.graph(net.fc(masked_scores(net), "next")), net.params, F16)
    assert verdicts["next"].rule == "oversized region"
    assert verdicts["next"].reason == (
        "it reads values that 'mask_values' (_mul_scalar) makes beyond float16's largest value 65504"
    )


def test_a_value_that_the_dtype_holds_spreads_nothing() -> None:
    """-1e18 is beyond float16, and bfloat16 has the range of FP32."""
    net = Net()
    graph = net.graph(net.fc(masked_scores(net, -1e18), "next"))
    assert {"masked", "next"} <= red(colors(graph, net.params, F16))
    assert not red(colors(graph, net.params, BF16)) & {"masked", "next"}


@pytest.mark.parametrize(
    ("factors", "is_red"),
    [
        ([-65504.0], True),  # and scores below -16
        ([-4e4, -4e4], True),
        ([-3e4, -3e4], False),
        ([-1e4, -1e4, -1e4], False),
        ([0.125, 8.0], False),
    ],
)
def test_masks_within_the_range_add_up_beyond_it(factors: list[float], is_red: bool) -> None:
    """What is padded and what comes later, each with its mask: minus infinity in a whole row is NaN."""
    net = Net()
    scores = net.fc(net.var("x"), "scores")
    for number, factor in enumerate(factors):
        mask = net.op("_mul_scalar", net.var(f"mask{number}"), name=f"values{number}", scalar=factor)
        scores = net.op("broadcast_add", scores, mask, name=f"masked{number}")
    graph = net.graph(net.op("softmax", scores, name="weights"))
    found = colors(graph, net.params, F16)
    last = f"masked{len(factors) - 1}"
    assert (last in red(found)) is is_red
    if is_red:
        assert found[last].reason.startswith("masks that it adds up may reach")
        assert "weights" in red(found)
    assert last not in red(colors(graph, net.params, BF16))


def test_a_sum_of_masks_that_is_clipped_may_leave_the_range() -> None:
    net = Net()
    bounded = net.op("clip", masked_scores(net, -65504.0), name="bounded", a_min=-32768.0, a_max=65504.0)
    found = red(colors(net.graph(net.op("softmax", bounded)), net.params, F16))
    assert not found & {"masked", "bounded"}


def test_what_chooses_or_moves_a_mask_leaves_it_as_large_as_it_is() -> None:
    net = Net()
    x = net.var("x")
    least = net.op("_mul_scalar", net.op("ones_like", x), scalar=-65504.0)
    chosen = net.op("where", net.var("m"), x, least, name="chosen")
    moved = net.op("Reshape", chosen, name="moved", shape="(0, -1)")
    graph = net.graph(net.op("softmax", net.op("elemwise_add", moved, net.var("bias"), name="biased")))
    assert red(colors(graph, net.params, F16)) >= {"biased"}
    assert not red(colors(graph, net.params, F16)) & {"chosen", "moved"}


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("_full", {"value": LEAST, "shape": "(1, 4)"}),
        ("Pad", {"constant_value": LEAST, "mode": "constant", "pad_width": "(0, 0, 1, 1)"}),
        ("_plus_scalar", {"scalar": 1e38}),
    ],
)
def test_every_way_to_make_such_a_value_counts(op: str, attrs: dict[str, Any]) -> None:
    net = Net()
    data = net.var("x")
    made = net.op(op, *([] if op == "_full" else [data]), name="made", **attrs)
    joined = net.op("Concat", made, net.fc(data, "low"), name="joined", num_args=2)
    assert "joined" in red(colors(net.graph(joined), net.params, F16))


def test_a_parameter_beyond_the_range_counts() -> None:
    net = Net()
    mask = net.param("mask", 1, 4, value=LEAST)
    shifted = net.op("broadcast_add", net.fc(net.var("x"), "low"), mask, name="shifted")
    verdicts = colors(net.graph(net.op("softmax", shifted, name="weights")), net.params, F16)
    assert verdicts["shifted"].rule == "parameter range"
    assert verdicts["weights"].rule == "oversized region"


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("_maximum_scalar", {"scalar": LEAST}),
        ("_minimum_scalar", {"scalar": -LEAST}),
        ("clip", {"a_min": LEAST, "a_max": -LEAST}),
        ("_div_scalar", {"scalar": 1e18}),
        ("_greater_scalar", {"scalar": 1e18}),
    ],
)
def test_a_bound_that_no_value_reaches_makes_none(op: str, attrs: dict[str, Any]) -> None:
    net = Net()
    bounded = net.op(op, net.fc(net.var("x"), "first"), name="bounded", **attrs)
    verdicts = colors(net.graph(net.fc(bounded, "second")), net.params, F16)
    assert "second" not in red(verdicts)


def test_a_clip_brings_the_values_back() -> None:
    net = Net()
    clipped = net.op("clip", masked_scores(net), name="clipped", a_min=-100, a_max=100)
    verdicts = colors(net.graph(net.fc(clipped, "next")), net.params, F16)
    assert "clipped" in red(verdicts)
    assert "next" not in red(verdicts)


def test_what_reads_only_the_shape_is_no_part_of_it() -> None:
    net = Net()
    shaped = net.op("reshape_like", net.fc(net.var("y"), "other"), masked_scores(net), name="shaped")
    verdicts = colors(net.graph(net.fc(shaped, "next")), net.params, F16)
    assert not red(verdicts) & {"shaped", "next"}


def test_a_users_color_stands() -> None:
    net = Net()
    graph = net.graph(net.fc(masked_scores(net), "next"))
    rule = UserRule(Selector.make(names=["masked"]), Color.GREEN, "measured")
    verdicts = colors(graph, net.params, F16, Policy.default(F16).with_rules([rule]))
    assert verdicts["masked"].color is Color.GREEN
    assert verdicts["next"].color is Color.RED
