from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mxamp.convert import convert_model
from mxamp.measuring.machine import cpu_name
from mxamp.measuring.race import FEWEST_TELLING_ROUNDS
from mxamp.model import Model, load
from mxamp.params.parameter import ArrayParameter


@pytest.fixture
def models(folder):
    """Return the folder with the FP32 model ``net``, its conversion ``low`` and ``images.npz``."""
    net = load("net")
    options = {"target_dtype": "bfloat16", "fold_batch_norm": False}
    convert_model(net.graph, net.arg_params, net.aux_params, **options).save("low")
    images = np.random.default_rng(0).normal(size=(6, 4, 5, 5)).astype("float32")
    np.savez("images.npz", data=images)
    np.save("images.npy", images)
    return folder


@pytest.fixture
def running(models):
    """Return the same, for tests that run the models, or would: a missing MXNet is said first."""
    pytest.importorskip("mxnet", reason="runs models")
    return models


def error_of(result):
    assert result.status == 2
    assert result.out == ""
    assert result.err.startswith("mxamp: error: ")
    return result.err[len("mxamp: error: ") :].rstrip("\n")


# ---------------------------------------------------------------------- the job


def test_every_layer_is_listed_only_when_that_is_asked_for(running, mxamp):
    short = mxamp("compare", "net", "low", "--data", "images.npz")
    assert "\n  conv0" not in short.out
    assert "Starts to differ at conv0 (Convolution, bfloat16)" in short.out


def test_it_prints_outputs_layers_and_where_it_starts(running, mxamp):
    result = mxamp("compare", "net", "low", "--data", "images.npz", "--verbose")
    assert (result.status, result.err) == (0, "")
    assert "Fidelity to FP32 on 6 samples (cpu(0), batches of 6)." in result.out
    assert "exp0_output" in result.out
    for name in ("conv0", "bn0", "relu0", "conv1"):
        assert f"\n  {name}" in result.out
    assert "Starts to differ at conv0 (Convolution, bfloat16)" in result.out


