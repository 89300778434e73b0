"""Laying out tables and paragraphs: nothing too wide, nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxamp.report.table import (
    MIN_WIDTH,
    Column,
    format_bytes,
    format_table,
    paragraph,
    terminal_width,
    wrap_cell,
)

NAMES = st.text("ab_/", min_size=0, max_size=60)
TEXTS = st.text("abc _", min_size=0, max_size=120)


def letters(text: str) -> str:
    return "".join(text.split())


@given(TEXTS, st.integers(8, 60))
def test_wrapping_loses_no_character_and_keeps_the_width(text, width):
    lines = wrap_cell(text, width)
    assert max(map(len, lines)) <= width
    assert letters("".join(lines)) == letters(text)


def test_long_name_breaks_after_an_underscore():
    assert wrap_cell("resnetv10_stage1_conv0_fwd", 20) == ["resnetv10_stage1_", "conv0_fwd"]


def test_rest_of_a_long_name_shares_its_line_with_what_follows():
    assert wrap_cell("resnetv10_stage1_conv0_fwd is low", 20) == ["resnetv10_stage1_", "conv0_fwd is low"]


@given(st.lists(st.tuples(NAMES, NAMES, TEXTS), max_size=5), st.integers(MIN_WIDTH, 200))
def test_table_keeps_the_width(rows, width):
    columns = (Column("Node", 8), Column("Dtype", 8), Column("Why", 10))
    assert all(len(line) <= width for line in format_table(columns, rows, width))


def test_table_that_fits_is_one_line_a_row():
    lines = format_table((Column("Node", 4), Column("Count", right=True)), [("conv0", "7")], 40)
    assert lines == ["Node   Count", "-----  -----", "conv0      7"]


def test_narrow_table_wraps_its_widest_column_first():
    lines = format_table((Column("Node", 4), Column("Why", 8)), [("conv0", "one two three four")], 20)
    assert lines[2:] == ["conv0  one two three", "       four"]


def test_table_too_narrow_for_its_columns_becomes_blocks():
    columns = (Column("Node", 12), Column("Operator", 12), Column("Why", 12))
    lines = format_table(columns, [("conv0", "Convolution", "wanted low"), ("x", "exp", "")], 26)
    assert lines == [
        "conv0",
        "  Operator: Convolution",
        "  Why: wanted low",
        "x",
        "  Operator: exp",
    ]


def test_paragraph_hangs():
    assert paragraph("a bb ccc", 10, indent="- ", hanging="  ") == ["- a bb ccc"]
    assert paragraph("aaaa bbbb ccc", 10, indent="- ", hanging="  ") == ["- aaaa", "  bbbb ccc"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1500, "1.5 kB"),
        (2e5, "0.2 MB"),
        (102_228_128, "102.2 MB"),
        (4e9, "4.00 GB"),
    ],
)
def test_sizes_are_decimal(count, text):
    assert format_bytes(count) == text


def test_width_comes_from_the_terminal_unless_given(monkeypatch):
    monkeypatch.setenv("COLUMNS", "63")
    assert terminal_width() == 63
    assert terminal_width(90) == 90
    assert terminal_width(3) == MIN_WIDTH


def test_the_one_column_that_is_wrapped_breaks_names_at_their_joints() -> None:
    columns = [Column("output", minimum=12), Column("error", right=True)]
    (name,) = [["cifarresnetv1_dense0_fwd_output", "0.00223"]]
    lines = format_table(columns, [name], 38)
    assert [line.split() for line in lines[2:]] == [["cifarresnetv1_dense0_fwd_", "0.00223"], ["output"]]
    assert "".join(line.split()[0] for line in lines[2:]) == name[0]
    # Where it fits it is left as it is.
    assert format_table(columns, [name], 41)[2].split() == name
