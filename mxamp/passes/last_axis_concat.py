"""Join tensors along their last axis in the form that backends have a kernel for."""

from __future__ import annotations

import math
from typing import NamedTuple

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State

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


class RewriteLastAxisConcat(PreparationPass):
    """Write a Concat of tensors with three or five axes along the last one as one of four axes.

    Before, with three axes::

        a, b -> Concat {dim: -1} (name)

    After::

        a -> Reshape {shape: (0, -4, -1, 1, 0)} -> Concat {dim: 3} -> Reshape {shape: (0, -3, 0)} (name)
        b -> Reshape {shape: (0, -4, -1, 1, 0)} ----^

    With five axes the first two become one, and ``reshape_like`` the first input brings them back.

    Refuses: where shapes are not known, or fewer than 2,048 values are joined; other axes; other dtypes than
    float32; numpy's shape semantics, where a tensor may be empty and 0 is a length; a node that a rule of the
    user's picks; targets that do not name the pass; the bodies of control flow. The node may be a graph
    output, for its name stays.

    Notes
    -----
    Why: MXNet 1.9.1 has oneDNN's kernel for two and four axes. For others it computes for each value anew
    where it comes from: joining a score, a class and a box of four (6,140 rows) takes 370 us in place of 37.
    Detectors do that for every class.

    Bit-exact: values are moved. The forms are right for every length of every axis; shapes only tell how
    many axes there are, and whether it is worth it. Linear in nodes and inputs.
    """

    step = "last_axis_concat"
    operators = frozenset({"Concat", "concat"})
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with joins of four axes."""
        joins = {
            position: join
            for position, node in enumerate(graph.nodes)
            if node.op in self.operators and not state.is_fixed(position)
            for join in [_join(state, position, node)]
            if join is not None
        }
        if not joins or graph.has_numpy_shapes:
            return None
        edit = GraphEdit(graph, state.params)
        seen: dict[Entry, Entry] = {}
        changes = []
        for position, join in joins.items():
            node = graph.nodes[position]
            is_three = len(join.output) == 3
            inputs = []
            for number, (entry, shape) in enumerate(zip(node.inputs, join.inputs)):
                if entry not in seen:
                    rows = Node(
                        "Reshape", f"{node.name}_rows{number}", _THREE if is_three else _FIVE, (entry,)
                    )
                    seen[entry] = edit.insert(rows, before=position, shapes=(_as_four(shape),))
                inputs.append(seen[entry])
            attrs = {**node.attrs, "dim": "3"}
            made = Node("Concat", f"{node.name}_rows", attrs, tuple(inputs))
            joined = edit.insert(made, before=position, shapes=(_as_four(join.output),))
            kept = {key: value for key, value in node.attrs.items() if key.startswith("__")}
            edit.replace(
                position,
                node._replace(op="Reshape", attrs={**kept, "shape": "(0, -3, 0)"}, inputs=(joined,))
                if is_three
                else node._replace(
                    op="reshape_like", attrs={**kept, **_BACK_TO_FIVE}, inputs=(joined, node.inputs[0])
                ),
            )
            changes.append(self.changed(node, "joined with four axes, for which backends have a kernel"))
        return Done(edit.finish(), tuple(changes))


def _join(state: State, position: int, node: Node) -> _Join | None:
    """Return the shapes of a join along the last of three or five axes; None of any other node."""
    output = state.shape(Entry(position))
    axis = integers(node.attrs.get("dim", "1"))
    if (
        FACTS.canonical(node.op) != "Concat"
        or output is None
        or len(output) not in (3, 5)
        or axis is None
        or len(axis) != 1
        or axis[0] not in (-1, len(output) - 1)
        or len(node.inputs) < 2
        or math.prod(output) < _FEW_VALUES
        or state.certain_dtypes[position][0] is not DType.FLOAT32
    ):
        return None
    inputs = [state.shape(entry) for entry in node.inputs]
    known = tuple([shape for shape in inputs if shape is not None and len(shape) == len(output)])
    return _Join(known, output) if len(known) == len(inputs) else None


def _as_four(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) == 3:
        return (*shape[:2], 1, shape[2])
    return (shape[0] * shape[1], *shape[2:])
