"""The shapes that a conversion knows: MXNet's, or where it is not installed those of mxamp's own rules."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from mxamp.graph.graph import Graph
from mxamp.graph.shapes import infer_entry_shapes
from mxamp.messages.installation import why_no_mxnet
from mxamp.params.parameter import Parameter
from mxamp.targets.work import Shapes


class KnownShapes(NamedTuple):
    """What is known of a graph's shapes.

    Attributes
    ----------
    entries
        For every node the shape of each output, where known.
    notes
        What the user should know of those that are not, one sentence each.
    """

    entries: Shapes | None
    notes: tuple[str, ...] = ()


def known_shapes(
    graph: Graph,
    input_shapes: Mapping[str, Sequence[int]],
    params: Mapping[str, Parameter],
    *,
    sym: Any = None,
) -> KnownShapes:
    """Infer the shapes of a graph's entries.

    Parameters
    ----------
    graph
        The graph.
    input_shapes
        Input name -> shape; a size of 0 is unknown.
    params
        Parameters and auxiliary states by name.
    sym
        The Symbol that the graph was just read from, if it was.

    Raises
    ------
    UnknownNameError, DataError
        When a name or a shape is none, or shapes do not fit together.

    Notes
    -----
    Both ways give the same shapes. MXNet is asked where it is there because it also knows operators that were
    registered with it, and refuses whatever it would refuse to bind.
    """
    if why_no_mxnet() is None:
        from mxamp.runtime.shapes import infer_shapes

        return KnownShapes(infer_shapes(graph, input_shapes, params, sym=sym))
    inferred = infer_entry_shapes(
        graph, input_shapes, {name: parameter.shape for name, parameter in params.items()}
    )
    notes = [
        f"mxamp does not know the shape of what the operator {op} returns (node {name!r}), and MXNet, which "
        "does, is not installed: what lies behind it is not counted, and costs may not decide."
        for op, name in inferred.without_rule.items()
    ]
    return KnownShapes(inferred.entries, tuple(notes))
