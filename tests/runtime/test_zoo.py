"""Models of GluonCV's zoo: by name, offline, and never silent about random weights."""

from __future__ import annotations

import urllib.error
import urllib.request

import numpy as np
import pytest

pytest.importorskip("mxnet")
pytest.importorskip("gluoncv")

import mxnet as mx

from mxamp.errors import ModelFileNotFoundError, TracingError
from mxamp.runtime.zoo import build_network, default_input_shapes, load_zoo, zoo_names

pytestmark = pytest.mark.zoo


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Let no test download anything, whatever the machine can reach."""

    def refuse(*_, **__):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))


def outputs(model, shapes, seed=0):
    random = np.random.default_rng(seed)
    inputs = {
        name: mx.nd.array(random.standard_normal(shape).astype(np.float32)) for name, shape in shapes.items()
    }
    executor = model.sym.bind(mx.cpu(), {**model.args, **inputs}, aux_states=model.auxs, grad_req="null")
    return [output.asnumpy() for output in executor.forward()]


@pytest.mark.parametrize("name", ["resnet18_v1b_custom", "i3d_resnet50_v1_custom", "inceptionv3_ucf101"])
def test_no_weights_are_fetched_for_a_network_of_random_ones(offline, monkeypatch, name):
    """GluonCV's constructors of these fetch a backbone, or want one whose parameters have values."""

    def refuse(*_, **__):
        raise AssertionError("it asked the network")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    assert build_network(name, False).collect_params()


@pytest.mark.parametrize("name", ["cifar_resnet20_v1", "ssd_512_mobilenet1.0_voc", "mobilenetv3_small"])
def test_network_with_random_weights_runs_and_stays_in_range(offline, name):
    zoo = load_zoo(name, pretrained=False)
    assert not zoo.is_pretrained
    for output in outputs(zoo.model, zoo.input_shapes):
        assert np.isfinite(output).all()
        assert np.abs(output).max() < 6e4
        assert np.ptp(output) > 0


def test_two_builds_are_equal(offline):
    first, second = (load_zoo("cifar_resnet20_v1", pretrained=False).model for _ in range(2))
    for one, other in zip(first.arg_params.values(), second.arg_params.values()):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_automatic_choice_falls_back_to_random_and_says_why(offline):
    zoo = load_zoo("cifar_resnet20_v1")
    assert not zoo.is_pretrained
    assert "RANDOM" in zoo.weights
    assert "not a trained network" in zoo.weights
    assert "no network" in zoo.weights


def test_insisting_on_trained_weights_offline_is_an_error(offline):
    with pytest.raises(ModelFileNotFoundError, match="no network") as caught:
        load_zoo("cifar_resnet20_v1", pretrained=True)
    assert "--no-pretrained" in str(caught.value)


def test_trained_weights_in_the_cache_are_used(offline, tmp_path, monkeypatch):
    from gluoncv.model_zoo import get_model, model_store

    net = get_model("cifar_resnet20_v1")
    net.initialize(mx.init.Xavier())
    net(mx.nd.zeros((1, 3, 32, 32)))
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / f"cifar_resnet20_v1-{model_store.short_hash('cifar_resnet20_v1')}.params"
    net.save_parameters(str(path))
    monkeypatch.setattr(model_store, "check_sha1", lambda *_: True)
    zoo = load_zoo("cifar_resnet20_v1")
    assert zoo.is_pretrained
    expected = net(mx.nd.ones((1, 3, 32, 32))).asnumpy()
    executor = zoo.model.sym.bind(
        mx.cpu(),
        {**zoo.model.args, "data": mx.nd.ones((1, 3, 32, 32))},
        aux_states=zoo.model.auxs,
        grad_req="null",
    )
    np.testing.assert_allclose(executor.forward()[0].asnumpy(), expected, rtol=1e-5, atol=1e-6)


def test_unknown_name_suggests_the_nearest(offline):
    with pytest.raises(ModelFileNotFoundError, match="Did you mean 'resnet50_v1'"):
        load_zoo("resnet50v1")


def test_network_that_needs_more_than_a_name_is_explained(offline):
    with pytest.raises(TracingError, match="classes"):
        load_zoo("ssd_512_resnet50_v1_custom", pretrained=False)


def test_nothing_is_printed_to_standard_output(offline, capsys):
    load_zoo("cifar_resnet20_v1")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet50_v1", (1, 3, 224, 224)),
        ("cifar_resnet20_v1", (1, 3, 32, 32)),
        ("inceptionv3", (1, 3, 299, 299)),
        ("ssd_300_vgg16_atrous_voc", (1, 3, 300, 300)),
        ("ssd_512_resnet50_v1_voc", (1, 3, 512, 512)),
        ("yolo3_darknet53_coco", (1, 3, 416, 416)),
        ("faster_rcnn_resnet50_v1b_voc", (1, 3, 600, 800)),
        ("simple_pose_resnet18_v1b", (1, 3, 256, 192)),
        ("fcn_resnet50_voc", (1, 3, 480, 480)),
        ("i3d_resnet50_v1_kinetics400", (1, 3, 32, 224, 224)),
        ("resnet18_v1b_kinetics400", (1, 3, 224, 224)),
    ],
)
def test_default_input_shape_is_what_the_family_is_evaluated_with(name, shape):
    assert name in zoo_names()
    assert default_input_shapes(name) == [shape]


def test_constructor_that_takes_no_options_is_called_without(offline):
    """darknet53 raises a Warning, of all things, for every option."""
    zoo = load_zoo("darknet53", pretrained=False, input_shapes={"data": (1, 3, 64, 64)})
    assert "darknetv30_conv0_weight" in zoo.model.arg_params
