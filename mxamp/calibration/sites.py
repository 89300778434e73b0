"""Which choices of a placement bring about which roundings, and at what price."""

from __future__ import annotations

from typing import Collection, NamedTuple

from mxamp.calibration.prices import Prices
from mxamp.calibration.record import EntryName
from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph
from mxamp.ops import FACTS
from mxamp.ops.grid import keeps_grid
from mxamp.ops.parameters import LAYERS
from mxamp.placement import Demand, PlacementProblem, RoundingPrice, Supply


class Site(NamedTuple):
    """One rounding that a placement may bring about.

    Attributes
    ----------
    name
        The node whose result is rounded, or the parameter.
    is_parameter
        Which of the two.
    price
        What it adds to the squared error, and the nodes that bring it about.
    """

    name: str
    is_parameter: bool
    price: RoundingPrice


def rounding_sites(
    problem: PlacementProblem,
    prices: Prices,
    dtype: DType,
    *,
    fold_into: Collection[str] = LAYERS,
    weights: float = 1.0,
) -> list[Site]:
    """Return the roundings that placements of a problem may bring about.

    Parameters
    ----------
    problem
        The placement problem.
    prices
        What roundings cost, by the names of the nodes.
    dtype
        The low dtype.
    fold_into
        The operators into which a BatchNorm behind them is folded. Others hand it what is rounded.
    weights
        What the prices of parameters are multiplied with: the share of their error that compensation leaves.

    Returns
    -------
    list of Site
        In graph order. What has no price is not among them.

    Notes
    -----
    A value is rounded where the node that computes it is low, or a low node reads it: its price is paid once,
    however many do. What only moves values hands a rounding on. Inside a fused chain nothing is rounded.
    """
    graph = problem.graph
    of_entries, of_parameters = prices.entries[dtype.label], prices.of_parameters(dtype.label)
    moves = _moving(graph, dtype)
    inner = _inner(problem, moves, fold_into)
    found = []
    for position, node in enumerate(graph.nodes):
        if node.is_variable and node.name in of_parameters:
            readers = _readers(problem, Entry(position), moves)
            error = weights * of_parameters[node.name]
            if readers and error > 0:
                found.append(Site(node.name, True, RoundingPrice(readers, error)))
            continue
        if position in moves:
            continue
        for output in range(node.num_outputs):
            entry = Entry(position, output)
            error = of_entries.get(EntryName(node.name, output), 0.0)
            if error <= 0 or entry in inner:
                continue
            nodes = _brought_about_by(problem, entry, moves)
            if nodes:
                found.append(Site(str(EntryName(node.name, output)), False, RoundingPrice(nodes, error)))
    return found


def _readers(problem: PlacementProblem, parameter: Entry, moves: frozenset[int]) -> frozenset[int]:
    """Return the nodes of which a low one has a parameter rounded, directly or behind what only moves it."""
    reading = frozenset(use.node for use in problem.graph.uses_of(parameter))
    direct = reading & (problem.free | problem.low)
    return direct | _brought_about_by(problem, parameter, moves)


def _moving(graph: Graph, dtype: DType) -> frozenset[int]:
    """Return the nodes that hand on rounded values as rounded values."""
    found = set()
    for position, node in enumerate(graph.nodes):
        facts = None if node.is_variable else FACTS.of(node.op, node.attrs)
        if facts is not None and keeps_grid(facts, node.attrs, [dtype] * len(node.inputs), dtype, 0):
            found.add(position)
    return frozenset(found)


def _inner(problem: PlacementProblem, moves: frozenset[int], fold_into: Collection[str]) -> frozenset[Entry]:
    """Return what a fused chain computes and does not round: the next link makes another value of it."""
    found = set()
    graph = problem.graph
    for group in problem.groups:
        members = frozenset(group)
        for position in group[:-1]:
            uses = graph.uses_of(Entry(position))
            if uses and all(use.node in members and use.node not in moves for use in uses):
                found.add(Entry(position))
    for position, node in enumerate(graph.nodes):
        # A BatchNorm behind a layer is folded into it, whether the target fuses the two or not.
        if node.op != "BatchNorm" or graph.uses_of(node.inputs[0]) != ((position, 0),):
            continue
        if graph.nodes[node.inputs[0].node].op in fold_into:
            found.add(node.inputs[0])
    return frozenset(found)


def _brought_about_by(problem: PlacementProblem, entry: Entry, moves: frozenset[int]) -> frozenset[int]:
    """Return the nodes of which a low one has an entry rounded."""
    graph = problem.graph
    choices = problem.free | problem.low
    found = set()
    if problem.supply[entry.node][entry.output] is Supply.CHOSEN and entry.node in choices:
        found.add(entry.node)
    waiting, seen = [entry], {entry}
    while waiting:
        current = waiting.pop()
        for use in graph.uses_of(current):
            if problem.demand[use.node][use.input] is Demand.CHOSEN and use.node in choices:
                found.add(use.node)
            if use.node in moves:
                for output in range(graph.nodes[use.node].num_outputs):
                    moved = Entry(use.node, output)
                    if moved not in seen:
                        seen.add(moved)
                        waiting.append(moved)
    return frozenset(found)
