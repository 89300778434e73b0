"""What no layer gains by is not rounded for a little time: low regions between float32 without a layer."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.decisions import LowPrecision
from mxamp.dtypes import DType
from mxamp.graph import Entry
from mxamp.model import Model
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, F16, Net, convert
from tests.decisions import priced

CAST_US = 2.0


def target(low_share: float, dtype: DType = BF16) -> Target:
    """Return a target where ``tanh`` takes that share of its time in low precision; ``softmax`` is RED."""
    document: dict[str, Any] = {
        "bytes_per_us": {"float32": 1, "low": 1},
        "cast": {"bytes_per_us": 1e6, "overhead_us": CAST_US},
        "operators": {"tanh": [{"float32": 1, "low": 2 * low_share}]},
    }
    return priced.target(document, rounds_once=[], dtype=dtype.label)


def softmaxed(net: Net, value: Entry, times: int) -> Entry:
    for _ in range(times):
        value = net.op("softmax", value)
    return value


def converted(share: float, *, layer: bool = False, dtype: DType = BF16, **options: Any) -> Model:
    """Convert ten operators, one of them ``tanh`` between the others, which are FP32."""
    net = Net()
    x = net.op("tanh", softmaxed(net, net.var("data"), 5), name="tanh")
    x = net.conv(x, "behind") if layer else x
    graph = net.graph(softmaxed(net, x, 4))
    shapes = priced.shapes_of(graph, net, (1, 4, 5, 5))
    return convert(
        graph,
        net.params,
        dtype,
        target=target(share, dtype),
        policy=Policy.default(dtype),
        shapes=shapes,
        **options,
    )


def is_low(model: Model, node: str = "tanh") -> bool:
    assert model.report is not None
    return model.report.node(node).compute != "float32"


def test_a_rounding_for_a_twentieth_of_the_time_is_spared() -> None:
    model = converted(0.5)
    assert not is_low(model)
    assert model.report is not None
    assert "float32 spares a rounding that no layer gains by" in model.report.node("tanh").reason
    assert not model.report.casts


def test_one_that_gains_more_is_made() -> None:
    net = Net()
    graph = net.graph(net.op("softmax", net.op("tanh", net.op("softmax", net.var("data")), name="tanh")))
    shapes = priced.shapes_of(graph, net, (1, 4, 5, 5))
    model = convert(graph, {}, target=target(0.4), policy=Policy.default(BF16), shapes=shapes)
    assert is_low(model)


def test_what_a_low_layer_reads_is_no_such_region() -> None:
    model = converted(0.5, layer=True)
    assert is_low(model)
    assert is_low(model, "behind")


def test_float16_rounds_so_finely_that_time_decides() -> None:
    assert is_low(converted(0.5, dtype=F16))


def test_between_low_inputs_nothing_is_rounded() -> None:
    """The cast to FP32 comes before it or behind it: there is one in any case."""
    net = Net()
    graph = net.graph(softmaxed(net, net.op("tanh", net.var("data"), name="tanh"), 9))
    shapes = priced.shapes_of(graph, net, (1, 4, 5, 5))
    model = convert(
        graph,
        {},
        target=target(0.5),
        policy=Policy.default(BF16),
        shapes=shapes,
        io_dtype={"data": "bfloat16"},
    )
    assert is_low(model)


@pytest.mark.parametrize(("regions", "spared"), [(1, 1), (4, 2)])
def test_together_they_give_up_no_more_than_a_tenth(regions: int, spared: int) -> None:
    """Each gains 316 us, of at least 9,280 with one of them and 8,320 with four."""
    net = Net()
    x = softmaxed(net, net.var("data"), 12 - 2 * regions)
    for number in range(regions):
        x = net.op("softmax", net.op("tanh", x, name=f"tanh{number}"))
    graph = net.graph(x)
    shapes = priced.shapes_of(graph, net, (1, 4, 5, 5))
    model = convert(graph, {}, target=target(0.6), policy=Policy.default(BF16), shapes=shapes)
    assert sum(not is_low(model, f"tanh{number}") for number in range(regions)) == spared


def test_required_leaves_what_takes_the_least_time() -> None:
    assert is_low(converted(0.5, low_precision=LowPrecision.REQUIRED))
