from __future__ import annotations

import pytest

import mxamp
from mxamp.graph.symbol_reader import parse_symbol
from mxamp.graph.symbol_writer import write_symbol
from mxamp.graph.verify import verify_graph
from tools.benchmark_conversion import growth_exponent
from tools.synthetic_graphs import INPUT_SHAPE, chain


@pytest.mark.parametrize("nodes", [3, 4, 5, 8, 9, 100, 1001])
def test_a_chain_has_the_nodes_asked_for_and_is_a_valid_graph(nodes):
    model = chain(nodes)
    assert len(model.graph.nodes) == nodes
    verify_graph(model.graph)
    assert parse_symbol(write_symbol(model.graph)) == model.graph
    assert set(model.graph.variables) == {"data", *model.args}


def test_a_chain_is_the_same_for_the_same_seed():
    one, same, other = chain(30, seed=1), chain(30, seed=1), chain(30, seed=2)
    assert one.graph == same.graph
    name = next(iter(one.args))
    assert (one.args[name] == same.args[name]).all()
    assert (one.args[name] != other.args[name]).any()


def test_a_chain_too_short_is_refused():
    with pytest.raises(ValueError, match="at least 3 nodes, not 2"):
        chain(2)


def test_every_block_of_a_chain_has_a_cast_down_and_one_up():
    # data and 4 whole blocks: a block is 2 convolutions, their weights, 2 activations and a softmax
    report = mxamp.convert_model(*chain(1 + 4 * 7), target_dtype="bfloat16").report
    assert [cast.direction for cast in report.casts] == ["down", "up"] * 4


def test_a_chain_runs_in_mxnet():
    mx = pytest.importorskip("mxnet")
    model = chain(50)
    sym = mx.sym.load_json(write_symbol(model.graph))
    arguments = {name: mx.nd.array(value) for name, value in model.args.items()}
    executor = sym.bind(mx.cpu(), {"data": mx.nd.ones(INPUT_SHAPE), **arguments})
    assert executor.forward()[0].shape == INPUT_SHAPE


def test_a_very_long_chain_converts_without_recursion():
    assert mxamp.convert_model(*chain(20_000), target_dtype="bfloat16").report.low_nodes > 10_000


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_growth_exponent_is_that_of_a_power_law(power):
    sizes = [1000, 10_000, 100_000]
    assert growth_exponent(sizes, [3.0 * size**power for size in sizes]) == pytest.approx(power)
