"""Put plain images together with three axes, where the backend's kernel for four is slow."""

from __future__ import annotations

import math
from functools import partial

from mxamp.graph.graph import Entry
from mxamp.ops.casts import CAST_OPERATORS
from mxamp.passes.edit import GraphEdit
from mxamp.passes.images import AS_ROWS, PLACES_BACK
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State
from mxamp.targets.layout import WRITE_OVER, layout_writers, writes_plain

_FEWEST_VALUES = 1 << 13
"""Of fewer results the reshapes take as long as they save."""

_LEAST_PARTS = 2


class PlainConcat(NodeRewrite):
    """Replace a Concat of plain images along their channels by one of their planes, each a row.

    Before::

        x, y -> Concat {dim: 1} -> z

    After::

        x, y -> Reshape {shape: (0, 0, -1)} -> Concat {dim: 1}, x -> reshape_like -> z

    Refuses: where no input is certainly an image, or one may lie in the order of a layer, unless that writes
    plain images because its filters fill no block; another axis; batches of more than one; one channel and
    then more; what may be empty, or is told its shape by the other parts, as zeros may be; fewer than 2^13
    results, or an unknown number; a node that a rule of the user's picks; targets that do not name the pass;
    the bodies of control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: oneDNN's Concat has a loop over the images of a batch whose body is slow, and of one image there is
    nothing else. MXNet's own, which it takes for three axes, copies whole rows. Of two parts of 58 channels
    of 28 x 28 Concat takes 151 us, and so 32, of six of 44 339 and 66, of two of 64 of 56 x 56 635 and 95; of
    eight images 146 and 178, so batches stay (AMD EPYC of family 26, float32, one thread; bfloat16 likewise).

    It copies whole what begins with one channel and goes on with several: of 1 and 3 channels of 224 x 224
    37 us, and the rows take 60, in bfloat16 21 and 94 to 210. So that stays.

    Bit-exact, for every batch. Linear in nodes and inputs.
    """

    step = "plain_concat"
    operators = frozenset({"Concat", "concat"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one Concat."""
        node = state.graph.nodes[position]
        shapes = [state.usual_shape(part) for part in node.inputs]
        if (
            node.attrs.get("dim", "1") != "1"
            or len(shapes) < _LEAST_PARTS
            or not any(part.node in state.images for part in node.inputs)
            or not all(_is_plain(state, part) for part in node.inputs)
            or not all(part.node in state.never_empty for part in node.inputs)
            or any(part.node in state.left_open for part in node.inputs)
        ):
            return None
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes) or known[0][0] != 1 or sum(map(math.prod, known)) < _FEWEST_VALUES:
            return None
        if known[0][1] == 1 and any(shape[1] > 1 for shape in known):
            return None  # the backend copies these whole
        put = partial(edit.part, position)
        planes = [math.prod(shape[2:]) for shape in known]

        def as_rows(number: int) -> Entry:
            like = (*known[number][:2], planes[number])
            return put("Reshape", f"rows{number}", node.inputs[number], like=like, **AS_ROWS)

        rows = [
            edit.once(("rows", part), partial(as_rows, number)) for number, part in enumerate(node.inputs)
        ]
        channels = sum(shape[1] for shape in known)
        attrs = {"dim": "1", "num_args": str(len(rows))}
        joined = put("Concat", "rows", *rows, like=(1, channels, planes[0]), **attrs)
        edit.replace(
            position,
            node._replace(
                op="reshape_like",
                attrs={**own_attributes(node), **PLACES_BACK},
                inputs=(joined, node.inputs[0]),
            ),
        )
        return "rows of planes are copied whole, where the backend's kernel for one image is slow"


def _is_plain(state: State, entry: Entry) -> bool:
    """Return whether a value is in plain order: it lies in that of no layer, or of one that writes plain.

    What a conversion casts is plain as well, and not looked at: it is cast where this was decided without.
    """
    graph = state.graph
    while graph.nodes[entry.node].op in CAST_OPERATORS:
        entry = graph.nodes[entry.node].inputs[0]
    if graph.nodes[entry.node].op in WRITE_OVER:
        return False
    return all(writes_plain(graph.nodes[layer]) for layer in layout_writers(graph, entry.node))
