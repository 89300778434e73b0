"""A sequence as an image of a single row, and what takes one in the place of the other."""

from __future__ import annotations

from typing import Callable, Mapping, Sequence

from mxamp.ops.attributes import integers
from mxamp.passes.state import State

AS_IMAGE = {"shape": "(0, 0, 1, -1)"}
"""What Reshape makes such an image of a sequence by, of any length."""

AS_SEQUENCE = {"shape": "(0, 0, -1)"}
"""And a sequence of an image."""

_FILLED_IN = {"kernel": 1, "stride": 1, "dilate": 1, "pad": 0}
"""Attributes that say something of each axis of places, with what they say of one of a single place."""


def image_shape(shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the shape of a sequence as an image; None where it is not known."""
    return None if shape is None else (*shape[:2], 1, *shape[2:])


def window_of_image(attrs: Mapping[str, str]) -> dict[str, str]:
    """Return attributes of a layer or a Pooling of sequences, as they are for images of a single row."""
    found = {key: value for key, value in attrs.items() if key != "layout"}
    for key, single in _FILLED_IN.items():
        given = integers(attrs.get(key, "()"))
        if given:
            found[key] = str((single, *given))
    return found


def chain_behind(state: State, position: int, takes: Callable[[int], bool]) -> Sequence[int]:
    """Return a node, and all behind it that takes another form of what it writes, and that alone.

    Parameters
    ----------
    state
        The model.
    position
        The node.
    takes
        Whether a node does the same to the other form.
    """
    chain = [position]
    reader = state.only_reader(position)
    while reader is not None and _may_change(state, reader) and takes(reader):
        chain.append(reader)
        reader = state.only_reader(reader)
    return chain


def _may_change(state: State, position: int) -> bool:
    is_fixed = state.is_fixed(position, updating=False)
    return not is_fixed and position not in state.heads and set(state.graph.uses[position]) == {0}
