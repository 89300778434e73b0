from __future__ import annotations

from mxamp.guard.regions import Region, low_regions
from tests.building import BF16, Net, plan_for


def regions_of(net: Net, *heads):
    graph = net.graph(*heads)
    return low_regions(graph, plan_for(graph, net.params), BF16)


def test_a_cast_parts_two_regions():
    net = Net()
    first = net.op("relu", net.conv(net.var("data"), "c0"), name="r0")
    last = net.conv(net.op("exp", first, name="e0"), "c1")
    assert {region.nodes for region in regions_of(net, last)} == {("c0", "r0"), ("c1",)}


def test_branches_that_meet_are_one_region():
    net = Net()
    trunk = net.conv(net.var("data"), "c0")
    left, right = net.conv(trunk, "c1"), net.conv(trunk, "c2")
    (region,) = regions_of(net, net.op("elemwise_add", left, right, name="sum"))
    assert region.nodes == ("c0", "c1", "c2", "sum")


def test_nodes_that_only_read_the_same_float32_input_are_no_region():
    net = Net()
    data = net.op("exp", net.var("data"), name="e0")
    found = regions_of(net, net.conv(data, "c0"), net.conv(data, "c1"))
    assert {region.nodes for region in found} == {("c0",), ("c1",)}


def test_a_region_is_cut_before_a_green_node_and_the_pieces_are_all_of_it():
    region = Region(("r", "c0", "r0", "c1", "r1", "c2", "r2"), (1, 3, 5), 12.0)
    first, second = region.halves()
    assert first.nodes == ("r", "c0", "r0")
    assert second.nodes == ("c1", "r1", "c2", "r2")
    assert (first.starts, second.starts) == ((1,), (0, 2))
    assert first.expected_gain + second.expected_gain == 12.0
    assert first.halves() == ()


def test_halving_ends_at_single_green_nodes():
    region = Region(tuple(f"c{number}" for number in range(13)), tuple(range(13)))
    level = [region]
    while any(part.halves() for part in level):
        level = [half for part in level for half in part.halves() or (part,)]
    assert [part.nodes for part in level] == [(name,) for name in region.nodes]


def test_a_region_without_green_nodes_is_not_cut():
    assert Region(("add0", "add1"), ()).halves() == ()
