from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mxamp.compare.inputs import (
    as_model,
    check_same_interface,
    expected_input_shapes,
    input_names,
    prepare_inputs,
)
from mxamp.errors import DataError, ParamsError
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.model import Model

IMAGES = np.zeros((2, 3, 8, 8), np.float32)


def two_inputs():
    nodes = (
        Node(VARIABLE, "left"),
        Node(VARIABLE, "right"),
        Node("elemwise_add", "sum", {}, (Entry(0), Entry(1))),
    )
    return Model(Graph(nodes, (Entry(2),)), {}, {})


def refused(model, data, **options):
    with pytest.raises(DataError) as caught:
        prepare_inputs(model, data, **options)
    return str(caught.value)


def test_inputs_are_the_variables_without_parameters(conv_net):
    assert input_names(conv_net("image")) == ("image",)


def test_one_array_serves_a_model_with_one_input(conv_net):
    found = prepare_inputs(conv_net(), IMAGES)
    assert list(found.arrays) == ["data"]
    assert (found.samples, found.batched, found.notes) == (2, True, ())


def test_one_array_under_another_name_serves_with_a_note(conv_net):
    found = prepare_inputs(conv_net(), {"arr_0": IMAGES})
    assert found.arrays["data"] is IMAGES
    assert found.notes == ("The array 'arr_0' was used for the model's only input, 'data'.",)


def test_an_unknown_input_name_suggests_the_nearest():
    message = refused(two_inputs(), {"left": IMAGES, "rigth": IMAGES})
    assert message == "The model has no input 'rigth'. Did you mean 'right'? It takes: left, right."


def test_a_missing_input_is_named():
    message = refused(two_inputs(), {"left": IMAGES})
    assert message == "The input 'right' is missing. The model takes: left, right."


def test_arrays_that_are_no_input_are_ignored_with_a_note(conv_net):
    found = prepare_inputs(conv_net(), {"data": IMAGES, "labels": np.zeros(2)})
    assert found.notes == ("Not an input of the model, and ignored: labels.",)


def test_one_array_for_two_inputs_is_refused():
    assert "One array was given, but the model has 2 inputs: left, right." in refused(two_inputs(), IMAGES)


def test_no_data_names_what_the_model_takes(conv_net):
    assert refused(conv_net(), None) == "No data was given. The model takes: data."


def test_a_model_without_inputs_is_refused(conv_net):
    model = conv_net()
    fed = dataclasses.replace(model, arg_params={**model.arg_params, "data": model.arg_params["fc0_bias"]})
    assert "has no inputs: every variable has a parameter" in refused(fed, IMAGES)


def test_an_empty_batch_is_refused(conv_net):
    assert refused(conv_net(), IMAGES[:0]) == (
        "The input 'data' is empty: its shape is (0, 3, 8, 8). Give at least one sample."
    )


def test_a_single_number_is_refused_with_the_shape_to_give(conv_net):
    assert "give an array of shape (samples, 3, ?, ?)" in refused(conv_net(), np.float32(1))


def test_the_wrong_number_of_channels_says_expected_and_got(conv_net):
    message = refused(conv_net(), np.zeros((2, 5, 8, 8), np.float32))
    assert message == "The input 'data' has the shape (2, 5, 8, 8), but the model takes (samples, 3, ?, ?)."


def test_channels_last_images_get_a_hint(conv_net):
    assert "values.transpose(0, 3, 1, 2)" in refused(conv_net(), np.zeros((2, 8, 8, 3), np.float32))


def test_an_image_without_a_batch_axis_gets_a_hint(conv_net):
    assert "values[None] adds it" in refused(conv_net(), IMAGES[0])


def test_the_shape_attribute_is_believed_except_for_the_number_of_samples(conv_net):
    model = conv_net(__shape__="(1, 3, 16, 16)")
    assert expected_input_shapes(model) == {"data": (1, 3, 16, 16)}
    assert prepare_inputs(model, np.zeros((4, 3, 16, 16), np.float32)).samples == 4
    assert "the model takes (samples, 3, 16, 16)" in refused(model, IMAGES)


