"""Where MXNet 1.9.1 gives away the memory of a tensor of which the shape is still to be read.

Some operators read no values of an input, but its shape (``reshape_like``). MXNet's plan of its memory does
not count them as readers, so that another tensor may lie there when they run. They are still handed the
array, and MXNet first brings it into plain order for them. Where what lies there by then is in an order of
oneDNN's and of another size, that ends with "The size of NDArray doesn't match the requested MKLDNN memory
desc". So it is in FP32, too; casts change which tensors meet.

References
----------
``FIgnoreInputs`` in src/nnvm/plan_memory.cc, ``SetupDefaultBlobsIn`` in src/common/exec_utils.h and
``NDArray::CopyFrom`` in src/ndarray/ndarray.cc, MXNet 1.9.1; and execution, see the tests.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Mapping, Sequence

from mxamp.graph.graph import VARIABLE, Entry, Graph, Use
from mxamp.ops import FACTS
from mxamp.targets.layout import MAKE_BLOCKS, MAY_WRITE_BLOCKS

REFERENCES: Mapping[str, int] = {
    **dict.fromkeys(("reshape_like", "_identity_with_attr_like_rhs"), 1),
    **dict.fromkeys(("zeros_like", "ones_like", "_npi_full_like", "_contrib_arange_like"), 0),
    **{
        f"_random_{distribution}_like": 0
        for distribution in (
            *("exponential", "gamma", "generalized_negative_binomial", "negative_binomial", "normal"),
            *("poisson", "uniform"),
        )
    },
}
"""Operator -> the input of which it reads the shape alone, and which MXNet's plan does not count."""

_SHARE_MEMORY = frozenset({"BlockGrad", "Flatten", "Reshape", "_copy", "expand_dims", "reshape_like"})
"""Operators whose output lies where their first input does, whoever else reads that."""


def references(graph: Graph) -> Sequence[Use]:
    """Return where tensors that are no variables are read for their shape alone, uncounted."""
    found = []
    for position, node in enumerate(graph.nodes):
        number = REFERENCES.get(FACTS.canonical(node.op))
        if number is not None and graph.nodes[node.inputs[number].node].op != VARIABLE:
            found.append(Use(position, number))
    return found


class Memory:
    """How long MXNet's plan keeps the memory of each tensor of a graph.

    Parameters
    ----------
    graph
        The graph as it runs, with its casts. Bodies of control flow have plans of their own.

    Notes
    -----
    Linear in nodes and inputs; a question takes the logarithm of the number of nodes.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._roots: dict[Entry, Entry] = {}
        self._until: dict[Entry, int] = {}
        names = [FACTS.canonical(node.op) for node in graph.nodes]
        outputs = {head.node for head in graph.heads}  # an executor may hold memory of their own for them
        for position, (node, name) in enumerate(zip(graph.nodes, names)):
            shares = name in _SHARE_MEMORY and position not in outputs
            if shares and graph.nodes[node.inputs[0].node].op != VARIABLE:
                self._roots[Entry(position)] = self._root(node.inputs[0])
            for number, entry in enumerate(node.inputs):
                if REFERENCES.get(name) != number:
                    self._keep(entry, graph.visits[position])
        for head in graph.heads:
            self._keep(head, len(graph.nodes))
        written = [graph.visits[at] for at, name in enumerate(names) if name in MAY_WRITE_BLOCKS]
        self._written = sorted(written) if MAKE_BLOCKS.intersection(names) else []

    def may_be_lost(self, entry: Entry, reader: int) -> bool:
        """Return whether another tensor may lie, in an order of oneDNN's, where a node expects a reference.

        Parameters
        ----------
        entry
            The reference, no variable.
        reader
            The node that reads its shape.
        """
        visits = self._graph.visits
        given_away = self._until.get(self._root(entry), visits[entry.node])
        behind = bisect_right(self._written, given_away)
        return behind < len(self._written) and self._written[behind] < visits[reader]

    def _root(self, entry: Entry) -> Entry:
        return self._roots.get(entry, entry)

    def _keep(self, entry: Entry, until: int) -> None:
        root = self._root(entry)
        self._until[root] = max(until, self._until.get(root, until))
