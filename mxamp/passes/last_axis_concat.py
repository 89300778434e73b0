"""Join tensors along their last axis in the form that backends have a kernel for."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State
from mxamp.passes.window_sizes import Sizes

_FEW_VALUES = 1 << 11
"""Joins of fewer values take less time than the nodes around the faster one."""

_THREE = {"shape": "(0, -4, -1, 1, 0)"}
"""(batch, rows, columns) as (batch, rows, 1, columns)."""

_FIVE = {"shape": "(-3, 0, 0, 0)"}
"""The first two of five axes as one."""

_BACK_TO_FIVE = {"lhs_begin": "0", "lhs_end": "1", "rhs_begin": "0", "rhs_end": "2"}


class _Join(NamedTuple):
    """One join. The shapes are those of one call."""

    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]


class RewriteLastAxisConcat(NodeRewrite):
    """Write a Concat of tensors with three or five axes along the last one as one of four axes.

    What has one value along that axis is put together as rows instead, which are turned.

    Before, with three axes::

        a, b -> Concat {dim: -1} (name)

    After::

        a -> Reshape {shape: (0, -4, -1, 1, 0)} -> Concat {dim: 3} -> Reshape {shape: (0, -3, 0)} (name)
        b -> Reshape {shape: (0, -4, -1, 1, 0)} ----^

    With five axes the first two become one, and ``reshape_like`` the first input brings them back.

    Before, where the last axis of each is of length one in every call, with two axes to five::

        a, b -> Concat {dim: 2} (name)

    After::

        a -> Reshape {shape: (1, -1)} -> Concat {dim: 0} -> transpose {axes: (1, 0)} (columns)
        b -> Reshape {shape: (1, -1)} ----^
        columns, a -> reshape_like {lhs_begin: 0, lhs_end: 1, rhs_begin: 0, rhs_end: 2} (name)

    Refuses: where shapes are not known, or one is told by the others, as that of zeros may be; where fewer
    than 2,048 values are joined; other axes; other dtypes than float32; numpy's shape semantics, where a
    tensor may be empty and 0 is a length; a node that a rule of the user's picks; targets that do not name
    the pass; the bodies of control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet 1.9.1 has oneDNN's kernel for two and four axes. For others it computes for each value anew
    where it comes from: joining a score, a class and a box of four (6,140 rows) takes 370 us in place of 37.
    Detectors do that for every class. That kernel copies rows, and takes 13 ns for each of one value: eight
    of 172 x 309 such rows take 5.4 ms, and turned 0.42, two of 2,000 81 and 33 us (AMD EPYC of family 23,
    float32, one thread).

    Bit-exact: values are moved. The forms are right for every length of every other axis; shapes only tell
    how many axes there are, and whether it is worth it. Linear in nodes and inputs.
    """

    step = "last_axis_concat"
    operators = frozenset({"Concat", "concat"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one join."""
        node, join = state.graph.nodes[position], _join(state, position)
        if join is None or state.graph.has_numpy_shapes:
            return None
        if all(_is_single(state.axis_sizes.of(entry)) for entry in node.inputs):
            _turn(edit, position, node, join)
            return "rows are put together and turned, for the backend copies each value alone"
        if len(join.output) not in (3, 5):
            return None
        is_three = len(join.output) == 3

        def rows(number: int) -> Entry:
            made = Node(
                "Reshape",
                f"{node.name}_rows{number}",
                _THREE if is_three else _FIVE,
                (node.inputs[number],),
            )
            return edit.insert(made, before=position, shapes=(_as_four(join.inputs[number]),))

        inputs = tuple([edit.once(entry, partial(rows, number)) for number, entry in enumerate(node.inputs)])
        made = Node("Concat", f"{node.name}_rows", {**node.attrs, "dim": "3"}, inputs)
        joined = edit.insert(made, before=position, shapes=(_as_four(join.output),))
        kept = own_attributes(node)
        if is_three:
            back = node._replace(op="Reshape", attrs={**kept, "shape": "(0, -3, 0)"}, inputs=(joined,))
        else:
            like = (joined, node.inputs[0])
            back = node._replace(op="reshape_like", attrs={**kept, **_BACK_TO_FIVE}, inputs=like)
        edit.replace(position, back)
        return "joined with four axes, for which backends have a kernel"


def _join(state: State, position: int) -> _Join | None:
    """Return the shapes of a join along the last of two to five axes; None of any other node."""
    node, output = state.graph.nodes[position], state.shape(Entry(position))
    axis = integers(node.attrs.get("dim", "1"))
    if (
        FACTS.canonical(node.op) != "Concat"
        or output is None
        or not 2 <= len(output) <= 5
        or axis is None
        or len(axis) != 1
        or axis[0] not in (-1, len(output) - 1)
        or len(node.inputs) < 2
        or any(entry.node in state.left_open for entry in node.inputs)
        or math.prod(output) < _FEW_VALUES
        or state.certain_dtypes[position][0] is not DType.FLOAT32
    ):
        return None
    inputs = [state.shape(entry) for entry in node.inputs]
    known = tuple([shape for shape in inputs if shape is not None and len(shape) == len(output)])
    return _Join(known, output) if len(known) == len(inputs) else None


def _is_single(sizes: Sizes | None) -> bool:
    """Whether a tensor has one value along its last axis in every call."""
    return sizes is not None and sizes[-1:] == (1,)


def _turn(edit: GraphEdit, position: int, node: Node, join: _Join) -> None:
    """Put together what has one value along the last axis."""
    count, values = len(node.inputs), math.prod(join.output[:-1])
    put = partial(edit.part, position)

    def row(number: int) -> Entry:
        return put("Reshape", f"row{number}", node.inputs[number], like=(1, values), shape="(1, -1)")

    rows = [edit.once(("row", entry), partial(row, number)) for number, entry in enumerate(node.inputs)]
    joined = put("Concat", "rows", *rows, like=(count, values), dim="0", num_args=str(count))
    columns = put("transpose", "columns", joined, like=(values, count), axes="(1, 0)")
    places = {"lhs_begin": "0", "lhs_end": "1", "rhs_begin": "0", "rhs_end": str(len(join.output) - 1)}
    attrs = {**own_attributes(node), **places}
    edit.replace(position, node._replace(op="reshape_like", attrs=attrs, inputs=(columns, node.inputs[0])))


def _as_four(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) == 3:
        return (*shape[:2], 1, shape[2])
    return (shape[0] * shape[1], *shape[2:])