def test_uint8_images_are_noted_and_not_scaled(conv_net):
    images = np.full((2, 3, 8, 8), 255, np.uint8)
    found = prepare_inputs(conv_net(), images)
    assert found.arrays["data"].max() == 255
    assert found.notes == (
        "The input 'data' came as uint8 and was cast to float32, not scaled: a model trained on normalised "
        "images needs them normalised here too.",
    )


def test_integers_beyond_float32_are_noted(conv_net):
    (note,) = prepare_inputs(conv_net(), np.full((1, 3, 8, 8), 2**24 + 1, np.int64)).notes
    assert "float32 holds integers exactly only to 16777216" in note


def test_text_is_no_data(conv_net):
    assert "is no number" in refused(conv_net(), np.array([["a"]]))


def test_max_samples_takes_the_first(conv_net):
    images = np.arange(4, dtype=np.float32).reshape(4, 1, 1, 1) * np.ones((4, 3, 8, 8), np.float32)
    found = prepare_inputs(conv_net(), images, max_samples=2)
    assert found.samples == 2
    assert found.arrays["data"][-1, 0, 0, 0] == 1
    assert "at least 1, not 0" in refused(conv_net(), images, max_samples=0)


def test_inputs_with_different_first_axes_are_not_cut():
    data = {"left": np.zeros((2, 3), np.float32), "right": np.zeros((1, 3), np.float32)}
    found = prepare_inputs(two_inputs(), data)
    assert (found.batched, found.samples) == (False, 1)
    assert "they differ" not in refused(two_inputs(), data, max_samples=1)
    assert "left (2, 3), right (1, 3)" in refused(two_inputs(), data, max_samples=1)


def test_labels_of_training_heads_are_fed_zeros():
    nodes = (
        Node(VARIABLE, "data"),
        Node(VARIABLE, "softmax_label"),
        Node("SoftmaxOutput", "softmax", {}, (Entry(0), Entry(1))),
    )
    model = Model(Graph(nodes, (Entry(2),)), {}, {})
    assert input_names(model) == ("data",)
    found = prepare_inputs(model, np.ones((3, 4), np.float32))
    assert found.arrays["softmax_label"].shape == (3,)
    assert "fed zeros" in found.notes[0]


@pytest.mark.parametrize("op", ["amp_cast", "_mxamp_round", "_mxamp_round_both_ways"])
def test_a_label_that_is_rounded_is_one(op):
    nodes = (
        Node(VARIABLE, "data"),
        Node(VARIABLE, "softmax_label"),
        Node(op, "rounded", {"dtype": "bfloat16"}, (Entry(1),)),
        Node("SoftmaxOutput", "softmax", {}, (Entry(0), Entry(2))),
        Node(op, "data_rounded", {"dtype": "bfloat16"}, (Entry(0),)),
    )
    model = Model(Graph(nodes, (Entry(3), Entry(4))), {}, {})
    assert input_names(model) == ("data",)


def test_models_with_other_outputs_have_nothing_to_compare(conv_net):
    model = conv_net()
    other = dataclasses.replace(model, graph=dataclasses.replace(model.graph, heads=(Entry(6),)))
    with pytest.raises(DataError) as caught:
        check_same_interface(model, other)
    assert str(caught.value).startswith(
        "The two models have different outputs, so there is nothing to compare: the FP32 model has "
        "fc0_output, the converted model pool_output."
    )


def test_models_with_other_inputs_have_nothing_to_compare(conv_net):
    with pytest.raises(
        DataError, match=r"different inputs.*FP32 model has data, the converted model image\."
    ):
        check_same_interface(conv_net(), conv_net("image"))


def test_a_missing_parameter_is_no_input(conv_net):
    model = conv_net()
    params = {name: value for name, value in model.arg_params.items() if name != "fc0_weight"}
    with pytest.raises(ParamsError, match="'fc0_weight' is missing"):
        check_same_interface(model, dataclasses.replace(model, arg_params=params))


def test_a_triple_of_graph_and_arrays_is_a_model(conv_net):
    model = conv_net()
    arrays = {name: value.numpy() for name, value in model.arg_params.items()}
    assert as_model((model.graph, arrays, {}), "it").graph is model.graph


@pytest.mark.parametrize("given", ["prefix", None, (1, 2)])
def test_what_is_no_model_is_refused(given):
    with pytest.raises(DataError, match=r"the FP32 model must be an mxamp\.Model or a triple"):
        as_model(given, "the FP32 model")