@pytest.mark.parametrize("columns", [40, 66, 140])
def test_it_fits_the_terminal(running, mxamp, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    result = mxamp("compare", "net", "low", "--data", "images.npz")
    assert max(len(line) for line in result.out.splitlines()) <= columns


def test_json_is_all_that_is_printed(running, mxamp):
    result = mxamp("compare", "net", "low", "--data", "images.npz", "--json", "--batch-size", "4")
    document = json.loads(result.out)
    assert document["samples"] == 6
    assert document["batch_size"] == 4
    assert document["layers"][0]["name"] == "conv0"
    assert document["outputs"][0]["name"] == "exp0_output"


def test_both_models_are_timed_by_turns_in_text_and_in_json(running, mxamp):
    arguments = ("compare", "net", "low", "--data", "images.npz", "--no-layers", "--latency-seconds", "0.2")
    document = json.loads(mxamp(*arguments, "--batch-size", "4", "--json").out)
    latency = document["latency"]
    assert latency["batch_size"] == 4
    assert latency["rounds"] >= FEWEST_TELLING_ROUNDS
    assert 0 < latency["low"] <= latency["ratio"] <= latency["high"]
    assert latency["median_low"] <= latency["ratio"] <= latency["median_high"]
    assert min(latency["float32_ms"], latency["converted_ms"]) > 0
    assert cpu_name() in latency["machine"]
    text = " ".join(mxamp(*arguments).out.split())
    assert "Latency of one forward pass, batch 6, by turns on " in text
    assert re.search(r"times as fast \([\d.]+ to [\d.]+, \d+ rounds\)", text)


def test_timing_can_be_left_out(running, mxamp):
    arguments = ("compare", "net", "low", "--data", "images.npz", "--no-layers", "--latency-seconds", "0")
    assert json.loads(mxamp(*arguments, "--json").out)["latency"] is None
    assert "Latency" not in mxamp(*arguments).out
    message = error_of(mxamp(*arguments[:-1], "-1"))
    assert "latency_seconds must be a number from 0 on" in message


def test_without_layers_and_with_fewer_samples(running, mxamp):
    result = mxamp(
        "compare", "net", "low", "--data", "images.npy", "--no-layers", "--max-samples", "2", "--json"
    )
    document = json.loads(result.out)
    assert document["samples"] == 2
    assert document["layers"] is None


def test_the_files_of_a_model_name_it_too(running, mxamp):
    result = mxamp("compare", "net-symbol.json", "low-0000.params", "--data", "images.npz", "--no-layers")
    assert result.status == 0


def test_a_kept_tolerance_exits_with_0(running, mxamp):
    assert mxamp("compare", "net", "low", "--data", "images.npz", "--tolerance", "0.5").status == 0


def test_an_exceeded_tolerance_prints_the_comparison_and_exits_with_1(running, mxamp):
    result = mxamp("compare", "net", "low", "--data", "images.npz", "--tolerance", "1e-9", "--json")
    assert result.status == 1
    assert json.loads(result.out)["outputs"]
    assert result.err.startswith(
        "mxamp: error: The output 'exp0_output' is further from FP32 than the tolerance: its relative "
        "L2 error is"
    )


def test_random_data_come_with_a_caution_and_are_the_same_each_time(running, mxamp):
    arguments = ("compare", "net", "low", "--random", "--shape", "data=2,4,5,5", "--latency-seconds", "0")
    first, second = mxamp(*arguments), mxamp(*arguments)
    assert "The inputs are random numbers (standard normal, seed 0), not real data" in " ".join(
        first.out.split()
    )
    assert first.out == second.out
    assert mxamp(*arguments, "--seed", "1").out != first.out


def test_a_corrupted_layer_is_named(running, mxamp):
    low = load("low")
    weight = low.arg_params["conv1_weight"].numpy()
    args = {**low.arg_params, "conv1_weight": ArrayParameter(weight * weight.dtype.type(3))}
    Model(low.graph, args, low.aux_params).save("broken")
    result = mxamp("compare", "net", "broken", "--data", "images.npz", "--tolerance", "0.1")
    assert result.status == 1
    assert "First above the threshold of 0.0625: conv1" in result.out
    assert "The error grows most at 'conv1' (Convolution)" in result.err


# ---------------------------------------------------------------------- data that cannot be used


def test_no_data_says_how_to_make_some(running, mxamp):
    message = error_of(mxamp("compare", "net", "low"))
    assert message.startswith("No data was given: a comparison runs both models. Give --data FILE.npz")
    assert "Or give --random for random numbers; real data tells more." in message


def test_the_command_it_prints_makes_a_file_that_fits(running, mxamp):
    Path("images.npz").unlink()
    message = error_of(mxamp("compare", "net", "low"))
    (line,) = [line for line in message.splitlines() if line.startswith("  python -c ")]
    command = shlex.split(line)
    subprocess.run([sys.executable, *command[1:]], check=True)
    result = mxamp("compare", "net", "low", "--data", "images.npz", "--max-samples", "1", "--no-layers")
    assert (result.status, result.err) == (0, "")


def test_a_missing_file_suggests_the_nearest(running, mxamp):
    message = error_of(mxamp("compare", "net", "low", "--data", "image.npz"))
    assert message == "There is no data file 'image.npz'. Did you mean 'images.npz' or 'images.npy'?"


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 cut short"])
def test_what_is_no_npz_is_refused(running, mxamp, content):
    Path("bad.npz").write_bytes(content)
    message = error_of(mxamp("compare", "net", "low", "--data", "bad.npz"))
    assert message.startswith("'bad.npz' is not an .npz or .npy file, or is damaged (")
    assert message.endswith("Write one with np.savez('images.npz', data=images).")


def test_an_archive_without_arrays_is_refused(running, mxamp):
    np.savez("none.npz")
    assert error_of(mxamp("compare", "net", "low", "--data", "none.npz")).startswith(
        "'none.npz' holds no arrays."
    )


def test_pickled_objects_are_refused(running, mxamp):
    np.savez("objects.npz", data=np.array([{"a": 1}], dtype=object))
    message = error_of(mxamp("compare", "net", "low", "--data", "objects.npz"))
    assert "holds Python objects, which mxamp does not read, because that could run code" in message


def test_an_unknown_name_beside_others_suggests_the_nearest(running, mxamp):
    np.savez("typo.npz", dat=np.zeros((1, 4, 5, 5), "f"), extra=np.zeros(1))
    message = error_of(mxamp("compare", "net", "low", "--data", "typo.npz"))
    assert message == "The model has no input 'dat'. Did you mean 'data'? It takes: data."


def test_the_wrong_shape_says_expected_and_got(running, mxamp):
    np.savez("wide.npz", data=np.zeros((1, 3, 5, 5), "f"))
    message = error_of(mxamp("compare", "net", "low", "--data", "wide.npz"))
    assert message == "The input 'data' has the shape (1, 3, 5, 5), but the model takes (samples, 4, ?, ?)."


def test_an_empty_batch_is_refused(running, mxamp):
    np.savez("empty.npz", data=np.zeros((0, 4, 5, 5), "f"))
    assert "is empty: its shape is (0, 4, 5, 5)" in error_of(
        mxamp("compare", "net", "low", "--data", "empty.npz")
    )


def test_random_data_need_a_shape(running, mxamp):
    message = error_of(mxamp("compare", "net", "low", "--random"))
    assert message == (
        "The shape of the input 'data' is not known, so no random data can be made. Known is ?,4,?,?. Give "
        "it: --input-shape data=1,4,224,224"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--random", "--shape", "data"), "--input-shape 'data' is not of the form NAME=SIZES"),
        (("--random", "--shape", "dta=1,4,5,5"), "--input-shape names 'dta', which is no input of the model"),
        (("--data", "images.npz", "--shape", "data=1,4,5,5"), "--input-shape goes with --random"),
        (("--data", "images.npz", "--tolerance", "-1"), "--tolerance must be a number from 0 on, not -1.0."),
        (("--data", "images.npz", "--batch-size", "0"), "batch size must be at least 1, not 0."),
    ],
)
def test_options_that_make_no_sense_are_refused(running, mxamp, arguments, message):
    assert message in error_of(mxamp("compare", "net", "low", *arguments))


