"""Which values leave the range of a dtype, as they were observed."""

from __future__ import annotations

import sys
from typing import Mapping

from mxamp.calibration.calibration import Calibration
from mxamp.calibration.record import EntryName
from mxamp.calibration.statistics import EntryStatistics
from mxamp.dtypes import DType
from mxamp.errors import PolicyError
from mxamp.graph.graph import Entry, Graph
from mxamp.messages.arguments import argument

HEADROOM = 2.0
"""How many times larger than observed values may be, and fit: samples do not show the largest there is."""


def check_headroom(given: object) -> float:
    """Return a headroom.

    Raises
    ------
    PolicyError
        When it is no number from 1 on.
    """
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not 1.0 <= given <= sys.float_info.max:  # type: ignore[operator]
        raise PolicyError(
            f"{argument('headroom')} must be a number from 1 on, not {given!r:.80}: how many times larger "
            "than on the calibration's samples values may be, and still fit."
        )
    return float(given)  # type: ignore[arg-type]


def knows_some_of(graph: Graph, calibration: Calibration) -> bool:
    """Return whether a calibration knows a node of a graph; it is another model's where it knows none."""
    names = {node.name for node in graph.nodes}
    return any(name.node in names for name in calibration.entries)


def observed(
    graph: Graph, calibration: Calibration, *, below: float = float("inf")
) -> dict[Entry, EntryStatistics]:
    """Return what is known of the entries of a graph.

    Parameters
    ----------
    graph
        The graph; its nodes are looked up by their names. What is known of one that several nodes have, as of
        a layer that is called twice, is of all of them.
    calibration
        The calibration.
    below
        Entries whose largest magnitude is this or more are left out: masks that have another value now.
    """
    found = {}
    for position, node in enumerate(graph.nodes):
        for output in range(node.num_outputs):
            statistics = calibration.entries.get(EntryName(node.name, output))
            if statistics is not None and statistics.largest < below:
                found[Entry(position, output)] = statistics
    return found


def out_of_range(
    graph: Graph,
    known: Mapping[Entry, EntryStatistics],
    dtype: DType,
    headroom: float,
    exponents: Mapping[Entry, int],
) -> dict[str, str]:
    """Return the nodes that compute with values that a dtype may not hold.

    Parameters
    ----------
    graph
        The graph.
    known
        What was observed of its entries.
    dtype
        The dtype.
    headroom
        How many times larger than observed values may be.
    exponents
        Entry -> k, for those that are what was observed times 2^-k.

    Returns
    -------
    dict
        Node -> why it must not compute in the dtype: a value that it reads or hands on, with the sample.
    """
    large: dict[Entry, str] = {}
    for entry, statistics in known.items():
        largest = statistics.largest * 2.0 ** -exponents.get(entry, 0)
        if largest * headroom > dtype.max_finite:
            large[entry] = f"reaches {largest:.6g} in sample {statistics.sample} of the calibration"
    if not large:
        return {}
    beyond = (
        f"beyond {dtype}'s largest value {dtype.max_finite:.6g}"
        if headroom == 1.0
        else f"and {headroom:g} times that is beyond {dtype}'s largest value {dtype.max_finite:.6g}"
    )
    found = {}
    for position, node in enumerate(graph.nodes):
        if node.is_variable:
            continue
        for output in range(node.num_outputs):
            if Entry(position, output) in large:
                found[node.name] = f"its result {large[Entry(position, output)]}, {beyond}"
        for entry in node.inputs:
            if entry in large:
                found.setdefault(
                    node.name, f"{graph.describe(entry)!r}, which it reads, {large[entry]}, {beyond}"
                )
    return found
