"""A product that is summed up is a product of matrices, whatever axes its factors have."""

from __future__ import annotations

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from mxamp.graph import Entry
from mxamp.passes.matrix_product import Factor, Form, factor_of, form_of, product_of
from mxamp.passes.window_sizes import Size
from tests.passes.moving import moved

SIDES = ("left", "right")
KINDS = ("both", "none", *SIDES)


def factor(number: int, places: tuple[int, ...], sizes: list[Size], shape: list[int]) -> Factor:
    return factor_of(
        Entry(number),
        tuple([sizes[axis] for axis in places]),
        tuple([shape[axis] for axis in places]),
        places,
        len(shape),
    )


def computed(form: Form, *values: np.ndarray) -> np.ndarray:
    """Return what the product of matrices makes of the factors."""
    left, right = (moved(operand.moves, values[operand.entry.node]) for operand in (form.left, form.right))
    left = left.swapaxes(1, 2) if form.left.is_turned else left
    right = right if form.right.is_turned else right.swapaxes(1, 2)
    return moved(form.moves, left @ right)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_it_is_the_sum_of_products_in_every_call(data: st.DataObject) -> None:
    axes = data.draw(st.integers(2, 5))
    summed = data.draw(st.integers(0, axes - 1))
    kinds = ["both" if axis == summed else data.draw(st.sampled_from(KINDS)) for axis in range(axes)]
    unknown = data.draw(st.sets(st.integers(0, axes - 1), max_size=2))
    lengths = data.draw(st.lists(st.integers(2, 4), min_size=axes, max_size=axes))
    lengths = [1 if kind == "none" else length for kind, length in zip(kinds, lengths)]
    sizes: list[Size] = [
        ("axis", axis) if axis in unknown and kinds[axis] != "none" else length
        for axis, length in enumerate(lengths)
    ]
    keeps_axis = data.draw(st.booleans())
    places = [tuple(data.draw(st.permutations(range(axes)))) for _ in range(2)]
    own = [[1 if kind not in ("both", side) else size for kind, size in zip(kinds, sizes)] for side in SIDES]
    shapes = [
        [1 if kind not in ("both", side) else length for kind, length in zip(kinds, lengths)]
        for side in SIDES
    ]
    left, right = [factor(at, places[at], own[at], shapes[at]) for at in range(2)]
    product = product_of(left, right, tuple(lengths), summed, is_equal=False, keeps_axis=keeps_axis)
    assert product is not None
    form = form_of(product)
    event("said" if form else "cannot be said")
    if form is None:
        assert len(unknown) == 2  # with one a Reshape can always say it
        return
    draw = np.random.default_rng(0)
    for more in (0, 1, 3):
        now = [length + more if isinstance(size, tuple) else length for size, length in zip(sizes, lengths)]
        values = [
            draw.integers(
                -4, 5, [1 if kind not in ("both", side) else length for kind, length in zip(kinds, now)]
            )
            for side in SIDES
        ]
        expected = (values[0] * values[1]).sum(axis=summed, keepdims=keeps_axis)
        turned = [value.transpose(order) for value, order in zip(values, places)]
        np.testing.assert_array_equal(computed(form, *turned), expected)


def test_an_axis_that_may_be_another_ones_is_none() -> None:
    """The batch may happen to be as long as a parameter; any other axis beside a number is meant to be."""
    for axis, is_certain in ((0, False), (1, True)):
        sizes: list[Size] = [1, 1, 8]
        shape = [1, 1, 8]
        own, other = list(sizes), list(sizes)
        own[axis], other[axis], shape[axis] = ("axis", axis), 6, 6
        places = (0, 1, 2)
        left, right = factor(0, places, own, shape), factor(1, places, other, shape)
        found = product_of(left, right, tuple(shape), 2, is_equal=False, keeps_axis=False)
        assert (found is not None) == is_certain
        equal = product_of(left, right, tuple(shape), 2, is_equal=True, keeps_axis=False)
        assert equal is not None
        assert equal.sizes[axis] == 6


def test_an_axis_along_which_both_are_copied_is_none() -> None:
    places = (0, 1)
    left, right = factor(0, places, [1, 8], [1, 8]), factor(1, places, [1, 8], [1, 8])
    assert product_of(left, right, (5, 8), 1, is_equal=False, keeps_axis=False) is None


def test_unknown_axes_that_differ_are_none() -> None:
    places = (0, 1)
    left = factor(0, places, ["steps", 8], [5, 8])
    right = factor(1, places, ["words", 8], [5, 8])
    assert product_of(left, right, (5, 8), 1, is_equal=False, keeps_axis=False) is None
