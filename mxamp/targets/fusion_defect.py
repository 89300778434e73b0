"""Where MXNet 1.9.1's oneDNN fusion computes something else than the graph says, in FP32 as in bfloat16."""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import Collection, NamedTuple, Sequence

from mxamp.graph.graph import Entry, Graph, Node, Use
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.targets.layout import clips_from_zero

_ACTIVATION_TYPES = frozenset({"relu", "sigmoid", "softrelu", "tanh"})
_LEAKY_AFTER_CONVOLUTION = frozenset({"leaky", "gelu"})
_LEAKY_AFTER_DENSE = frozenset({"leaky", "gelu", "elu"})
_AFTER_DENSE = frozenset({"square", "sqrt", "abs", "exp"})
_SUMS = frozenset({"elemwise_add", "_npi_add"})
_DELETED = frozenset({"Dropout", "_copy"})
_CONVOLUTIONS = frozenset({"Convolution", "_npx_convolution"})
_DENSE = frozenset({"FullyConnected", "_npx_fully_connected"})


class LostBranch(NamedTuple):
    """A value that MXNet's fusion gives up though it is still wanted. All are positions of nodes.

    Attributes
    ----------
    value
        The node whose value it is.
    fused
        What is fused with it. Whoever reads either gets the same: the one, or the other.
    reader
        What reads the value too; None where it is a graph output; ``fused`` itself where that reads it twice,
        and MXNet raises, and where it is a BatchNorm that the backend computes wrongly, whoever reads what.
    fault
        What is wrong with such a BatchNorm, as the end of "fused, although it ..."; empty elsewhere.
    """

    value: int
    fused: int
    reader: int | None
    fault: str = ""


class _Chain(enum.Enum):
    """How far a chain has got, by its last node; decides what the backend adds to it."""

    CONVOLUTION = enum.auto()
    NORM = enum.auto()
    SUM = enum.auto()
    DENSE = enum.auto()


def lost_branches(graph: Graph) -> Sequence[LostBranch]:
    """Return every place where the fusion is wrong.

    Parameters
    ----------
    graph
        The graph; bodies of control flow are not fused.

    Notes
    -----
    The backend grows a chain from a Convolution: BatchNorm, then a sum, then an activation (``clip`` from 0
    among them); and from a FullyConnected, an activation. It stops where a value has a second reader, which
    it notices when it offers that reader to the chain. But it offers no node that it excluded before, and it
    excludes a sum that depends on the activation too, since the chain would then contain a loop::

        y = Convolution(x);  z = elemwise_add(f(Activation(y)), y)

    So it takes the activation, and one result stands for ``y`` and ``Activation(y)``: which, depends on the
    order of the readers. A graph output is no reader either, so ``y`` may be lost that is one. A sum of ``y``
    and ``y`` is taken too, and MXNet then raises. Behind a FullyConnected other readers are not noticed at
    all once an activation is taken; it is, if it is the first that is offered. That is the reader visited
    last, or, of three and more, now and then another: MXNet keeps them in a hash table whose keys are
    addresses. (Of 300 times that a graph was bound, a square in the middle of three was taken 35 times, and
    the second of four once, the third 57 times; the one visited first never was.)

    A BatchNorm is fused whatever it normalizes and whatever of it is read. What its weights are scaled for is
    axis 1, so another one is wrong; and the fused operator has one output, which stands for the mean and the
    variance of ``output_mean_var``, too.

    Before it fuses anything, the backend deletes a Dropout and an identity: who reads those reads the value,
    which is a graph output where they are one.

    Linear in nodes and inputs, and in the length of the detours around such sums.

    References
    ----------
    src/operator/subgraph/mkldnn/mkldnn_conv_property.h, MXNet 1.9.1; and execution, see the tests.
    """
    found: list[LostBranch] = []
    graph = _without_deleted(graph)
    heads = frozenset(graph.heads)
    for position, node in enumerate(graph.nodes):
        if node.op in _CONVOLUTIONS and _is_fused(node):
            chain = _Chain.CONVOLUTION
        elif node.op in _DENSE:
            chain = _Chain.DENSE
        else:
            continue
        end: int | None = position
        while end is not None:
            uses, is_head = graph.uses[end].get(0, ()), (end, 0) in heads
            if len(uses) + is_head > 1:
                found += _lost(graph, uses, end, chain, is_head=is_head)
                break
            if not uses:
                break
            norm = uses[0].node
            fault = _fault_of_norm(graph, norm, node, heads) if chain is _Chain.CONVOLUTION else ""
            if fault and uses[0].input == 0:
                found.append(LostBranch(end, norm, norm, fault))
                break
            end, chain = _next(graph, uses[0], chain)
    return found


def order_of_readers_matters(graph: Graph) -> bool:
    """Return whether a value that is not lost may be where casts stand before readers of it.

    Behind a Convolution a cast is a reader like any that is no sum, and the chain ends.
    """
    return any(
        node.op in _DENSE and len(graph.uses[position].get(0, ())) > 1
        for position, node in enumerate(graph.nodes)
    )


