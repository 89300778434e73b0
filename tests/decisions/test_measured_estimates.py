"""Estimates from measured times: units are what ran as one kernel, and every microsecond is somewhere."""

from __future__ import annotations

from typing import Any

import pytest

from mxamp.decisions.estimates import Estimates
from mxamp.decisions.measured import measured_estimates
from mxamp.decisions.placing import MeasuredTimes, Placing
from mxamp.graph import Entry
from mxamp.ops import FACTS
from mxamp.placement import place
from mxamp.targets import Target
from tests.building import BF16, Net, capable, plan_for
from tests.decisions.priced import shapes_of, target

SHAPE = (1, 4, 5, 5)


class Chain:
    """data -> conv -> relu -> exp, and what was measured of it, by name."""

    def __init__(self, **times: Any) -> None:
        net = Net()
        self.conv = net.conv(net.var("data"), "conv")
        self.relu = net.op("Activation", self.conv, name="relu", act_type="relu")
        self.exp = net.op("exp", self.relu, name="exp")
        self.net, self.graph = net, net.graph(self.exp)
        self.position = {node.name: number for number, node in enumerate(self.graph.nodes)}
        self.times = MeasuredTimes(**{key: self.by_position(value) for key, value in times.items()})

    def by_position(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.position[name]: time for name, time in value.items()}
        if isinstance(value, list):
            return [tuple(self.position[name] for name in kernel) for kernel in value]
        return value

    def estimates(self, choices: set[str], where: Target | None = None) -> Estimates:
        return measured_estimates(
            self.graph,
            [FACTS.canonical(node.op) for node in self.graph.nodes],
            where or capable(BF16),
            shapes_of(self.graph, self.net, SHAPE),
            self.times,
            choices={self.position[name] for name in choices},
        )

    def named(self, found: Estimates) -> dict[str, tuple[float, float | None]]:
        return {
            name: (found.float32[p], found.low.get(p))
            for name, p in self.position.items()
            if not self.graph.nodes[p].is_variable
        }


def test_times_are_those_that_were_measured() -> None:
    chain = Chain(float32={"conv": 9, "relu": 2, "exp": 3}, low={"conv": 4, "relu": 1, "exp": 30})
    found = chain.estimates({"conv", "relu"})
    assert chain.named(found) == {"conv": (9, 4), "relu": (2, 1), "exp": (3, None)}
    assert found.in_model == {chain.position[name] for name in ("conv", "relu", "exp")}
    assert not found.groups


def test_what_ran_as_one_kernel_is_one_unit() -> None:
    chain = Chain(
        float32={"conv": 9, "relu": 0, "exp": 3},
        low={"conv": 4, "relu": 0, "exp": 3},
        fused=[("conv", "relu")],
        fused_low=[("conv", "relu")],
    )
    found = chain.estimates({"conv", "relu"})
    assert found.groups == [(chain.position["conv"], chain.position["relu"])]


def test_a_float32_tail_costs_what_it_took_once_it_is_no_longer_fused() -> None:
    chain = Chain(
        float32={"conv": 9, "relu": 0, "exp": 3},
        low={"conv": 4, "relu": 2, "exp": 3},
        fused=[("conv", "relu")],
    )
    assert chain.named(chain.estimates({"conv"}))["conv"] == (9, 4 + 2)


def test_a_float32_head_costs_no_more_than_it_took_longer_without_its_tail() -> None:
    chain = Chain(
        float32={"conv": 9, "relu": 0, "exp": 3},
        low={"conv": 10, "relu": 1, "exp": 3},
        fused=[("conv", "relu")],
    )
    named = chain.named(chain.estimates({"relu"}))
    assert named["conv"] == (9, None)
    assert named["relu"] == (0, 1 + 1)


def test_nodes_that_were_not_measured_low_take_the_ratio_of_the_table() -> None:
    chain = Chain(float32={"conv": 8, "relu": 2, "exp": 3}, low={"relu": 1})
    twice_as_fast = target({"bytes_per_us": {"float32": 1, "low": 1}}, rounds_once=[])
    found = chain.estimates({"conv", "relu"}, twice_as_fast)
    assert chain.named(found)["conv"] == (8, pytest.approx(4))
    assert chain.position["conv"] not in found.in_model
    assert chain.named(chain.estimates({"conv"}))["conv"] == (8, 8)  # a target without costs knows no ratio


def test_casts_cost_what_was_measured_else_by_size_else_by_the_table() -> None:
    chain = Chain(float32={"conv": 8, "relu": 2, "exp": 3}, low={"conv": 4})
    conv, relu = Entry(chain.position["conv"]), Entry(chain.position["relu"])
    assert chain.estimates({"conv"}).cast(conv, down=True) == 0.0
    assert chain.estimates({"conv"}, target()).cast(conv, down=True) == 6 * 100
    chain.times = MeasuredTimes(
        float32=chain.times.float32, casts_up={conv: 5.0}, cast_overhead=1.0, cast_per_element=0.1
    )
    found = chain.estimates({"conv"})
    assert found.cast(conv, down=False) == 5.0
    assert found.cast(conv, down=True) == found.cast(relu, down=False) == pytest.approx(11.0)


def test_both_directions_of_a_cast_reach_the_placement() -> None:
    chain = Chain(float32={"conv": 9, "relu": 0, "exp": 3}, low={"conv": 4})
    conv = Entry(chain.position["conv"])
    chain.times = MeasuredTimes(float32=chain.times.float32, casts_up={conv: 5.0}, casts_down={conv: 7.0})
    costs = chain.estimates({"conv"}).for_placement()
    assert costs.casts[conv.node][conv.output] == (5000, 7000)


def test_float32_nodes_may_take_other_times_beside_low_ones() -> None:
    chain = Chain(
        float32={"conv": 9, "relu": 2, "exp": 3},
        low={"conv": 4, "relu": 1},
        float32_beside={"exp": 5, "relu": 2},
    )
    found = chain.estimates({"conv", "relu"})
    exp, relu = chain.position["exp"], chain.position["relu"]
    assert found.float32[exp] == 3
    assert found.mixed({relu})[exp] == 5
    assert found.for_placement().nodes[relu] == (2000, 1000)


def test_decide_places_by_what_was_measured() -> None:
    low_is_slow = Chain(float32={"conv": 9, "relu": 2, "exp": 3}, low={"conv": 90, "relu": 20})
    low_is_fast = Chain(float32={"conv": 90, "relu": 20, "exp": 3}, low={"conv": 9, "relu": 2})
    for chain, dtype in ((low_is_slow, "float32"), (low_is_fast, "bfloat16")):
        placing = Placing(lambda problem, wanted: place(problem), "was measured", chain.times)
        plan = plan_for(
            chain.graph,
            chain.net.params,
            shapes=shapes_of(chain.graph, chain.net, SHAPE),
            placing=placing,
        )
        decision = plan.decisions[chain.position["conv"]]
        assert decision is not None
        assert decision.compute is not None
        assert decision.compute.label == dtype
        assert decision.reason.endswith(f"{dtype} was measured")
        assert plan.estimates is not None