def test_the_shape_of_the_only_input_needs_no_name(running, mxamp):
    given = ("--random", "--json", "--latency-seconds", "0", "--shape")
    found = [mxamp("compare", "net", "low", *given, shape) for shape in ("2,4,5,5", "data=2,4,5,5")]
    assert found[0].status == 0
    assert found[0].out == found[1].out


def test_data_and_random_exclude_each_other(models, mxamp):
    result = mxamp("compare", "net", "low", "--data", "images.npz", "--random")
    assert result.status == 2
    assert "not allowed with argument" in result.err


# ---------------------------------------------------------------------- models that cannot be compared


def test_a_missing_model_is_named(running, mxamp):
    assert "There is no symbol file 'nett-symbol.json'" in error_of(
        mxamp("compare", "nett", "low", "--random")
    )


def test_models_with_other_outputs_are_refused(running, mxamp):
    net = load("net")
    shorter = net.graph.__class__(net.graph.nodes, (net.graph.heads[0]._replace(node=2),), net.graph.attrs)
    Model(shorter, net.arg_params, net.aux_params).save("other")
    message = error_of(mxamp("compare", "net", "other", "--data", "images.npz"))
    assert "The two models have different outputs, so there is nothing to compare" in message


def test_a_float16_model_on_a_cpu_is_refused_with_the_way_out(running, mxamp):
    net = load("net")
    convert_model(net.graph, net.arg_params, net.aux_params, target_dtype="float16").save("half")
    message = error_of(mxamp("compare", "net", "half", "--data", "images.npz"))
    assert message.startswith(
        "The converted model computes in float16 (node 'conv0' (Convolution) is the first"
    )
    for way_out in ("--ctx 'gpu(0)'", "--dtype bfloat16", "emulated"):
        assert way_out in message


def test_a_gpu_that_is_not_there_is_refused(running, mxamp):
    message = error_of(mxamp("compare", "net", "low", "--data", "images.npz", "--ctx", "gpu(99)"))
    assert "There is no gpu(99)" in message


def test_what_is_no_device_is_refused(running, mxamp):
    message = error_of(mxamp("compare", "net", "low", "--data", "images.npz", "--ctx", "tpu"))
    assert "'tpu' is not a device." in message


def test_without_mxnet_it_says_what_to_install(models, mxamp, monkeypatch):
    monkeypatch.setitem(sys.modules, "mxnet", None)
    message = error_of(mxamp("compare", "net", "low", "--data", "images.npz"))
    assert message.startswith("This needs MXNet, which is not installed")
