"""Converting what was converted changes nothing: models of which the first conversion knew less."""

from __future__ import annotations

from typing import Any

import pytest

import mxamp
from mxamp.graph import Entry, write_symbol
from tests.building import Net

pytestmark = pytest.mark.filterwarnings("ignore::mxamp.MxampWarning")


def assert_converting_again_changes_nothing(net: Net, *heads: Entry, **options: Any) -> mxamp.Model:
    """Convert twice; return what came of it."""
    model = mxamp.convert_model(net.graph(*heads), net.params, {}, "bfloat16", **options)
    again = mxamp.convert_model(model.graph, model.arg_params, model.aux_params, "bfloat16", **options)
    assert write_symbol(again.graph) == write_symbol(model.graph)
    assert {name: value.dtype for name, value in again.arg_params.items()} == {
        name: value.dtype for name, value in model.arg_params.items()
    }
    return model


def test_an_input_that_a_conversion_lets_say_float32_says_nothing_for_sure() -> None:
    """A sum of an input that may be integers stays one that promotes, the second time too."""
    net = Net()
    data = net.var("data")
    sums = net.op("_npi_add", data, data)
    model = assert_converting_again_changes_nothing(net, net.conv(data), sums, low_precision="required")
    nodes = model.graph.nodes
    assert nodes[model.graph.variables["data"]].attrs["__dtype__"] == "0"
    assert "_npi_add" in [node.op for node in nodes]


def test_what_arrives_low_by_wish_is_spelled_as_what_is_cast_up_behind_it() -> None:
    net = Net()
    scaled = net.op("_npi_add_scalar", net.var("data"), scalar="0.25")
    sums = net.op("_npi_add", scaled, net.param("weight", 4, 3))
    model = assert_converting_again_changes_nothing(net, net.op("exp", sums), io_dtype="low")
    assert not [node.op for node in model.graph.nodes if node.op.startswith("_npi")]


def test_a_pass_that_was_taken_back_for_fusions_sake_is_so_behind_casts() -> None:
    net = Net()
    layer = net.conv(net.var("data"))
    model = assert_converting_again_changes_nothing(
        net, net.op("add_n", layer, layer, num_args=2), prepare=["short_sums"], low_precision="required"
    )
    assert "add_n" in [node.op for node in model.graph.nodes]
