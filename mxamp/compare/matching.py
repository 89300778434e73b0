"""Which entry of a converted graph carries the value of which entry of the user's FP32 graph.

Nodes keep their names when they are converted, with one exception: a graph output that is cast back gives its
name to the cast and gets its dtype as a suffix (``fc0`` is then an ``amp_cast`` of ``fc0_bfloat16``). A layer
that is called twice has one name for two nodes, matched in their order where both graphs have as many.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence

from mxamp.dtypes import EMULATED_ONLY, LOW_PRECISION
from mxamp.graph.graph import Entry, Graph
from mxamp.ops.casts import AMP_MULTICAST, CAST_OPERATORS
from mxamp.ops.rounding import is_rounding, round_node_name


class Match(NamedTuple):
    """Two entries that should hold the same value.

    Attributes
    ----------
    reference
        The entry of the FP32 graph.
    converted
        The entry of the converted graph.
    producer
        The entry of the converted graph that computed the value: behind ``converted`` where that is a cast.
    """

    reference: Entry
    converted: Entry
    producer: Entry


class Matching(NamedTuple):
    """What two graphs have in common.

    Attributes
    ----------
    matched
        Entries of the FP32 graph with a counterpart, in topological order.
    unmatched
        Entries without one: a pass replaced their node.
    folded
        BatchNorm -> the layer it was folded into, positions in the FP32 graph. The layer's namesake carries
        the BatchNorm's result; the layer's own result is nowhere.
    """

    matched: tuple[Match, ...]
    unmatched: tuple[Entry, ...]
    folded: Mapping[int, int]


def match_entries(reference: Graph, converted: Graph) -> Matching:
    """Match the entries that somebody reads, in topological order.

    Parameters
    ----------
    reference, converted
        The FP32 graph and the graph it became.

    Returns
    -------
    Matching
        Linear in nodes and entries to find.
    """
    places, own_places = _places(converted), _places(reference)
    # Of several nodes of a name each has its own counterpart, where there are as many.
    positions = {name: found[0] for name, found in places.items() if len(own_places.get(name, ())) < 2}
    several = {
        position: other
        for name, found in own_places.items()
        if len(found) > 1 and len(places.get(name, ())) == len(found)
        for position, other in zip(found, places[name])
    }
    heads = set(reference.heads)
    folded = _folded(reference, places)
    merged = frozenset(folded.values())
    matched: list[Match] = []
    unmatched: list[Entry] = []
    for position, node in enumerate(reference.nodes):
        if node.is_variable:
            continue
        for output in range(node.num_outputs):
            entry = Entry(position, output)
            if entry not in heads and not reference.uses_of(entry):
                continue  # hidden outputs, such as BatchNorm's statistics
            if position in merged:
                continue
            carrier = folded.get(position, position)
            name = reference.nodes[carrier].name
            known = {name: several[carrier]} if carrier in several else positions
            found = _counterpart(entry, name, node.op, converted, known)
            if found is None:
                unmatched.append(entry)
            else:
                matched.append(Match(entry, *found))
    return Matching(tuple(matched), tuple(unmatched), folded)


def _places(graph: Graph) -> Mapping[str, Sequence[int]]:
    """Return where the operators of each name are."""
    found: dict[str, list[int]] = {}
    for position, node in enumerate(graph.nodes):
        if not node.is_variable:
            found.setdefault(node.name, []).append(position)
    return found


def _counterpart(
    entry: Entry, name: str, op: str, converted: Graph, positions: Mapping[str, int]
) -> tuple[Entry, Entry] | None:
    position = positions.get(name)
    if position is None:
        for dtype in sorted(LOW_PRECISION, key=str):
            position = positions.get(f"{name}_{dtype}", position)
    if position is None:
        return None
    node = converted.nodes[position]
    if node.op in CAST_OPERATORS and op not in CAST_OPERATORS:
        source = node.inputs[0]
        if entry.output == source.output:
            return Entry(position), source
        position = source.node  # another output of the node whose first one was cast back
    if entry.output >= converted.nodes[position].num_outputs:
        return None
    found = _rounded(Entry(position, entry.output), name, converted)
    return found, found


def _rounded(entry: Entry, name: str, converted: Graph) -> Entry:
    """Return the rounding of an emulated node's result, or the result itself where there is none."""
    suffix = f"_{entry.output}" if entry.output else ""
    names = tuple(
        [round_node_name(f"{name}{suffix}", dtype.label) for dtype in (*LOW_PRECISION, *EMULATED_ONLY)]
    )
    for use in converted.uses_of(entry):
        # Behind the second node of a name its own has a number.
        if is_rounding(converted.nodes[use.node].op) and converted.nodes[use.node].name.startswith(names):
            return Entry(use.node)
    return entry


def _folded(reference: Graph, places: Mapping[str, Sequence[int]]) -> dict[int, int]:
    """Return BatchNorm position -> position of the layer it was folded into."""
    folded: dict[int, int] = {}
    for position, node in enumerate(reference.nodes):
        if node.op != "BatchNorm" or node.name in places:
            continue
        source = node.inputs[0]
        layer = reference.nodes[source.node]
        alone = len(reference.uses_of(source)) == 1 and source not in reference.heads
        if (
            not layer.is_variable
            and alone
            and layer.name in places
            and layer.op not in (*CAST_OPERATORS, AMP_MULTICAST)
        ):
            folded[position] = source.node
    return folded
