"""Groups of a long graph: runs of nodes that keep the picture small and without cycles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.html.folding import MOST_SHOWN, Folding, fold

WORDS = st.lists(st.sampled_from(["net", "stage1", "stage2", "conv", "relu"]), min_size=1, max_size=4)
NAMES = st.lists(WORDS.map("_".join), max_size=200)


def held(folding: Folding, group: int) -> int:
    """Return how many nodes and groups a group holds directly; -1 stands for the whole picture."""
    return sum(g.parent == group for g in folding.groups) + sum(m == group for m in folding.members)


@given(NAMES, st.integers(4, 12))
def test_every_group_is_a_run_of_nodes_inside_the_one_around_it(names: list[str], most: int) -> None:
    folding = fold(names, [1] * len(names), most=most)
    assert len(folding.members) == len(names)
    for number, group in enumerate(folding.groups):
        assert group.parent < number
        assert 0 <= group.first < group.last <= len(names)
        if group.parent >= 0:
            around = folding.groups[group.parent]
            assert around.first <= group.first
            assert group.last <= around.last
            assert group.last - group.first < around.last - around.first
    for position, member in enumerate(folding.members):
        inside = [n for n, g in enumerate(folding.groups) if g.first <= position < g.last]
        assert member == (inside[-1] if inside else -1)


@given(NAMES, st.integers(4, 12))
def test_no_group_holds_more_than_is_readable(names: list[str], most: int) -> None:
    folding = fold(names, [1] * len(names), most=most)
    # A cut may leave pieces too small for a box of their own, which are shown as they are: two nodes each.
    assert all(held(folding, group) <= 2 * most for group in range(-1, len(folding.groups)))


def test_a_chain_of_ten_thousand_nodes_is_a_few_boxes_on_every_level() -> None:
    folding = fold([f"relu{number}" for number in range(10_000)], [1] * 10_000)
    assert max(held(folding, group) for group in range(-1, len(folding.groups))) <= MOST_SHOWN
    assert held(folding, -1) > 1


def test_blocks_are_named_by_what_their_nodes_have_in_common() -> None:
    names = [f"net_stage{stage}_conv{number}" for stage in range(3) for number in range(20)]
    folding = fold(names, [1] * 60)
    assert [group.label for group in folding.groups] == ["net_stage0", "net_stage1", "net_stage2"]


def test_a_group_without_a_name_of_its_own_is_called_by_its_first_and_last_node() -> None:
    folding = fold([f"net_relu{number}" for number in range(64)], [1] * 64)
    assert folding.groups[0].label == "relu0 ... relu7"


def test_groups_begin_where_the_fewest_values_cross() -> None:
    # Residual blocks of eight nodes: inside two values are alive, between them one.
    crossings = [1 if number % 8 == 3 else 2 for number in range(64)]
    folding = fold([f"n{number}" for number in range(64)], crossings)
    begins = [group.first for group in folding.groups if group.first]
    assert begins
    assert all(begin % 8 == 3 for begin in begins)


@pytest.mark.parametrize("count", [0, 1, MOST_SHOWN])
def test_a_small_graph_has_no_groups(count: int) -> None:
    assert fold(["n"] * count, [1] * count) == Folding((), (-1,) * count)
