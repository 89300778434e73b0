"""Write MXNet's symbol.json without MXNet; see :mod:`mxamp.graph.symbol_reader` for the format."""

from __future__ import annotations

import json
from typing import Any, Mapping

from mxamp.graph.graph import VARIABLE, Entry, Graph

_quoted = json.encoder.encode_basestring
"""A string as JSON."""


_encode = json.JSONEncoder(ensure_ascii=False).encode


def write_symbol(graph: Graph, *, compact: bool = False) -> str:
    """Return the ``symbol.json`` text of a graph, one node a line.

    Parameters
    ----------
    graph
        The graph.
    compact
        Whether to leave out whatever MXNet can do without: spaces, versions that are 0, and how many outputs
        nodes have.

    Returns
    -------
    str
        JSON that ``mx.sym.load_json`` reads. Parsing it again gives an equal graph (a compact one: equal but
        for outputs that nothing reads).
    """
    return _write_graph(graph, "," if compact else ", ", ":" if compact else ": ", compact) + "\n"


def _write_graph(graph: Graph, comma: str, colon: str, compact: bool) -> str:
    lines = []
    row_ptr = [0]
    arg_nodes = []
    written = 0
    for position, node in enumerate(graph.nodes):
        op, name, attrs, inputs, outputs, subgraphs, control_deps, versions = node
        line = f'{{"op"{colon}{_quoted(op)}{comma}"name"{colon}{_quoted(name)}'
        if attrs:
            line = f'{line}{comma}"attrs"{colon}{_attributes_text(attrs, comma, colon)}'
        line = f'{line}{comma}"inputs"{colon}{_entries_text(inputs, versions, compact)}'
        if control_deps:
            line = f'{line}{comma}"control_deps"{colon}{list(control_deps)}'
        if subgraphs:
            bodies = comma.join([_write_graph(body, comma, colon, compact) for body in subgraphs])
            line = f'{line}{comma}"subgraphs"{colon}[{bodies}]'
        lines.append(line + "}")
        written += outputs
        row_ptr.append(written)
        if op == VARIABLE:
            arg_nodes.append(position)
    return (
        f'{{"nodes"{colon}[\n'
        + ",\n".join(lines)
        + f'\n],\n"arg_nodes"{colon}{arg_nodes},\n'
        + ("" if compact else f'"node_row_ptr"{colon}{row_ptr},\n')
        + f'"heads"{colon}{_entries_text(graph.heads, graph.head_versions, compact)},\n'
        + f'"attrs"{colon}{_encode(_plain(graph.attrs))}}}'
    )


def _attributes_text(attrs: Mapping[str, str], comma: str, colon: str) -> str:
    """Return the attributes of a node as JSON; for small dicts the encoder takes three times as long."""
    try:
        pairs = [f"{_quoted(key)}{colon}{_quoted(value)}" for key, value in attrs.items()]
    except TypeError:  # what is no text, in a graph that somebody made by hand
        return _encode(dict(attrs))
    return "{" + comma.join(pairs) + "}"


def _entries_text(entries: tuple[Entry, ...], versions: tuple[int, ...], compact: bool) -> str:
    if versions:
        return str([[node, index, version] for (node, index), version in zip(entries, versions)])
    if compact:
        return "[" + ",".join([f"[{node},{index}]" for node, index in entries]) + "]"
    return "[" + ", ".join([f"[{node}, {index}, 0]" for node, index in entries]) + "]"


def _plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return dict(attrs)
