"""Splitting what is low: the nodes that make the error are found, whatever part they hide in."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from mxamp.debug.bisect import Part, bisect_parts

ERRORS = st.lists(st.floats(0, 1), min_size=1, max_size=40)


def together(errors: list[float], first: int, last: int) -> float:
    return math.sqrt(sum(error**2 for error in errors[first:last]))


@given(ERRORS, st.integers(1, 60))
def test_parts_are_all_nodes_and_trials_are_kept_to(errors: list[float], trials: int) -> None:
    calls = []

    def measure(first: int, last: int) -> float:
        calls.append((first, last))
        return together(errors, first, last)

    parts = bisect_parts(len(errors), measure, trials=trials)
    assert len(calls) <= trials
    covered = sorted((part.first, part.last) for part in parts)
    assert covered[0][0] == 0
    assert covered[-1][1] == len(errors)
    assert all(left[1] == right[0] for left, right in zip(covered, covered[1:]))
    assert [part.error for part in parts] == sorted((part.error for part in parts), reverse=True)


@given(st.integers(1, 200), st.data())
def test_one_guilty_node_is_found_in_logarithmically_many_trials(count: int, data: st.DataObject) -> None:
    guilty = data.draw(st.integers(0, count - 1))
    trials = 1 + 2 * math.ceil(math.log2(count)) if count > 1 else 1
    parts = bisect_parts(count, lambda first, last: float(first <= guilty < last), trials=trials)
    assert parts[0] == Part(guilty, guilty + 1, 1.0)


def test_what_is_not_finite_is_split_first() -> None:
    def measure(first: int, last: int) -> float:
        return math.inf if first <= 5 < last else 0.5

    assert bisect_parts(8, measure, trials=7)[0] == Part(5, 6, math.inf)
