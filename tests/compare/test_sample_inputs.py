from __future__ import annotations

import numpy as np
import pytest

from mxamp.compare.sample_inputs import sample_inputs
from mxamp.errors import DataError
from mxamp.model import Model
from tests.building import Net, parameters


def model_of(net: Net, *heads) -> Model:
    return Model(net.graph(*heads), parameters(net.params), {})


def test_values_are_standard_normal_and_the_same_again(conv_net):
    shapes = {"data": (2, 3, 64, 64)}
    first, again = sample_inputs(conv_net(), shapes), sample_inputs(conv_net(), shapes)
    assert first["data"].shape == (2, 3, 64, 64)
    assert first["data"].dtype == np.float32
    assert np.array_equal(first["data"], again["data"])
    assert first["data"].std() == pytest.approx(1, abs=0.05)
    assert not np.array_equal(first["data"], sample_inputs(conv_net(), shapes, seed=1)["data"])


@pytest.mark.parametrize("between", ["nothing", "reshape", "cast"])
def test_words_are_rows_of_the_embedding_that_reads_them(between):
    net = Net()
    words = net.var("words")
    if between == "reshape":
        words = net.op("Reshape", words, shape="(-1,)")
    elif between == "cast":
        words = net.op("Cast", words, dtype="int32")
    table = net.param("table", 7, 4)
    model = model_of(net, net.op("Embedding", words, table, input_dim=7, output_dim=4))
    values = sample_inputs(model, {"words": (20, 20)})["words"]
    assert set(np.unique(values)) == set(range(7))


def test_the_smaller_of_two_tables_bounds_what_points_into_both():
    net = Net()
    words = net.var("words")
    heads = [
        net.op("Embedding", words, net.param(f"table{rows}", rows, 4), input_dim=rows, output_dim=4)
        for rows in (50, 3)
    ]
    assert sample_inputs(model_of(net, *heads), {"words": (9, 9)})["words"].max() == 2


def test_take_points_into_the_rows_of_a_parameter():
    net = Net()
    model = model_of(net, net.op("take", net.param("table", 5, 2), net.var("rows")))
    assert sample_inputs(model, {"rows": (100,)})["rows"].max() == 4


def test_other_indices_are_zero_which_every_operator_takes():
    net = Net()
    model = model_of(net, net.op("pick", net.conv(net.var("data")), net.var("which"), axis=1))
    values = sample_inputs(model, {"data": (1, 4, 2, 2), "which": (1, 2, 2)})
    assert not values["which"].any()
    assert values["data"].any()


@pytest.mark.parametrize(("code", "largest"), [("3", 255), ("5", 127), ("4", 1), ("6", 1)])
def test_integer_inputs_are_integers_that_their_dtype_holds(code, largest):
    net = Net()
    data = net.op("Cast", net.var("data", __dtype__=code), dtype="float32")
    values = sample_inputs(model_of(net, net.conv(data)), {"data": (1, 4, 50, 50)})["data"]
    assert np.array_equal(values, np.round(values))
    assert (values.min(), values.max()) == (0, largest)


def test_a_shape_that_the_model_knows_need_not_be_given():
    net = Net()
    model = model_of(net, net.conv(net.var("data", __shape__="(1, 4, 5, 5)")))
    assert sample_inputs(model, {})["data"].shape == (1, 4, 5, 5)


def test_a_shape_that_nobody_knows_is_asked_for(conv_net):
    with pytest.raises(DataError, match=r"the shape of the input 'data' is not known; .*data=\?,3,\?,\?"):
        sample_inputs(conv_net(), {})
