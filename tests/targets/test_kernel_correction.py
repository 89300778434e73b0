"""Corrections of kernels' times: trees of factors, their documents, and what they do to costs."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxamp.targets
from mxamp.errors import TargetError
from mxamp.targets import CostModel, Target, Work
from mxamp.targets.kernel_correction import (
    NAMES,
    Condition,
    Correction,
    correction_from_document,
    correction_to_document,
)
from tests.decisions.priced import target

BY_CHANNELS = {"trait": "channels", "below": 16.5, "then": math.log(3), "else": 0.0}
BY_FAMILY = {"family": "exp", "then": math.log(2), "else": BY_CHANNELS}


def trees(*given: Any) -> dict[str, Any]:
    """Return the document of a correction for kernels of up to a millisecond."""
    return {"up_to_us": 1000, "trees": list(given)}


def costs(corrections: Any, **kernels: Any) -> CostModel:
    cost = target({"kernels": kernels, "corrections": corrections}).cost
    assert cost is not None
    return cost


def of(channels: int) -> Work:
    return Work(0, 2 * channels, inputs=((1, channels),), output=(1, channels), rank=2)


def test_trees_are_factors_of_each_other() -> None:
    correction = correction_from_document(trees(BY_CHANNELS, BY_FAMILY, 0.25), "a test")
    for family, channels, times in (("exp", 8, 6), ("exp", 32, 2), ("relu", 8, 9), ("relu", 32, 1)):
        found = correction.times(family, {"one": 1.0}, {"channels": channels}, 5.0)
        assert found == pytest.approx(math.exp(0.25) * times)


def test_of_kernels_larger_than_those_that_were_learned_from_rates_alone_tell() -> None:
    correction = correction_from_document(trees(0.25), "a test")
    assert correction.times("exp", {}, {}, 1000.0) == math.exp(0.25)
    assert correction.times("exp", {}, {}, 1000.1) == 1.0


def test_a_family_that_a_target_does_not_tell_apart_is_the_broader_one() -> None:
    """Both its rates and what corrects them were learned from the broader one's kernels."""
    layer = Work(0, 0, inputs=((4, 64), (32, 64)), output=(4, 32))
    rates = {"float32": {"one": 3.0}, "low": {"one": 3.0}}
    corrections = {"low": trees({"family": "FullyConnected", "then": math.log(2), "else": 0.0})}
    before = costs(corrections, FullyConnected=rates)
    since = costs(corrections, FullyConnected=rates, **{"FullyConnected of few rows": rates})
    assert before.microseconds("FullyConnected", layer, low=True) == pytest.approx(6.0)
    assert since.microseconds("FullyConnected", layer, low=True) == pytest.approx(3.0)


def test_what_a_kernel_has_none_of_is_nothing() -> None:
    tree = {"trait": "taps", "below": 1, "then": 0.5, "else": 0.0}
    assert correction_from_document(trees(tree), "a test").times("exp", {}, {}, 5.0) == math.exp(0.5)


def test_a_correction_is_the_same_after_writing_and_reading() -> None:
    document = trees(0.25, BY_FAMILY, {"family": "relu", "then": BY_FAMILY, "else": -0.5})
    correction = correction_from_document(document, "a test")
    written = json.loads(json.dumps(correction_to_document(correction)))
    assert written == document
    assert correction_from_document(written, "a test") == correction


def _leaf_of(tree: Any, values: Sequence[float]) -> float:
    while not isinstance(tree, float):
        tree = tree.lower if values[tree.number] < tree.below else tree.upper
    return tree


_VALUES = st.integers(-3, 3).map(float)

_TREES = st.recursive(
    st.floats(-1.0, 1.0),
    lambda part: st.builds(Condition, st.integers(0, len(NAMES)), _VALUES, part, part),
    max_leaves=16,
)


@given(
    forest=st.lists(_TREES, max_size=6),
    given_values=st.dictionaries(st.sampled_from(NAMES), _VALUES),
    family=st.sampled_from(("exp", "relu")),
)
def test_all_trees_at_once_come_to_the_leaves_of_one_after_the_other(
    forest: Sequence[Any], given_values: Mapping[str, float], family: str
) -> None:
    correction = Correction(("exp",), tuple(forest), 1000.0)
    values = [*(given_values.get(name, 0.0) for name in NAMES), float(family == "exp")]
    expected = math.exp(sum(_leaf_of(tree, values) for tree in forest))
    for _ in range(2):  # the second time what is known of such kernels is looked up
        assert correction.times(family, {}, given_values, 5.0) == pytest.approx(expected)


