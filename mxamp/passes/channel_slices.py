"""Cut channels with the operator that brings them into plain order first."""

from __future__ import annotations

from typing import Sequence

from mxamp.graph.graph import Entry, Node
from mxamp.ops.attributes import elements
from mxamp.ops.casts import CASTABLE
from mxamp.passes.drop_no_ops import is_whole
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State
from mxamp.targets.image_layout import WIDEST_BLOCK

_CHANNELS = 1
"""The axis."""


class SliceChannels(NodeRewrite):
    """Replace ``slice`` along the second axis by ``slice_axis``, where it takes no whole blocks of channels.

    Before::

        x -> slice {begin: (None, 3, 2), end: (None, 10, 9)} (name)

    After::

        x -> slice_axis {axis: 1, begin: 3, end: 10}
          -> slice {begin: (None, None, 2), end: (None, None, 9)} (name)

    Where it takes all channels it says so. Refuses: bounds that are multiples of 16; steps; what is not
    certainly of a dtype that layers write, for MXNet has no ``slice_axis`` of booleans; a node that a rule of
    the user's picks; the bodies of control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet's ``slice`` looks into the blocks of channels that a layer of oneDNN's wrote, and where it
    would cut one of them it raises ("could not construct a sub-memory"), or ends the process. What it reads
    may be plain as the graph is, and in blocks once a pass has given a layer whole blocks of filters, or put
    one in front of a pooling.

    Bit-exact, for every shape. Linear in nodes.
    """

    step = "channel_slices"
    operators = frozenset({"slice", "crop"})
    device = "cpu"

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Cut the channels of one slice by themselves."""
        node = state.graph.nodes[position]
        if state.certain_dtypes[position][0] not in CASTABLE:
            return None
        begins, ends, steps = (elements(node.attrs.get(key, "()")) for key in ("begin", "end", "step"))
        if not _CHANNELS < len(begins) == len(ends) or set(steps) - {"None", "1"}:
            return None
        first, last = begins[_CHANNELS], ends[_CHANNELS]
        if _is_edge(first) and _is_edge(last):
            return None
        attrs = {"axis": str(_CHANNELS), "begin": "0" if first == "None" else first, "end": last}
        rest = {key: _without_channels(bounds) for key, bounds in (("begin", begins), ("end", ends))}
        takes_channels_alone = all(set(elements(bounds)) == {"None"} for bounds in rest.values())
        sizes = state.axis_sizes.of(node.inputs[0])
        if sizes is not None and is_whole(first, last, sizes[_CHANNELS]):
            if takes_channels_alone:
                return None  # it takes all
            edit.replace(position, node._replace(attrs={**node.attrs, **rest}))
        elif takes_channels_alone:
            attrs.update(own_attributes(node))
            edit.replace(position, Node("slice_axis", node.name, attrs, node.inputs))
        else:
            shape, written = state.usual_shape(node.inputs[0]), state.usual_shape(Entry(position))
            like = shape and written and (shape[0], written[_CHANNELS], *shape[2:])
            channels = edit.part(position, "slice_axis", "channels", *node.inputs, like=like, **attrs)
            edit.replace(position, node._replace(attrs={**node.attrs, **rest}, inputs=(channels,)))
        return "slice raises where it would cut a block of channels"


def _is_edge(bound: str) -> bool:
    """Return whether a bound lies between blocks of channels, of whichever width."""
    return bound == "None" or (bound.isdigit() and int(bound) % WIDEST_BLOCK == 0)


def _without_channels(bounds: Sequence[str]) -> str:
    kept = ["None" if axis == _CHANNELS else bound for axis, bound in enumerate(bounds)]
    return f"({', '.join(kept)})"
