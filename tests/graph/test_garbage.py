"""The collector is paused inside the block and as it was after it."""

from __future__ import annotations

import gc
import inspect

import pytest

import mxamp
from mxamp.conversion import convert_graph
from mxamp.graph import Entry, Graph, Node
from mxamp.graph.garbage import paused_collection


@pytest.fixture(autouse=True)
def _collector_as_it_was():
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


def test_the_collector_is_paused_and_comes_back() -> None:
    gc.enable()
    with paused_collection():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_comes_back_after_an_exception() -> None:
    gc.enable()
    with pytest.raises(KeyError), paused_collection():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with paused_collection():
        pass
    assert not gc.isenabled()


def test_conversion_leaves_no_cycles_behind() -> None:
    """What is not collected while it runs must not need to be."""
    nodes = [Node("null", "data")]
    for number in range(200):
        nodes.append(Node("Activation", f"a{number}", {"act_type": "relu"}, (Entry(number),)))
    graph = Graph(tuple(nodes), (Entry(200),))
    mxamp.convert_model(graph, {}, {}, "bfloat16")  # fills what is kept for good
    gc.collect()
    model = mxamp.convert_model(graph, {}, {}, "bfloat16")
    del model
    assert gc.collect() < 100  # a cycle a node would be 200 and more


def test_the_signature_of_what_is_paused_survives() -> None:
    assert "options" in inspect.signature(convert_graph).parameters
    assert "source" in inspect.signature(mxamp.graph.parse_symbol).parameters


def test_what_the_block_made_is_not_walked_when_it_ends() -> None:
    gc.enable()
    with paused_collection():
        made = [[] for _ in range(10_000)]
    young = gc.get_count()[0]
    assert young < 10_000, "the next allocation would walk them all"
    del made


def test_what_the_caller_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with paused_collection():
            pass
        # Other threads may let go of something that was frozen; unfrozen, nothing would be left.
        assert gc.get_freeze_count() > 0.9 * frozen > 0
    finally:
        gc.unfreeze()
