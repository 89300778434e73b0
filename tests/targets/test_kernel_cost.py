"""What kernels cost: trees, several of them together, and their documents."""

from __future__ import annotations

import math
from typing import Any, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.errors import TargetError
from mxamp.targets import CostModel, Work
from mxamp.targets.kernel_cost import (
    Forest,
    Leaf,
    Split,
    cost_from_document,
    cost_to_document,
    kernel_microseconds,
    slower_by,
    together,
    trees_of,
)
from tests.decisions.priced import target

FLAT = {"one": 2.0, "read": 1e-3}
BY_ROW = {"trait": "row", "below": 16.0, "then": {"one": 8.0}, "else": {"one": 1.0, "read": 4e-3}}


def costs(**kernels: Any) -> CostModel:
    cost = target({"kernels": kernels, "corrections": {}}).cost
    assert cost is not None
    return cost


def test_trees_tell_their_geometric_mean() -> None:
    forest = cost_from_document({"forest": [FLAT, BY_ROW]}, "a test")
    for row, read, first, second in ((8, 6000.0, 8.0, 8.0), (32, 2000.0, 4.0, 9.0), (8, 0.0, 2.0, 8.0)):
        told = kernel_microseconds(forest, {"one": 1.0, "read": read}, {"row": row})
        assert told == pytest.approx(math.sqrt(first * second))


@given(
    st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=9),
    st.floats(0, 1e9),
)
def test_what_trees_tell_lies_between_the_least_and_the_most(rates: Sequence[float], read: float) -> None:
    trees = tuple(Leaf({"one": rate, "read": 1e-9 * rate}) for rate in rates)
    amounts = {"one": 1.0, "read": read}
    each = [kernel_microseconds(tree, amounts, {}) for tree in trees]
    told = kernel_microseconds(Forest(trees), amounts, {})
    assert min(each) * (1 - 1e-9) <= told <= max(each) * (1 + 1e-9)


def test_a_target_may_have_several_trees_for_a_family() -> None:
    shape = (1, 8, 30)
    work = Work(0, 480, rank=3, inputs=(shape,), output=shape)
    alone = costs(exp={"float32": FLAT}).microseconds("exp", work, low=False)
    twice = costs(exp={"float32": {"forest": [FLAT, {"one": 4 * alone}]}})
    assert twice.microseconds("exp", work, low=False) == pytest.approx(2 * alone)


@pytest.mark.parametrize("document", [FLAT, BY_ROW, {"forest": [FLAT, BY_ROW, BY_ROW]}])
def test_costs_are_the_same_after_writing_and_reading(document: dict[str, Any]) -> None:
    assert cost_to_document(cost_from_document(document, "a test")) == document


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"forest": []}, "a forest must be a list of trees, not []"),
        ({"forest": FLAT}, "a forest must be a list of trees"),
        ({"forest": [FLAT, 3]}, "3 is neither rates nor a condition"),
        ({"forest": [{"forest": [FLAT]}]}, "'forest' is no amount"),
        ({**BY_ROW, "then": {"forest": [FLAT]}}, "'forest' is no amount"),
    ],
)
def test_what_is_no_forest_is_refused(document: dict[str, Any], said: str) -> None:
    with pytest.raises(TargetError, match="kernels: exp, float32") as refused:
        costs(exp={"float32": document})
    assert said in str(refused.value)


def test_all_trees_are_made_longer() -> None:
    forest = slower_by(cost_from_document({"forest": [FLAT, BY_ROW]}, "a test"), 3.0)
    assert cost_to_document(forest) == {
        "forest": [
            {"one": 6.0, "read": 3e-3},
            {**BY_ROW, "then": {"one": 24.0}, "else": {"one": 3.0, "read": 0.012}},
        ]
    }


def test_trees_that_are_equal_are_one() -> None:
    tree = cost_from_document(BY_ROW, "a test")
    assert isinstance(tree, Split)
    assert together([tree, tree]) == tree
    both = together([tree, Leaf(FLAT)])
    assert both == Forest((tree, Leaf(FLAT)))
    assert (trees_of(tree), trees_of(both)) == ((tree,), (tree, Leaf(FLAT)))