def handed_on(graph: Graph) -> dict[Entry, Entry]:
    """Return what the backend deletes -> the value that is read, or put out, in its place.

    Of several in a row the backend deletes one or all.
    """
    found: dict[Entry, Entry] = {}
    for position, node in enumerate(graph.nodes):
        is_deleted = FACTS.canonical(node.op) in _DELETED and node.attrs.get("mode", "training") == "training"
        if is_deleted and len(node.inputs) == 1:
            found[Entry(position)] = found.get(node.inputs[0], node.inputs[0])
    return found


def _without_deleted(graph: Graph) -> Graph:
    """Return the graph in which nobody gets what the backend deletes, and it reads nothing."""
    instead = handed_on(graph)
    if not instead:
        return graph
    nodes = [
        node._replace(
            inputs=()
            if Entry(position) in instead
            else tuple([instead.get(entry, entry) for entry in node.inputs])
        )
        for position, node in enumerate(graph.nodes)
    ]
    return replace(graph, nodes=tuple(nodes), heads=tuple([instead.get(head, head) for head in graph.heads]))


def _fault_of_norm(graph: Graph, position: int, layer: Node, heads: Collection[Entry]) -> str:
    """Return what is wrong with a BatchNorm that is fused with the layer before it; empty if nothing."""
    node = graph.nodes[position]
    if FACTS.canonical(node.op) != "BatchNorm":
        return ""
    if any(output > 0 for output in graph.uses[position]) or any(
        head.node == position and head.output > 0 for head in heads
    ):
        return "its mean or variance is read"
    axis = integers(node.attrs.get("axis", "1"))
    rank = 2 + len(integers(layer.attrs.get("kernel", "()")) or ())
    if axis is not None and len(axis) == 1 and axis[0] % rank != 1:
        return "it normalizes another axis than that of the channels"
    return ""


def _is_fused(node: Node) -> bool:
    kernel = integers(node.attrs.get("kernel", "()"))
    return kernel is not None and len(kernel) in (2, 3)


def _next(graph: Graph, reader: Use, chain: _Chain) -> tuple[int | None, _Chain]:
    """Return the BatchNorm or the sum that the chain goes on with; None where it has no value to lose."""
    if chain is _Chain.CONVOLUTION or chain is _Chain.NORM:
        op = FACTS.canonical(graph.nodes[reader.node].op)
        if op == "BatchNorm" and chain is _Chain.CONVOLUTION and reader.input == 0:
            return reader.node, _Chain.NORM
        if op in _SUMS:
            return reader.node, _Chain.SUM
    return None, chain


def _lost(
    graph: Graph, uses: Sequence[Use], end: int, chain: _Chain, *, is_head: bool
) -> Sequence[LostBranch]:
    """Return what is lost of a value that is read several times, or is read and a graph output."""
    readers = sorted({use.node for use in uses})
    if chain is _Chain.DENSE:
        return _lost_dense(graph, end, readers, is_head=is_head)
    if not readers:
        return ()
    # All but one are sums, and depend on that one: it is no sum, or the first.
    fused, *others = sorted(readers, key=lambda reader: _takes_sum(chain, graph.nodes[reader]))
    twice = _takes_sum(chain, graph.nodes[fused]) and sum(use.node == fused for use in uses) > 1
    if (
        (others or is_head or twice)
        and _takes(chain, graph.nodes[fused])
        and all(_takes_sum(chain, graph.nodes[other]) for other in others)
        and _all_depend(graph, others, fused)
    ):
        reader = None if is_head else fused
        return [LostBranch(end, fused, others[0] if others else reader)]
    return ()


def _lost_dense(graph: Graph, end: int, readers: Sequence[int], *, is_head: bool) -> Sequence[LostBranch]:
    """Return what may be lost of a FullyConnected: its chain looks no further once it has an activation."""
    takers = [reader for reader in readers if _takes(_Chain.DENSE, graph.nodes[reader])]
    if not takers:
        return ()
    if len(readers) == 1:
        return [LostBranch(end, takers[0], None)] if is_head else ()
    first, *offered = sorted(readers, key=graph.visits.__getitem__)
    return [LostBranch(end, taker, first) for taker in takers if taker in offered]


def _takes(chain: _Chain, node: Node) -> bool:
    """Whether the backend adds a node to a chain."""
    op = FACTS.canonical(node.op)
    dense = chain is _Chain.DENSE
    if op == "Activation":
        return node.attrs.get("act_type") in _ACTIVATION_TYPES
    if op == "LeakyReLU":
        known = _LEAKY_AFTER_DENSE if dense else _LEAKY_AFTER_CONVOLUTION
        return node.attrs.get("act_type", "leaky") in known
    if op == "clip":
        return clips_from_zero(node)
    if op == "BatchNorm":
        return chain is _Chain.CONVOLUTION
    return _takes_sum(chain, node) or (dense and op in _AFTER_DENSE)


def _takes_sum(chain: _Chain, node: Node) -> bool:
    return chain in (_Chain.CONVOLUTION, _Chain.NORM) and FACTS.canonical(node.op) in _SUMS


def _all_depend(graph: Graph, readers: Sequence[int], fused: int) -> bool:
    """Whether every reader depends on the fused node."""
    if not readers:
        return True
    dependent = {fused}
    for position in range(fused + 1, max(readers) + 1):
        if any(entry.node in dependent for entry in graph.nodes[position].inputs):
            dependent.add(position)
    return dependent.issuperset(readers)
