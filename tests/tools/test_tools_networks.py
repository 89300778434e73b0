"""The benchmark's networks outside the zoo: each is built, runs, and reads what it was written for."""

from __future__ import annotations

import numpy as np
import pytest

from mxamp.errors import UnknownNameError

pytest.importorskip("mxnet", reason="builds networks")
pytest.importorskip("sklearn", reason="has the photographs")

from mxamp.runtime.executor import BoundModel
from tools.benchmark_models.job import Job
from tools.benchmark_models.subject import build_subject
from tools.networks.build import build_network, draw_inputs
from tools.networks.catalogue import find_network, networks
from tools.networks.names import LARGEST_BATCH, NETWORK_NAMES
from tools.networks.network import tokens
from tools.networks.relatives import RELATIVES

SMALL = ("lenet", "perceptron", "text_cnn", "gru_language_model", "captcha_lstm", "mtcnn_output")
"""What runs in milliseconds."""


def run(name, *, batch=1):
    network = find_network(name)
    sample = draw_inputs(network.inputs, batch, samples=1)[0]
    return BoundModel(build_network(network)).run(sample)


def check_runs(name):
    outputs = run(name)
    assert all(np.isfinite(output).all() for output in outputs)
    assert max(float(output.std()) for output in outputs) > 1e-3


@pytest.mark.parametrize("name", SMALL)
def test_a_network_computes_finite_values_that_differ(name):
    check_runs(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NETWORK_NAMES if name not in SMALL])
def test_a_large_network_computes_finite_values_that_differ(name):
    check_runs(name)


@pytest.mark.parametrize("name", ["lenet", "gru_language_model"])
def test_two_samples_in_one_batch_give_what_they_give_alone(name):
    network = find_network(name)
    axis = next(iter(network.inputs.values())).batch_axis
    model = build_network(network)
    both = draw_inputs(network.inputs, 2, samples=1)[0]
    together = BoundModel(model).run(both)[0]
    for number in range(2):
        alone = {
            key: np.take(value, [number], axis=network.inputs[key].batch_axis) for key, value in both.items()
        }
        own = BoundModel(model).run(alone)[0]
        np.testing.assert_allclose(own, np.take(together, [number], axis=axis), rtol=1e-4, atol=1e-5)


def test_every_network_is_listed_by_its_own_name():
    assert [network.name for network in networks().values()] == list(NETWORK_NAMES)
    assert set(LARGEST_BATCH) <= {*NETWORK_NAMES, *RELATIVES}


def test_no_relative_is_a_network_that_is_measured():
    assert [network.name for network in RELATIVES.values()] == list(RELATIVES)
    assert not set(RELATIVES) & set(NETWORK_NAMES)


@pytest.mark.parametrize(
    "name",
    [
        *("lenet_of_32", "text_cnn_of_30", "gru_of_384", "mtcnn_refinement", "mtcnn_of_64"),
        *("volume_u_net", "quartz_net", "tas_net", "inception_time", "point_net"),
        *("diffusion_u_net", "restormer", "super_point", "ghost_net", "swish_backbone"),
    ],
)
def test_relatives_run(name):
    subject = build_subject(Job(name, batch=2))
    assert {name: value.shape for name, value in subject.samples[0].items()} == subject.shapes
    bound = BoundModel(subject.model)
    assert all(np.isfinite(output).all() for output in bound.run(subject.samples[0]))


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    network = find_network("lenet")
    first, again, other = (build_network(network, seed=seed).arg_params for seed in (0, 0, 1))
    for name, value in first.items():
        assert np.array_equal(value.numpy(), again[name].numpy())
        assert not np.array_equal(value.numpy(), other[name].numpy())


def test_tokens_are_whole_numbers_of_the_vocabulary_and_the_batch_is_where_the_network_wants_it():
    sample = draw_inputs({"data": tokens(35, vocabulary=50, batch_axis=1)}, 3, samples=2)[1]["data"]
    assert sample.shape == (35, 3)
    assert np.array_equal(sample, np.floor(sample))
    assert 0 <= sample.min() <= sample.max() < 50


def test_a_networks_inputs_have_the_batch_and_the_weights_are_said_to_be_random():
    subject = build_subject(Job(name="lenet", batch=8))
    assert subject.shapes == {"data": (8, 1, 28, 28)}
    assert [sample["data"].shape for sample in subject.samples] == [(8, 1, 28, 28)]
    assert "random, seed 0" in subject.origin


def test_an_unknown_network_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="lenet"):
        find_network("lenett")
