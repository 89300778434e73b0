"""Attributes are read alike wherever they are read."""

from __future__ import annotations

import pytest

from mxamp.ops.attributes import all_integers, integers, is_true, real_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(3, 3)", (3, 3)),
        ("[0, 1]", (0, 1)),
        ("(3,)", (3,)),
        ("3", (3,)),
        ("()", ()),
        ("(-1, 0)", (-1, 0)),
        ("(3L, 1L)", (3, 1)),
        ("(3, 1, )", (3, 1)),
        ("[4L]", (4,)),
        ("(L, 1)", None),
        ("(,)", None),
        ("", None),
        ("None", None),
        ("(1.5, 2)", None),
        ("true", None),
        ("{}", None),
        ("9" * 5000, None),
    ],
)
def test_integers_reads_every_spelling_and_nothing_else(text: str, value: tuple[int, ...] | None) -> None:
    if text.startswith("9"):
        found = integers(text)  # Pythons before 3.11 have no limit on digits
        assert found is None or found[0] > 0
    else:
        assert integers(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("True", True),
        ("true", True),
        ("TRUE", True),
        ("1", True),
        ("False", False),
        ("FALSE", False),
        ("0", False),
    ],
)
def test_a_boolean_that_is_there_counts(text: str, value: bool) -> None:
    assert is_true({"flag": text}, "flag", default=not value) is value


@pytest.mark.parametrize("default", [True, False])
def test_a_boolean_that_is_absent_is_the_default(default: bool) -> None:
    assert is_true({}, "flag", default=default) is default


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("-3", -3.0), ("1e-05", 1e-5), ("None", None)])
def test_a_number_is_read_and_nothing_else(text: str, value: float | None) -> None:
    assert real_number({"scalar": text}, "scalar", 7.0) == value
    assert real_number({}, "scalar", 7.0) == 7.0
    assert real_number({}, "scalar") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("((0, 0), (1, 2))", (0, 0, 1, 2)),
        ("[[0,0],[-1,2]]", (0, 0, -1, 2)),
        ("(3L, 1L)", (3, 1)),
        ("", ()),
        ("None", ()),
    ],
)
def test_integers_of_pairs_are_read_one_after_another(text: str, value: tuple[int, ...]) -> None:
    assert all_integers(text) == value
