"""Axes are moved in words that are right for every call."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxamp.passes.arranged import Arranged
from mxamp.passes.window_sizes import Size
from tests.passes.moving import moved


def test_axes_that_stay_together_are_moved_as_one() -> None:
    tensor = Arranged(("batch", 3, 85, 13, 13), (8, 3, 85, 13, 13)).transposed((0, 3, 4, 1, 2))
    assert [(move.op, *move.attrs.values(), move.shape) for move in tensor.moves] == [
        ("Reshape", "(0, 255, 169)", (8, 255, 169)),
        ("transpose", "(0, 2, 1)", (8, 169, 255)),
        ("Reshape", "(0, 13, 13, 3, 85)", (8, 13, 13, 3, 85)),
    ]
    assert tensor.sizes == ("batch", 13, 13, 3, 85)


def test_axes_of_length_one_are_not_moved() -> None:
    tensor = Arranged(("batch", "steps", 1, 64), (8, 30, 1, 64)).transposed((0, 2, 1, 3))
    assert [(move.op, *move.attrs.values()) for move in tensor.moves] == [("Reshape", "(0, 1, -1, 64)")]


def test_what_cannot_be_said_is_moved_as_it_is() -> None:
    # Two axes of unknown length that stay together: a Reshape cannot part them again.
    tensor = Arranged(("batch", "steps", 3, 4, "width"), (8, 30, 3, 4, 5)).transposed((2, 3, 0, 1, 4))
    assert [(move.op, *move.attrs.values()) for move in tensor.moves] == [("transpose", "(2, 3, 0, 1, 4)")]
    assert Arranged(("batch", "steps"), (8, 30)).reshaped(("steps", "batch"), (30, 8)) is None


def test_two_reshapes_are_one() -> None:
    first = Arranged(("batch", 6, 4), (8, 6, 4)).reshaped(("batch", 24), (8, 24))
    assert first is not None
    second = first.reshaped(("batch", 2, 12), (8, 2, 12))
    assert second is not None
    assert [(move.op, *move.attrs.values()) for move in second.moves] == [("Reshape", "(0, 2, 12)")]
    back = first.reshaped(("batch", 6, 4), (8, 6, 4))
    assert back is not None
    assert back.moves == ()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_moves_do_what_a_transpose_does_in_every_call(data: st.DataObject) -> None:
    known = data.draw(st.lists(st.sampled_from([1, 1, 2, 3, 4]), min_size=2, max_size=6))
    unknown = data.draw(st.sets(st.integers(0, len(known) - 1), max_size=2))
    sizes: tuple[Size, ...] = tuple(("axis", at) if at in unknown else size for at, size in enumerate(known))
    order = data.draw(st.permutations(range(len(known))))
    tensor = Arranged(sizes, tuple(known)).transposed(order)
    for other in (1, 2, 5):
        shape = [other + at if at in unknown else size for at, size in enumerate(known)]
        values = np.arange(np.prod(shape)).reshape(shape)
        np.testing.assert_array_equal(moved(tensor.moves, values), values.transpose(order))
    assert [move.shape for move in tensor.moves[-1:]] in ([], [tuple(known[axis] for axis in order)])


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (0, 1, 2)])
def test_nothing_is_done_where_nothing_moves(order: tuple[int, ...]) -> None:
    sizes = ("batch", 2, 3, 4, 5)[: len(order)]
    assert Arranged(sizes, (8, 2, 3, 4, 5)[: len(order)]).transposed(order).moves == ()
