from __future__ import annotations

import json

import numpy as np
import pytest

from mxamp.model import Model, load
from tests.building import Net, parameters


@pytest.fixture
def images(folder):
    values = np.random.default_rng(0).normal(size=(6, 4, 5, 5)).astype("float32")
    np.savez("images.npz", data=values)
    return "images.npz"


def test_convert_writes_a_float32_model_that_says_what_it_is(folder, mxamp):
    result = mxamp("convert", "net", "--dtype", "float16", "-o", "low", "--emulate", "-v")
    assert result.status == 0
    assert "Computes in float32 what a model does, converted to float16" in result.out
    assert "is for measuring, not for deploying" in " ".join(result.out.split())
    model = load("low")
    assert {str(value.dtype) for value in model.arg_params.values()} == {"float32"}
    assert "_mxamp_round_both_ways" in {node.op for node in model.graph.nodes}


def test_the_json_of_a_conversion_says_what_is_emulated(folder, mxamp):
    result = mxamp("convert", "net", "--dtype", "float8_e4m3fn", "-o", "low", "--emulate", "--json")
    document = json.loads(result.out)
    assert document["emulated"] == document["report"]["emulated"] == "float8_e4m3fn"


def test_inspect_says_what_is_emulated_and_what_it_needs(folder, mxamp):
    mxamp("convert", "net", "--dtype", "float16", "-o", "low", "--emulate", "--quiet")
    text = " ".join(mxamp("inspect", "low").out.split())
    assert "Emulates float16 (" in text
    assert "Needs mxamp's operator library: stock MXNet does not load this model." in text
    document = json.loads(mxamp("inspect", "low", "--json").out)
    assert document["needs_library"] is True
    assert set(document["emulates"]) == {"float16"}
    assert json.loads(mxamp("inspect", "net", "--json").out)["needs_library"] is False


@pytest.mark.parametrize("dtype", ["tfloat32", "float8_e4m3fn", "float8_e5m2"])
def test_what_is_only_emulated_cannot_be_converted_to(folder, mxamp, dtype):
    result = mxamp("convert", "net", "--dtype", dtype, "-o", "low")
    assert result.status == 2
    assert f"{dtype} is not a dtype of MXNet: it exists in emulation only." in result.err
    assert "--emulate" in result.err
    assert not list(folder.glob("low*"))


def test_pure_is_a_policy(folder, mxamp):
    result = mxamp(
        "convert", "net", "--dtype", "float16", "-o", "low", "--emulate", "--policy", "pure", "--json"
    )
    nodes = {node["name"]: node for node in json.loads(result.out)["report"]["nodes"]}
    assert nodes["exp0"]["compute"] == "float16"
    assert nodes["exp0"]["reason"] == "pure low precision was asked for"


def test_policy_prints_what_is_only_emulated(folder, mxamp):
    result = mxamp("policy", "--dtype", "float8_e5m2")
    assert result.out.startswith('target_dtype = "float8_e5m2"')


def test_compare_emulates_mixed_and_pure_beside_each_other(images, mxamp):
    pytest.importorskip("mxnet", reason="runs models")
    result = mxamp("compare", "net", "--emulate", "float16", "--data", images)
    assert (result.status, result.err) == (0, "")
    lines = result.out.splitlines()
    (heading,) = [line for line in lines if line.startswith("exp0_output")]
    assert "relative L2" in heading
    rows = lines[lines.index(heading) + 2 :][:3]
    assert [row.split("  ")[0] for row in rows] == ["FP32", "mixed float16", "pure float16"]
    text = " ".join(result.out.split())
    assert "mixed float16 emulates float16. Range: none of" in text
    assert "Mixed precision keeps 1 node in float32 that pure float16 computes low: exp (1)." in text


def test_compare_emulates_what_ends_in_a_training_head(images, mxamp):
    """Its label is rounded in pure precision, and read by nobody there either."""
    pytest.importorskip("mxnet", reason="runs models")
    net = Net()
    head = net.op("SoftmaxOutput", net.fc(net.var("data"), "fc"), net.var("softmax_label"), name="softmax")
    model = Model.of(net.graph(head), parameters(net.params), {})
    model.save("labelled")
    np.savez("rows.npz", data=np.ones((6, 4), "float32"))
    result = mxamp("compare", "labelled", "--emulate", "bfloat16", "--data", "rows.npz")
    assert (result.status, result.err) == (0, "")
    assert "Labels of training heads were fed zeros" in " ".join(result.out.split())


def test_compare_shows_an_emulated_file_as_any_converted_one(images, mxamp):
    pytest.importorskip("mxnet", reason="runs models")
    mxamp("convert", "net", "--dtype", "float16", "-o", "low", "--emulate", "--quiet")
    document = json.loads(mxamp("compare", "net", "low", "--data", images, "--json").out)
    assert document["emulated"] == ["float16"]
    assert document["low_dtype"] == "float16"
    layers = {layer["name"]: layer for layer in document["layers"]}
    assert layers["conv0"]["converted_name"] == "conv0_round_float16"
    assert {layers[name]["dtype"] for name in ("conv0", "relu0", "bn0", "conv1")} == {"float16"}
    assert {loss["node"] for loss in document["losses"]} >= {"data", "conv0"}


def test_compare_shows_several_models_beside_each_other(images, mxamp):
    pytest.importorskip("mxnet", reason="runs models")
    mxamp("convert", "net", "--dtype", "bfloat16", "-o", "low", "--quiet")
    mxamp("convert", "net", "--dtype", "float16", "-o", "emulated", "--emulate", "--quiet")
    document = json.loads(mxamp("compare", "net", "low", "emulated", "--data", images, "--json").out)
    errors = [found["outputs"][0]["distance"]["relative_l2"] for found in document["candidates"].values()]
    assert list(document["candidates"]) == ["FP32", "low", "emulated"]
    assert errors[0] < errors[2] < errors[1]  # float16 has three bits more than bfloat16


def test_a_tolerance_holds_for_every_candidate(images, mxamp):
    pytest.importorskip("mxnet", reason="runs models")
    options = ("--emulate", "float8_e4m3fn", "--data", images, "--no-layers")
    assert mxamp("compare", "net", *options, "--tolerance", "10").status == 0
    assert mxamp("compare", "net", *options, "--tolerance", "1e-6").status == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("net",), "Give OUT, the converted model, to compare with; or --emulate"),
        (("net", "net", "net"), "'net' is given twice"),
        (("net", "--emulate", "int8"), "target_dtype='int8' is not a low precision of MXNet"),
    ],
    ids=["nothing to compare", "twice", "no format"],
)
def test_what_cannot_be_compared_is_said(images, mxamp, arguments, message):
    pytest.importorskip("mxnet", reason="without it, that is what is said")
    result = mxamp("compare", *arguments, "--data", images)
    assert result.status == 2
    assert message in result.err
