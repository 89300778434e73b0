"""Where exactness spreads: the FP32 region around indices and coordinates.

An operator that reads positions (box decoding, NMS, ``take``'s indices) is of no use in FP32 when what it
reads was rounded just before, and one that produces positions (``topk``, ``argsort``, ``_arange``) is of no
use when they are rounded just after: at 600 pixels FP16 steps by 0.5 and BF16 by 4. So FP32 spreads,

backward
    from inputs that hold indices or coordinates, through arithmetic (which becomes RED) and through
    operators that only move values (which become RED unless all they move comes, unchanged, from GREEN
    operators: such values were rounded already);
forward
    from outputs that hold indices or coordinates, through moves and through the arithmetic under which a
    position stays a position (add, scale, floor, minimum ...).

It stops at GREEN operators, and at features: entries that a GREEN operator reads as data, whose rounding
is accepted already. But the dense layer that computes an affine transform of positions is FP32 itself: its
result multiplies positions, one part in 256 of 256 pixels is a pixel, and the layer is a small one. A user's
own color is never overridden; spreading passes on through it. TensorFlow's AMP spreads its deny list forward
in the same spirit (tensorflow/core/grappler/optimizers/auto_mixed_precision.cc); the backward half is ours.
"""

from __future__ import annotations

from typing import Mapping, Sequence

from mxamp.graph.graph import Entry, Graph
from mxamp.ops import FACTS, InputRole, OperatorFacts, ValueKind
from mxamp.ops.casts import AMP_CAST, AMP_MULTICAST, CAST
from mxamp.policy.color import Color, Verdict
from mxamp.policy.context import ColoringContext

_EXACT_ROLES = frozenset({InputRole.INDEX, InputRole.COORDINATE})
_SPREADING_FORWARD = frozenset({ValueKind.MOVE, ValueKind.AFFINE})
_INTEGER_ORDERING = frozenset(
    {
        "topk",
        "argsort",
        "sort",
        "argmax",
        "argmin",
        "argmax_channel",
        "_npi_argmax",
        "_npi_argmin",
        "_npi_unique",
    }
)
"""Read their data to rank it: what decides the rank must not tie for want of digits."""

_TRANSFORM = {"GridGenerator": 0, "SpatialTransformer": 1}
"""Which input of an operator is an affine transform of positions."""


def exact_region(context: ColoringContext, verdicts: Sequence[Verdict]) -> dict[int, str]:
    """Return the nodes that must be FP32 because exactness reaches them, with the reason.

    Parameters
    ----------
    context
        The graph and what is known about it.
    verdicts
        The verdict of every node by the rules; ignored for variables.

    Returns
    -------
    dict
        Node position -> reason. Only nodes that are not RED already.

    Notes
    -----
    Linear in nodes and uses: two sweeps over the topological order.
    """
    region: dict[int, str] = {}
    features = _features(context, verdicts)
    _spread_backward(context, verdicts, features, region)
    _spread_forward(context, verdicts, features, region)
    return region


def _features(context: ColoringContext, verdicts: Sequence[Verdict]) -> set[Entry]:
    """Entries that a GREEN operator reads as data: feature maps, not positions."""
    return {
        entry
        for position, node in enumerate(context.graph.nodes)
        for facts in [context.facts[position]]
        if facts is not None and verdicts[position].color is Color.GREEN
        for number, entry in enumerate(node.inputs)
        if facts.role(number, node.attrs) is InputRole.DATA
    }


def _kind(context: ColoringContext, position: int) -> ValueKind:
    facts = context.facts[position]
    if facts is not None:
        return facts.kind
    op = context.graph.nodes[position].op
    return ValueKind.MOVE if op in (AMP_CAST, AMP_MULTICAST) else ValueKind.COMPUTE


def _orders(facts: OperatorFacts | None) -> bool:
    return facts is not None and facts.name in _INTEGER_ORDERING


def _reads_exactly(facts: OperatorFacts, number: int, attrs: Mapping[str, str]) -> bool:
    """Whether input ``number`` of an operator must not be rounded on its way in."""
    if facts.role(number, attrs) in _EXACT_ROLES or _orders(facts):
        return True
    return facts.name == CAST and attrs.get("dtype", "").startswith(("int", "uint"))


