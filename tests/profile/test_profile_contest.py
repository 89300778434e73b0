"""The fastest plan wins; of equally fast ones the one with the least rounding."""

from __future__ import annotations

import pytest

from mxamp.profile.contest import TIE, Contestant, winner


@pytest.mark.parametrize(
    ("plans", "expected"),
    [
        pytest.param([Contestant(1.0, 0, 0), Contestant(1.5, 9, 9)], 1, id="the fastest"),
        pytest.param([Contestant(1.0, 0, 0), Contestant(0.9, 9, 9)], 0, id="float32 where low is slower"),
        pytest.param([Contestant(1.0, 0, 0), Contestant(1 + TIE / 2, 2, 5)], 0, id="a tie has fewest casts"),
        pytest.param(
            [Contestant(1.0, 0, 0), Contestant(1.5, 2, 9), Contestant(1.499, 2, 5)], 2, id="then least low"
        ),
        pytest.param([Contestant(1.0, 0, 0), Contestant(None, 0, 3)], 0, id="what cannot run cannot win"),
        pytest.param([Contestant(1.0, 0, 0, may_win=False), Contestant(0.5, 2, 2)], 1, id="nor what may not"),
        pytest.param([Contestant(None, 0, 0), Contestant(None, 1, 1)], None, id="nothing ran"),
        pytest.param([], None, id="no plans"),
        pytest.param(
            [Contestant(1.0, 0, 0, expected_ms=2.0), Contestant(1 + TIE / 2, 2, 5, expected_ms=1.0)],
            1,
            id="of a tie what was expected to be faster",
        ),
        pytest.param(
            [
                Contestant(1 + TIE / 2, 0, 0, expected_ms=1.0),
                Contestant(1.0, 2, 5, expected_ms=2.0, is_by_table=True),
            ],
            1,
            id="of a tie the plan by the table, whatever was expected",
        ),
        pytest.param(
            [
                Contestant(1.04, 0, 0, seconds=[1.0, 1.0, 2.0, 2.0], rounds=[2, 2]),
                Contestant(1.0, 2, 5, seconds=[1.1, 1.1, 2.2, 2.2], rounds=[2, 2], is_by_table=True),
            ],
            0,
            id="what is faster than the plan by the table each time",
        ),
        pytest.param(
            [
                Contestant(1.04, 0, 0, seconds=[1.0, 1.0, 1.0, 2.0, 2.0], rounds=[3, 2]),
                Contestant(1.0, 2, 5, seconds=[1.1, 1.1, 1.1, 1.9, 1.9], rounds=[3, 2], is_by_table=True),
            ],
            1,
            id="the plan by the table where one that is faster was not so each time",
        ),
        pytest.param(
            [
                Contestant(1.06, 0, 0, seconds=[1.0, 1.0, 1.0, 2.0, 2.0], rounds=[3, 2]),
                Contestant(1.0, 2, 5, seconds=[1.1, 1.1, 1.1, 1.9, 1.9], rounds=[3, 2], is_by_table=True),
            ],
            1,
            id="whatever it gains in all",
        ),
        pytest.param(
            [
                Contestant(1.04, 0, 0, seconds=[1.0, 1.0, 2.0, 2.0], rounds=[2, 2]),
                Contestant(1.0, 2, 5, seconds=[1.1, 1.1, 2.03, 2.03], rounds=[2, 2], is_by_table=True),
            ],
            1,
            id="or hardly so",
        ),
        pytest.param(
            [
                Contestant(1.06, 0, 0, seconds=[1.0, 1.0, 2.0, 2.0], rounds=[2, 2]),
                Contestant(1.0, 2, 5, seconds=[1.1, 1.1, 2.03, 2.03], rounds=[2, 2], is_by_table=True),
            ],
            0,
            id="but not where it is faster by more than luck in all",
        ),
        pytest.param(
            [Contestant(1.0, 0, 0), Contestant(None, 2, 5, is_by_table=True)],
            0,
            id="a plan by the table that cannot run",
        ),
        pytest.param(
            [Contestant(1.0, 0, 0, expected_ms=1.0), Contestant(1.5, 2, 5, expected_ms=2.0)],
            1,
            id="what ran faster, whatever was expected",
        ),
        pytest.param(
            [
                Contestant(1.0, 0, 0, expected_ms=1.0, seconds=[1.0, 3.0] * 10),
                Contestant(1.015, 2, 5, expected_ms=2.0, seconds=[3.0, 1.0] * 10),
            ],
            0,
            id="a noisy race does not tell small differences",
        ),
        pytest.param(
            [
                Contestant(1.0, 0, 0, expected_ms=1.0, seconds=[1.0, 3.0] * 10),
                Contestant(1.5, 2, 5, expected_ms=2.0, seconds=[3.0, 1.0] * 10),
            ],
            1,
            id="but large ones count",
        ),
        pytest.param(
            [
                Contestant(1.0, 0, 0, expected_ms=1.0, seconds=[1.5, 3.0] * 10),
                Contestant(1.5, 2, 5, expected_ms=2.0, seconds=[1.0, 2.0] * 10),
            ],
            1,
            id="a race that is noisy for all alike does",
        ),
    ],
)
def test_winner(plans: list[Contestant], expected: int | None) -> None:
    assert winner(plans) == expected