@pytest.mark.parametrize("upper", [True, False])
def test_a_tree_has_as_many_leaves_as_a_number_has_bits(upper: bool) -> None:
    """A tree of one side alone, whose last leaf has the highest bit, or whose first leaf has the lowest."""
    tree: Any = 0.0
    for number in range(15):
        below, sides = (15 - number, (0.5, tree)) if upper else (number + 1, (tree, 0.5))
        tree = {"trait": "channels", "below": below, "then": sides[0], "else": sides[1]}
    correction = correction_from_document(trees(tree), "a test")
    for channels, is_last in ((0, not upper), (7, False), (14, False), (15, upper)):
        found = correction.times("exp", {}, {"channels": channels}, 5.0)
        assert found == (1.0 if is_last else math.exp(0.5)), channels
    more = {**BY_CHANNELS, "then": tree}
    with pytest.raises(ValueError, match="corrections: low: a tree has more than 16 leaves"):
        correction_from_document(trees(more), "corrections: low")


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"trees": []}, "up_to_us"),
        ({"up_to_us": 5}, "trees"),
        ({"trees": [], "up_to_us": "5"}, "'5' is no number"),
        (trees({**BY_CHANNELS, "trait": "colour"}), "colour"),
        (trees({**BY_CHANNELS, "trait": "around"}), "around"),  # no property of a kernel's own
        (trees({**BY_CHANNELS, "below": "16"}), "'16' is no number"),
        (trees(True), "True is no number"),
        (trees(float("nan")), "nan is no number"),
        (trees({**BY_CHANNELS, "then": [1.0]}), "is no number"),
    ],
)
def test_what_is_no_correction_is_refused(document: Any, says: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError), match=says):
        correction_from_document(document, "corrections: low")


def test_a_tree_without_a_side_is_refused_in_a_target() -> None:
    document = builtin()
    document["cost"]["corrections"] = {"low": trees({"trait": "channels", "below": 3, "then": 0.1})}
    with pytest.raises(TargetError, match="else"):
        Target.from_document(document, source="a test")


def test_a_correction_is_of_one_dtype() -> None:
    model = costs({"low": trees(BY_CHANNELS)}, exp={"float32": {"one": 5.0}, "low": {"one": 4.0}})
    assert model.microseconds("exp", of(8), low=False) == 5
    assert model.microseconds("exp", of(8), low=True) == pytest.approx(12)
    assert model.microseconds("exp", of(32), low=True) == 4


def test_casts_are_corrected_and_what_only_the_table_knows_is_not() -> None:
    tree = {"family": "cast down", "then": math.log(2), "else": math.log(10)}
    rates = {"float32": {"one": 5.0}}
    model = costs({"float32": trees(tree)}, **{"cast down": rates, "cast up": rates})
    assert model.cast_microseconds(8, shape=(8,), down=True) == pytest.approx(10)
    assert model.cast_microseconds(8, shape=(8,), down=False) == pytest.approx(50)
    assert model.microseconds("exp", of(8), low=False) == costs({}).microseconds("exp", of(8), low=False)


def builtin() -> dict[str, Any]:
    path = Path(mxamp.targets.__file__).parent / "builtin" / "cpu-bf16.json"
    document = json.loads(path.read_text("utf-8"))
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({"machine": "a faster one"}, True),
        ({"operators": {"exp": [{"float32": 2, "low": 2}]}}, True),
        ({"corrections": {}}, False),
        ({"kernels": {"exp": {"float32": {"one": 1.0}}}}, False),
        ({"bytes_per_us": {"float32": 1, "low": 1}}, False),
    ],
)
def test_a_target_with_rates_of_its_own_has_no_corrections_of_others(
    changes: dict[str, Any], stays: bool
) -> None:
    document = {"name": "mine", "based_on": "cpu-bf16", "cost": copy.deepcopy(changes)}
    cost = Target.from_document(document, source="a test").cost
    assert cost is not None
    assert (cost.corrections.low is not None) == stays
    if "corrections" in changes:
        assert "Convolution" in cost.kernels  # whose rates are the same