def _spread_backward(
    context: ColoringContext, verdicts: Sequence[Verdict], features: set[Entry], region: dict[int, str]
) -> None:
    graph = context.graph
    # Which node wants the values of this node's outputs exact; the first that asks is named in the reason.
    wanted_by: dict[int, int] = {}
    transforms = _layers_of_transforms(context)
    for position in range(len(graph.nodes) - 1, -1, -1):
        node, facts = graph.nodes[position], context.facts[position]
        if node.is_variable:
            continue
        origin = wanted_by.get(position)
        spreads = origin is not None and verdicts[position].color is not Color.GREEN
        for number, entry in enumerate(node.inputs):
            if graph.nodes[entry.node].is_variable:
                continue
            source = position if facts is not None and _reads_exactly(facts, number, node.attrs) else None
            if source is None and spreads and _carries_values(facts, number, node.attrs):
                source = origin
            if source is not None and (entry not in features or _always_exact(facts, number, node.attrs)):
                wanted_by.setdefault(entry.node, source)
    for position in sorted(wanted_by):
        color = verdicts[position].color
        consumer = graph.nodes[wanted_by[position]]
        if color is Color.GREEN and not verdicts[position].by_user and position in transforms:
            region[position] = f"{consumer.name!r} ({consumer.op}) multiplies positions by what it computes"
            continue
        if color is not Color.GRAY or verdicts[position].by_user:
            continue
        if _kind(context, position) is ValueKind.MOVE and _only_moves_rounded_values(
            context, verdicts, region, position
        ):
            continue
        facts = context.facts[wanted_by[position]]
        how = "puts its values in order" if _orders(facts) else "reads its values as indices or coordinates"
        region[position] = f"{consumer.name!r} ({consumer.op}) {how}"


def _layers_of_transforms(context: ColoringContext) -> frozenset[int]:
    """Return the dense layers that compute affine transforms of positions, moved as they are or not."""
    graph, found = context.graph, set()
    for position, node in enumerate(graph.nodes):
        facts = context.facts[position]
        number = None if facts is None else _TRANSFORM.get(facts.name)
        if number is None or node.attrs.get("transform_type", "affine") != "affine":
            continue
        at = node.inputs[number].node
        while _kind(context, at) is ValueKind.MOVE and graph.nodes[at].inputs:
            at = graph.nodes[at].inputs[0].node
        facts = context.facts[at]
        if facts is not None and facts.is_dense:
            found.add(at)
    return frozenset(found)


def _carries_values(facts: OperatorFacts | None, number: int, attrs: Mapping[str, str]) -> bool:
    """Whether the values of input ``number`` reach the output."""
    if facts is None:
        return True
    return facts.role(number, attrs) in (InputRole.DATA, InputRole.COORDINATE) or facts.name == CAST


def _always_exact(facts: OperatorFacts | None, number: int, attrs: Mapping[str, str]) -> bool:
    return facts is not None and facts.role(number, attrs) is InputRole.INDEX


def _only_moves_rounded_values(
    context: ColoringContext, verdicts: Sequence[Verdict], region: dict[int, str], position: int
) -> bool:
    """Whether a moving operator moves nothing but what GREEN operators produced.

    Producers come before their consumers and were judged already, so one look at each input suffices: a
    GRAY producer outside the region is itself a mover of rounded values, or arithmetic nobody wants exact.
    """
    graph, facts = context.graph, context.facts[position]
    node = graph.nodes[position]
    for number, (producer, _) in enumerate(node.inputs):
        if not _carries_values(facts, number, node.attrs):
            continue
        if graph.nodes[producer].is_variable or producer in region:
            return False
        if verdicts[producer].color is Color.RED:
            return False
    return True


