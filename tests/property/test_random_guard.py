"""Whatever the guard keeps in float32 is, and regions are all there is; on random graphs, without MXNet."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.guard.regions import low_regions, names_of_operators
from mxamp.policy import Policy
from tests.building import BF16, assert_sound, capable, convert, plan_for
from tests.property.strategies import Sample, samples

pytestmark = pytest.mark.filterwarnings("ignore:mxamp knows nothing about the operator _mystery")


def values(sample: Sample) -> dict[str, Any]:
    return {name: sample.params[name] for name in sample.graph.variables if name in sample.params}


@given(sample=samples(unknown=True), data=st.data())
def test_whatever_is_kept_is_float32_and_the_graph_is_sound(sample: Sample, data: st.DataObject) -> None:
    names = list(names_of_operators(sample.graph))
    kept = {name: "measured" for name in names if data.draw(st.booleans())}
    model = convert(sample.graph, values(sample), kept=kept, fold_batch_norm=True)
    assert_sound(sample.graph, model)
    assert model.report is not None
    was_low = {
        node.name for node in model.report.nodes if node.compute == "bfloat16" and "already" in node.reason
    }
    low = {node.name for node in model.report.nodes if node.compute == "bfloat16"}
    assert not (low - was_low) & set(kept)


@given(sample=samples())
def test_keeping_everything_leaves_no_cast(sample: Sample) -> None:
    kept = dict.fromkeys(names_of_operators(sample.graph), "measured")
    model = convert(sample.graph, values(sample), kept=kept, fold_batch_norm=True)
    assert_sound(sample.graph, model)
    assert model.report is not None
    assert model.report.casts == ()


@given(sample=samples())
def test_every_low_node_is_in_one_region_and_pieces_are_all_of_it(sample: Sample) -> None:
    plan = plan_for(sample.graph, values(sample), policy=Policy.default(BF16), target=capable(BF16))
    regions = low_regions(sample.graph, plan, BF16)
    low = [
        node.name
        for node, decision in zip(sample.graph.nodes, plan.decisions)
        if decision is not None and decision.compute is BF16
    ]
    assert sorted(name for region in regions for name in region.nodes) == sorted(low)
    for region in regions:
        halves = region.halves()
        assert not halves or sum((half.nodes for half in halves), ()) == region.nodes
        assert all(half.starts for half in halves)
