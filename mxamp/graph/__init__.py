"""The graph intermediate representation: MXNet's symbol as a plain value, without MXNet."""

from mxamp.graph.graph import VARIABLE, Entry, Graph, Node, Use
from mxamp.graph.symbol_reader import parse_symbol, read_symbol
from mxamp.graph.symbol_writer import write_symbol
from mxamp.graph.verify import verify_graph

__all__ = [
    "VARIABLE",
    "Entry",
    "Graph",
    "Node",
    "Use",
    "parse_symbol",
    "read_symbol",
    "verify_graph",
    "write_symbol",
]
