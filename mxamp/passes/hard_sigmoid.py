"""Compute hard sigmoids and hard swishes with the operator that MXNet has for them."""

from __future__ import annotations

from typing import Iterable, NamedTuple

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import real_number
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.records import PreparedNode
from mxamp.passes.state import Done, State

_SIXTH = 1.0 / 6.0
_PRODUCTS = frozenset({"elemwise_mul", "broadcast_mul"})


class _Chain(NamedTuple):
    """One hard sigmoid in a graph. All are positions."""

    source: Entry
    plus: int
    clip: int
    product: int | None
    """The multiplication between clip and division, where there is one."""
    division: int


class RewriteHardSigmoid(PreparationPass):
    """Replace the chains that make a hard sigmoid or a hard swish by ``hard_sigmoid``.

    Hard sigmoid, min(max(x + 3, 0), 6) / 6::

        x -> _plus_scalar 3 -> clip 0 6 -> _div_scalar 6 (name)       x -> hard_sigmoid 1/6 0.5 (name)

    Hard swish, x times that; what multiplies stays::

        x * (x -> _plus_scalar 3 -> clip 0 6 -> _div_scalar 6)        x * (x -> hard_sigmoid 1/6 0.5)
        (x * (x -> _plus_scalar 3 -> clip 0 6)) -> _div_scalar 6      x * (x -> hard_sigmoid 1/6 0.5)

    The division may be ``_mul_scalar`` by float32's 1/6.

    Refuses: other constants; where anything else reads a value inside the chain, or it is a graph output (the
    last node may be one: its name stays); where all that is read of the last is its shape; other dtypes than
    float32, for in integers and low precision the steps round differently; nodes that a rule of the user's
    picks; the bodies of control flow.

    Notes
    -----
    Numerical effect, float32, u = 2^-24. The chain rounds x + 3, by at most 4u, which divided by 6 is (2/3)u,
    and the division by u/2. ``hard_sigmoid`` rounds 1/6 and the product, less than u/2 each between -3 and 3,
    and the sum by u/2. So the two differ by less than 2.7u (1.6e-7), measured 1u; beyond -3 and 3 both are
    0 and 1 up to that, and NaN at NaN. A hard swish differs by that times x and two roundings; one that
    multiplies before it divides overflowed where 6x does, and no longer.

    Why this form, measured on a CPU with avx512_bf16 and MXNet 1.9.1: the chain takes 2 to 3 times as long in
    float32. ``hard_sigmoid`` does not run in bfloat16 on CPUs, and each step of the chain is slow in it and
    truncates. It takes 0.73 ns a value where all lie between the kinks, as any other pass over a plain tensor
    (0.62), and 2.0 to 2.7 where they scatter about them, for it branches: where a layer writes what a hard
    swish reads, :mod:`mxamp.passes.hard_swish` has a faster form.

    Linear in nodes and inputs.

    References
    ----------
    Howard et al., "Searching for MobileNetV3", 2019, section 5.2.
    """

    step = "hard_sigmoid"
    operators = frozenset({"clip"})

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with hard sigmoids."""
        chains = [
            chain
            for position, node in enumerate(graph.nodes)
            if node.op == "clip" and _is(node, a_min=0.0, a_max=6.0)
            for chain in _matches(graph, state, position)
        ]
        if not chains:
            return None
        gone: set[int] = set()
        changed: dict[int, Node] = {}
        changes: dict[int, PreparedNode] = {}
        for chain in chains:
            steps = [chain.plus, chain.clip, chain.division]
            if chain.product is None:
                place = chain.division
            else:
                place = chain.clip
                steps.append(chain.product)
                product = graph.nodes[chain.product]
                changed[chain.division] = product._replace(name=graph.nodes[chain.division].name)
            name = graph.nodes[place].name
            attrs = {"alpha": repr(_SIXTH), "beta": "0.5"}
            changed[place] = Node("hard_sigmoid", name, attrs, (chain.source,))
            for position in steps:
                into = position if position in changed else (place if position != chain.product else None)
                kept = chain.division if into is None else into
                changes[position] = PreparedNode(
                    graph.nodes[position].name,
                    graph.nodes[position].op,
                    self.step,
                    graph.nodes[kept].name,
                    f"a part of the hard sigmoid {name!r}"
                    if position != chain.division or chain.product is None
                    else f"the product with the hard sigmoid {name!r}, which is divided already",
                )
            gone.update(position for position in steps if position not in changed)
        edit = GraphEdit(graph, state.params)
        for position in gone:
            edit.drop(position)
        for position, node in changed.items():
            edit.replace(position, node)
        return Done(edit.finish(), tuple([change for _, change in sorted(changes.items())]))


def _matches(graph: Graph, state: State, clip: int) -> Iterable[_Chain]:
    """Return the chain around a clip, if there is one and nothing speaks against it."""
    plus = graph.nodes[clip].inputs[0].node
    if FACTS.canonical(graph.nodes[plus].op) != "_plus_scalar" or not _is(graph.nodes[plus], scalar=3.0):
        return ()
    if state.only_reader(plus) != clip:
        return ()
    source = graph.nodes[plus].inputs[0]
    follower = state.only_reader(clip)
    product = None
    if follower is not None and FACTS.canonical(graph.nodes[follower].op) in _PRODUCTS:
        # x * clip(x + 3): the other factor must be x, or the shapes may differ.
        if set(graph.nodes[follower].inputs) != {source, Entry(clip)}:
            return ()
        product, follower = follower, state.only_reader(follower)
    if follower is None or not _divides_by_six(graph.nodes[follower]):
        return ()
    chain = _Chain(source, plus, clip, product, follower)
    nodes = [plus, clip, follower] if product is None else [plus, clip, product, follower]
    if any(state.is_fixed(position) for position in nodes) or not _is_computed(state, follower):
        return ()
    if state.certain_dtypes[source.node][source.output] is not DType.FLOAT32:
        return ()
    return (chain,)


def _is_computed(state: State, position: int) -> bool:
    """Return whether anything reads the values of a node: MXNet's hard_sigmoid raises where none does."""
    readers = [(state.graph.nodes[use.node], use.input) for use in state.graph.uses_of(Entry(position))]
    facts = [FACTS.of(node.op, node.attrs) for node, _ in readers]
    return position in state.heads or any(
        one is None or one.role(number, node.attrs).reads_values
        for one, (node, number) in zip(facts, readers)
    )


def _divides_by_six(node: Node) -> bool:
    op = FACTS.canonical(node.op)
    if op == "_div_scalar":
        return _is(node, scalar=6.0)
    if op != "_mul_scalar":
        return False
    value = real_number(node.attrs, "scalar")
    return value is not None and np.float32(value) == np.float32(_SIXTH)


def _is(node: Node, **constants: float) -> bool:
    return len(node.inputs) == 1 and all(
        real_number(node.attrs, key) == value for key, value in constants.items()
    )
