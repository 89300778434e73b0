"""A plan has to gain by its casts, as estimated, and by more than estimates are worth."""

from __future__ import annotations

from typing import Any, Mapping

import pytest

from mxamp.decisions import LowPrecision
from mxamp.graph import Entry
from mxamp.model import Model
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, Net, convert
from tests.decisions import priced

CAST_US, TANH_US = 2.0, 800.0


def target(tanh_us: float, rates: Mapping[str, float] = {"float32": 0.1, "low": 0.2}) -> Target:
    """Return a target where layers are twice as fast low, and ``tanh``, 800 us in FP32, takes ``tanh_us``."""
    return priced.target(
        {
            "flops_per_us": rates,
            "bytes_per_us": {"float32": 2, "low": 1},
            "cast": {"bytes_per_us": 1e6, "overhead_us": CAST_US},
            "operators": {"tanh": [{"float32": 2, "low": tanh_us / 400}]},
        },
        rounds_once=[],
    )


def island(net: Net) -> Entry:
    """Two convolutions, 8 ms each in FP32, and between them what may be faster in FP32."""
    return net.conv(net.op("tanh", net.conv(net.var("data"), "before"), name="tanh"), "behind")


def converted(where: Target, **options: Any) -> Model:
    net = Net()
    graph = net.graph(island(net))
    shapes = priced.shapes_of(graph, net, (1, 4, 5, 5))
    return convert(graph, net.params, target=where, policy=Policy.default(BF16), shapes=shapes, **options)


def computing_low(model: Model) -> set[str]:
    assert model.report is not None
    return {node.name for node in model.report.nodes if node.compute == "bfloat16"}


def reason(model: Model, node: str) -> str:
    assert model.report is not None
    return model.report.node(node).reason


def test_casts_that_hardly_gain_are_not_put_in() -> None:
    model = converted(target(TANH_US + 2 * CAST_US + 50))  # of some 9 ms
    assert computing_low(model) == {"before", "tanh", "behind"}
    assert "needs the fewest casts here; more would hardly gain, as estimated" in reason(model, "tanh")


def test_casts_that_gain_are_put_in() -> None:
    model = converted(target(TANH_US + 2 * CAST_US + 500))
    assert computing_low(model) == {"before", "behind"}
    assert "takes the least time here, as estimated" in reason(model, "tanh")


def test_required_is_an_order_and_what_is_free_still_takes_the_least_time() -> None:
    model = converted(target(TANH_US + 2 * CAST_US + 50), low_precision=LowPrecision.REQUIRED)
    assert computing_low(model) == {"before", "behind"}


def test_the_simple_plan_is_not_taken_where_it_hardly_gains_on_fp32() -> None:
    """Layers gain 6 %, and all but the casts of that goes with ``tanh``."""
    hardly = {"float32": 0.1, "low": 0.106}
    assert computing_low(converted(target(TANH_US, hardly))) == {"before", "tanh", "behind"}
    model = converted(target(TANH_US + 2 * CAST_US + 700, hardly))
    assert computing_low(model) == {"before", "behind"}
    assert "takes the least time here, as estimated" in reason(model, "tanh")


@pytest.mark.parametrize(("low_rate", "is_low"), [(0.102, False), (0.106, True)])
def test_low_precision_has_to_gain_three_percent_at_all(low_rate: float, is_low: bool) -> None:
    rates = {"float32": 0.1, "low": low_rate}
    model = converted(target(TANH_US, rates))
    assert computing_low(model) == ({"before", "tanh", "behind"} if is_low else set())
    if not is_low:
        assert "more would hardly gain, as estimated" in reason(model, "before")
    required = converted(target(TANH_US, rates), low_precision=LowPrecision.REQUIRED)
    assert computing_low(required) >= {"before", "behind"}
