"""Cut tensors along their last axis with the operator that copies rows."""

from __future__ import annotations

import math
from typing import Optional, Sequence, Tuple

from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_FEWEST_VALUES = 1 << 10
"""Of fewer, one operator takes no longer than several do."""

_FEWEST_OF_A_PART = 1 << 7

_Part = Tuple[int, Optional[int]]
"""Where a part begins and ends along the axis; None is the end of the tensor."""


class RewriteLastAxisSplit(NodeRewrite):
    """Replace SliceChannel along the last axis by a slice for each part.

    Before::

        x -> SliceChannel {num_outputs: 3, axis: 2} -> a, b, c

    After, for x of 1,536 channels::

        x -> slice_axis {axis: 2, begin: 0, end: 512} -> a, and likewise b and c

    Likewise numpy's ``split``. Parts that nobody reads are not cut.

    Refuses: where the number of axes is not certain, or how long the last one is in every call; another axis;
    fewer than 1,024 values, or 128 in a part; parts that lose their axis; a node that is a graph output; a
    node that a rule of the user's picks; targets that do not name the pass; the bodies of control flow.

    Notes
    -----
    Why: MXNet computes for each value anew which part it lies in. The query, keys and values of 64 words, 768
    of each, take 484 us as SliceChannel, 1,026 as numpy's ``split`` and 31 as three slices; the four gates of
    a recurrent layer of 650 units for 32 sequences 280 and 25 (AMD EPYC of family 26, float32, one thread).
    Along other axes whole planes or rows are copied, and both are as fast.

    Bit-exact: values are moved. Linear in nodes and outputs.
    """

    step = "last_axis_split"
    operators = frozenset({"SliceChannel", "split", "_split_v2"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one split."""
        node = state.graph.nodes[position]
        data, read = node.inputs[0], sorted(state.graph.uses[position])
        shape, sizes = state.shape(data), state.axis_sizes.of(data)
        if shape is None or sizes is None or position in state.heads or not read:
            return None
        if data.node in state.left_open:  # a split tells by its parts how large it is, and a slice does not
            return None
        length = sizes[-1] if sizes else None
        if not isinstance(length, int) or not _is_of_last_axis(node, len(shape)):
            return None
        parts = _parts(node, length)
        values = math.prod(shape)
        if parts is None or values < max(_FEWEST_VALUES, _FEWEST_OF_A_PART * len(parts)):
            return None
        axis = len(shape) - 1
        for output in read:
            begin, end = parts[output]
            attrs = {"axis": str(axis), "begin": str(begin), "end": str(end)}
            like = (*shape[:-1], (length if end is None else end) - begin)
            if output == read[0]:  # it has the node's name
                own = {**own_attributes(node), **attrs}
                edit.replace(
                    position, node._replace(op="slice_axis", attrs=own, num_outputs=1), shapes=(like,)
                )
                part = Entry(position)
            else:
                part = edit.part(position, "slice_axis", f"part{output}", data, like=like, **attrs)
            for use in state.graph.uses[position][output]:
                edit.connect(use, part)
        return "slices copy rows, where it is worked out for each value which part it lies in"


def _is_of_last_axis(node: Node, axes: int) -> bool:
    axis = integers(node.attrs.get("axis", "1"))
    is_last = axis is not None and len(axis) == 1 and axis[0] in (-1, axes - 1)
    return is_last and not is_true(node.attrs, "squeeze_axis", default=False)


def _parts(node: Node, length: int) -> Sequence[_Part] | None:
    """Return the parts of an axis, one an output; None where the node does not cut it so."""
    count = node.num_outputs
    if FACTS.canonical(node.op) == "_split_v2" and integers(node.attrs.get("sections", "0")) == (0,):
        begins = integers(node.attrs.get("indices", ""))
        if begins is None or len(begins) != count or list(begins) != sorted(set(begins)):
            return None
        is_inside = begins[0] == 0 and begins[-1] < length
        return list(zip(begins, (*begins[1:], None))) if is_inside else None
    if length % count:
        return None
    size = length // count
    return [(number * size, (number + 1) * size) for number in range(count)]