def _spread_forward(
    context: ColoringContext, verdicts: Sequence[Verdict], features: set[Entry], region: dict[int, str]
) -> None:
    graph = context.graph
    holds_positions: dict[Entry, int] = {}
    for position, node in enumerate(graph.nodes):
        facts = context.facts[position]
        if node.is_variable:
            continue
        origin = next(
            (
                holds_positions[entry]
                for number, entry in enumerate(node.inputs)
                if entry in holds_positions and _carries_values(facts, number, node.attrs)
            ),
            None,
        )
        if facts is not None:
            for output in facts.seed_outputs(node.attrs):
                holds_positions[Entry(position, output)] = position
        if origin is None or _kind(context, position) not in _SPREADING_FORWARD:
            continue
        color = verdicts[position].color
        if color is Color.GREEN:
            continue
        if color is Color.GRAY and not verdicts[position].by_user and position not in region:
            producer = graph.nodes[origin]
            region[position] = (
                f"it computes with the positions that {producer.name!r} ({producer.op}) produces"
            )
        for output in range(node.num_outputs):
            entry = Entry(position, output)
            if entry not in features:
                holds_positions.setdefault(entry, origin)


_FEW = 64
"""So many nodes behind a value are looked at; interpolation has a dozen."""


def is_made_of_positions(graph: Graph, entry: Entry) -> bool:
    """Return whether a value is computed from nothing but positions that the graph itself counts.

    Parameters
    ----------
    graph
        The graph.
    entry
        The value.
    """
    seen: set[Entry] = set()
    waiting, counts = [entry], False
    while waiting:
        one = waiting.pop()
        node = graph.nodes[one.node]
        if node.is_variable or len(seen) > _FEW:
            return False
        facts = FACTS.of(node.op, node.attrs)
        if facts is None and node.op != AMP_CAST:  # a converted model has casts on the way
            return False
        if facts is not None and facts.kind is ValueKind.GENERATE:
            counts |= one.output in facts.seed_outputs(node.attrs)
            continue
        read = [own for number, own in enumerate(node.inputs) if _carries_values(facts, number, node.attrs)]
        waiting += [own for own in read if own not in seen]
        seen.update(read)
    return counts


def exact_entries(graph: Graph) -> frozenset[Entry]:
    """Return the entries that hold indices or coordinates, whoever computes with them besides.

    They are what is read and what is produced as such, and what these are moved or scaled from and to.
    Unlike :func:`exact_region` this asks no policy; it is about what enters and leaves the graph.

    Notes
    -----
    Linear in nodes and uses: three sweeps.
    """
    found: set[Entry] = set()
    all_facts = [None if node.is_variable else FACTS.of(node.op, node.attrs) for node in graph.nodes]

    def hands_on(position: int) -> bool:
        facts, op = all_facts[position], graph.nodes[position].op
        if facts is None:
            return op in (AMP_CAST, AMP_MULTICAST)
        return facts.kind in _SPREADING_FORWARD or facts.name == CAST

    def reads_found(position: int) -> bool:
        return any(
            entry in found and _carries_values(all_facts[position], number, graph.nodes[position].attrs)
            for number, entry in enumerate(graph.nodes[position].inputs)
        )

    for position, node in enumerate(graph.nodes):
        facts = all_facts[position]
        if facts is not None:
            found.update(Entry(position, output) for output in facts.seed_outputs(node.attrs))
        if hands_on(position) and reads_found(position):
            found.update(Entry(position, output) for output in range(node.num_outputs))
    for position in range(len(graph.nodes) - 1, -1, -1):
        node, facts = graph.nodes[position], all_facts[position]
        is_exact = any(Entry(position, output) in found for output in range(node.num_outputs))
        for number, entry in enumerate(node.inputs):
            # What an operator ranks is read exactly, too, and is no index.
            if facts is not None and not _orders(facts) and _reads_exactly(facts, number, node.attrs):
                found.add(entry)
            if is_exact and hands_on(position) and _carries_values(facts, number, node.attrs):
                found.add(entry)
    # The same values beside, whoever reads them there.
    for position, node in enumerate(graph.nodes):
        facts = all_facts[position]
        if facts is not None and facts.kind is ValueKind.MOVE and reads_found(position):
            found.update(Entry(position, output) for output in range(node.num_outputs))
    return frozenset(found)
