"""Accuracy of a model beside its conversion, through every kind of model, data and labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.cli.main import main
from mxamp.errors import DataError

mx = pytest.importorskip("mxnet")

SAMPLES = 120


@pytest.fixture(scope="module")
def classifier() -> tuple[Any, Any, Any]:
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=16, name="fc0")
    x = mx.sym.FullyConnected(mx.sym.Activation(x, act_type="relu", name="relu0"), num_hidden=4, name="fc1")
    shapes, _, _ = x.infer_shape(data=(1, 8))
    random = np.random.RandomState(0)
    args = {
        name: mx.nd.array(random.normal(size=shape))
        for name, shape in zip(x.list_arguments(), shapes)
        if name != "data"
    }
    return x, args, {}


@pytest.fixture(scope="module")
def data(classifier: Any) -> tuple[Any, Any]:
    images = np.random.default_rng(1).normal(size=(SAMPLES, 8)).astype(np.float32)
    sym, args, _ = classifier
    bound = sym.bind(mx.cpu(), {**args, "data": mx.nd.array(images)})
    labels = bound.forward()[0].asnumpy().argmax(1)
    labels[::4] = (labels[::4] + 1) % 4  # a quarter is wrong
    return images, labels


def test_accuracy_is_counted_and_compared(classifier: Any, data: Any) -> None:
    converted = mxamp.convert_model(*classifier, "bfloat16")
    found = mxamp.evaluate(classifier, converted, {"data": data[0]}, data[1], latency_seconds=0)
    (top,) = found.metrics
    assert (top.name, top.samples, top.value) == ("top-1", SAMPLES, 0.75)
    assert top.converted == pytest.approx(0.75, abs=0.05)
    assert top.difference_interval is not None
    assert top.difference_interval[0] < 0 < top.difference_interval[1]
    assert top.p_value is not None
    assert top.p_value > 0.05
    assert top.interval[0] < 0.75 < top.interval[1]


def test_a_model_that_errs_everywhere_differs_by_more_than_chance(classifier: Any, data: Any) -> None:
    sym, args, auxs = classifier
    broken = (sym, {**args, "fc1_weight": -args["fc1_weight"], "fc1_bias": -args["fc1_bias"]}, auxs)
    (top,) = mxamp.evaluate(classifier, broken, {"data": data[0]}, data[1], latency_seconds=0).metrics
    assert top.difference_interval is not None
    assert top.difference_interval[1] < 0
    assert top.p_value is not None
    assert top.p_value < 1e-6


def test_every_kind_of_model_and_data_gives_the_same(classifier: Any, data: Any, tmp_path: Path) -> None:
    images, labels = data
    expected = mxamp.evaluate(classifier, None, {"data": images}, labels).metrics
    model = mxamp.Model.of(*classifier)
    model.save(tmp_path / "model")
    block = mx.gluon.SymbolBlock(classifier[0], mx.sym.var("data"))
    for name, parameter in block.collect_params().items():
        parameter.initialize()
        parameter.set_data(classifier[1][name])
    block(mx.nd.array(images[:1]))
    np.savez(tmp_path / "val.npz", data=images, label=labels)
    dataset = mx.gluon.data.ArrayDataset(images, labels)
    loader = mx.gluon.data.DataLoader(dataset, batch_size=16)
    for given in (model, tmp_path / "model", str(tmp_path / "model"), block):
        assert mxamp.evaluate(given, None, {"data": images}, labels).metrics == expected
    for samples in ({"data": images, "label": labels}, str(tmp_path / "val.npz"), loader):
        assert mxamp.evaluate(classifier, None, samples).metrics == expected
    iterator = mx.io.NDArrayIter(images, labels, batch_size=50, label_name="label")  # the last is padded
    assert mxamp.evaluate(classifier, None, iterator).metrics == expected


def test_own_metrics_have_a_bootstrapped_difference(classifier: Any, data: Any) -> None:
    def margin(outputs: Any, labels: Any) -> Any:
        return outputs[0][np.arange(len(labels)), labels]

    converted = mxamp.convert_model(*classifier, "bfloat16")
    (found,) = mxamp.evaluate(
        classifier, converted, {"data": data[0]}, data[1], metrics=margin, latency_seconds=0
    ).metrics
    assert found.p_value is None
    assert found.difference_interval is not None
    assert found.difference_interval[0] <= (found.difference or 0) <= found.difference_interval[1]


def test_labels_that_are_missing_or_misaligned_are_errors(classifier: Any, data: Any) -> None:
    with pytest.raises(DataError, match="no labels"):
        mxamp.evaluate(classifier, None, {"data": data[0]})
    with pytest.raises(DataError, match="labels for"):
        mxamp.evaluate(classifier, None, {"data": data[0]}, data[1][:-1])


def test_few_samples_are_said_to_tell_little(classifier: Any, data: Any) -> None:
    found = mxamp.evaluate(classifier, None, {"data": data[0][:9]}, data[1][:9])
    assert "9 samples tell little" in str(found)


def test_the_command_prints_text_and_json_and_times_both(
    classifier: Any, data: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mxamp.Model.of(*classifier).save(tmp_path / "model")
    mxamp.convert_model(*classifier, "bfloat16").save(tmp_path / "low")
    np.savez(tmp_path / "val.npz", data=data[0])
    np.save(tmp_path / "labels.npy", data[1])
    given = [str(tmp_path / "model"), str(tmp_path / "low"), "--data", str(tmp_path / "val.npz")]
    given += ["--labels", str(tmp_path / "labels.npy"), "--latency-seconds", "0.2"]
    assert main(["evaluate", *given]) == 0
    text = capsys.readouterr().out
    assert "top-1: 75.00 %" in text
    assert "McNemar" in text
    assert "times as fast" in text
    assert main(["evaluate", *given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metrics"][0]["value"] == 0.75
    assert found["latency"]["rounds"] > 0


def test_a_metric_that_is_none_is_told_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "nowhere", "--data", "nothing.npz", "--metric", "top-3"]) == 2
    assert "There is no metric 'top-3'" in capsys.readouterr().err
