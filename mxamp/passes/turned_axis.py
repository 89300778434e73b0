"""What works along an axis, put where that axis is the last: between two transposes."""

from __future__ import annotations

import math
from functools import partial
from typing import Mapping

from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import own_attributes
from mxamp.passes.state import State

_IMAGE = 4


def certain_rank(state: State, entry: Entry) -> int | None:
    """Return the number of axes, whatever is fed; None where that is not certain.

    Parameters
    ----------
    state
        What is known of the graph.
    entry
        Of an image it is certain, and behind a ``transpose``.
    """
    if entry.node in state.images and not entry.output:
        return _IMAGE
    node = state.graph.nodes[entry.node]
    axes = integers(node.attrs.get("axes", "()")) if FACTS.canonical(node.op) == "transpose" else None
    return len(axes) if axes else None


def axis_from_front(node: Node, rank: int | None) -> int | None:
    """Return the one axis that a node works along, by default the last; None where it is not certain.

    Parameters
    ----------
    node
        The node.
    rank
        The number of axes, where that is certain.
    """
    axes = integers(node.attrs.get("axis", "-1"))
    if axes is None or len(axes) != 1 or (axes[0] < 0 if rank is None else not -rank <= axes[0] < rank):
        return None
    return axes[0] % rank if rank else axes[0]


def known_shape(state: State, entry: Entry, rank: int | None) -> tuple[int, ...] | None:
    """Return the shape of what is turned: a usual one where the number of axes is not certain."""
    shape = state.usual_shape(entry) if rank is None else state.shape(entry)
    return shape if shape is None or rank in (None, len(shape)) else None


def turn_axis(
    edit: GraphEdit,
    position: int,
    op: str,
    axis: int,
    shape: tuple[int, ...],
    *,
    is_certain: bool,
    kept: Mapping[str, str],
) -> None:
    """Let a node that works along an axis read that as the last, and turn its result back.

    Parameters
    ----------
    edit
        What the graph is changed by.
    position
        The node: its first input is turned. Its name is that of the result from now on.
    op
        The operator that takes the axis.
    axis
        The axis, counted from the front; not the last.
    shape
        The shape of what it reads.
    is_certain
        Whether the number of axes is. Where it is not, all that lie behind the axis become one.
    kept
        The attributes that it keeps.
    """
    node = edit.node(Entry(position))
    x, *others = node.inputs
    read = shape if is_certain else (*shape[: axis + 1], math.prod(shape[axis + 1 :]))
    order = [other for other in range(len(read)) if other != axis] + [axis]
    back = {"axes": str(tuple([order.index(other) for other in range(len(read))]))}
    turned = tuple([read[other] for other in order])

    put, source, own = partial(edit.part, position), x, own_attributes(node)
    if not is_certain:
        source = put("Reshape", "rest", x, like=read, shape=str((0,) * (axis + 1) + (-1,)))
    lines = put("transpose", "lines", source, like=turned, axes=str(tuple(order)))
    result = put(op, "last_axis", lines, *others, like=turned, axis="-1", **kept)
    if is_certain:
        edit.replace(
            position, node._replace(op="transpose", attrs={**own, **back}, inputs=(result,), num_outputs=1)
        )
        return
    inner = put("transpose", "back", result, like=read, **back)
    edit.replace(position, node._replace(op="reshape_like", attrs=own, inputs=(inner, x), num_outputs=1))
