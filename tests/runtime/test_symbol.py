"""Symbols that MXNet parses and writes on a thread of its own."""

from __future__ import annotations

import pytest

mx = pytest.importorskip("mxnet")

from mxamp.errors import GraphError, OperatorError, SymbolFormatError
from mxamp.graph import Entry, Graph, Node
from mxamp.runtime.symbol import building_symbol, reading_symbol, symbol_from_graph

ATTRS = {"mxnet_version": ["int", 10901]}


def graph(op: str = "relu", **attrs: str) -> Graph:
    return Graph((Node("null", "x"), Node(op, "y", attrs, (Entry(0),))), (Entry(1),), ATTRS)


@pytest.mark.parametrize("beside", [False, True])
def test_what_mxnet_does_not_accept_is_told_to_whoever_waits(beside: bool) -> None:
    symbol = building_symbol(graph("no_such_operator"), trusted=True, beside=beside)
    with pytest.raises(SymbolFormatError, match="does not accept the graph"):
        symbol()


@pytest.mark.parametrize("beside", [False, True])
def test_what_mxnet_would_crash_over_is_told_at_once(beside: bool) -> None:
    starved = Graph((Node("_copyto", "y"),), (Entry(0),), ATTRS)
    with pytest.raises((GraphError, OperatorError), match="'y'"):
        building_symbol(starved, beside=beside)


@pytest.mark.parametrize("numpy_shapes", [False, True])
@pytest.mark.parametrize("beside", [False, True])
def test_a_thread_has_the_shape_semantics_of_its_caller(beside: bool, numpy_shapes: bool) -> None:
    sym = symbol_from_graph(graph())
    with mx.util.np_shape(numpy_shapes):
        read = reading_symbol(sym, beside=beside)()
        again = building_symbol(read, beside=beside)()
        assert read.has_numpy_shapes is numpy_shapes
        assert again.tojson() == sym.tojson()
    assert not mx.util.is_np_shape()
