"""``mxamp targets``, and ``mxamp convert`` for a target from a file."""

from __future__ import annotations

import json

import pytest

from mxamp.targets import Target


def test_every_built_in_target_is_listed(mxamp):
    result = mxamp("targets")
    assert result.status == 0
    assert all(name in result.out for name in Target.builtin_names())
    assert "--target auto" in result.out


def test_one_target_is_explained(mxamp):
    result = mxamp("targets", "cpu-bf16")
    assert result.status == 0
    out = " ".join(result.out.split())
    assert "float32, for it crashes MXNet (1): transpose" in out
    assert "Convolution + [BatchNorm]" in out
    assert "Costs (measured): mxamp probe, MXNet 1.9.1" in out


def test_what_was_not_measured_says_so(mxamp):
    out = " ".join(mxamp("targets", "cuda-fp16-sm75").out.split())
    assert "Based on: cuda-fp16." in out
    assert "Costs (computed): roofline from NVIDIA's published peak rates of the T4" in out
    out = " ".join(mxamp("targets", "cpu-bf16-emulated").out.split())
    assert "Warning: its CPUs have no bfloat16 instructions" in out
    assert "bfloat16 takes 4 times as long" in out
    assert "Costs: not known." in mxamp("targets", "generic-fp16").out


def test_targets_are_printed_as_json(mxamp):
    listed = json.loads(mxamp("targets", "--json").out)
    assert [target["name"] for target in listed] == list(Target.builtin_names())
    one = json.loads(mxamp("targets", "cuda-fp16-sm70", "--json").out)
    assert one["costs"]["measured"] is False
    assert one["operators"]["Convolution"]["support"] == "works"


def test_auto_is_a_target_of_the_dtype(mxamp):
    assert json.loads(mxamp("targets", "auto", "--dtype", "float16", "--json").out)["dtype"] == "float16"
    assert json.loads(mxamp("targets", "auto", "--json").out)["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cpu-bf", "There is no target 'cpu-bf'. Did you mean 'cpu-bf16'"),
        ("mine.json", "Cannot read the target 'mine.json'"),
    ],
    ids=["name", "file"],
)
@pytest.mark.parametrize("command", ["targets", "convert"])
def test_a_target_that_is_not_there_is_an_error(mxamp, folder, command, name, message):
    if command == "targets":
        result = mxamp("targets", name)
    else:
        result = mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--target", name)
    assert result.status == 2
    assert message in result.err
    assert not list(folder.glob("out*"))


def test_a_model_is_converted_for_a_target_from_a_file(mxamp, folder):
    document = {
        "name": "mine",
        "based_on": "cpu-bf16",
        "description": "no convolutions",
        "operators": {"Convolution": {"support": "crashes"}},
    }
    (folder / "mine.json").write_text(json.dumps(document))
    result = mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--target", "mine.json", "--json")
    assert result.status == 0, result.err
    report = json.loads(result.out)["report"]
    assert report["target"] == "mine"
    assert {node["compute"] for node in report["nodes"] if node["op"] == "Convolution"} == {"float32"}


def test_low_precision_where_it_pays_needs_shapes(mxamp, folder):
    command = ("convert", "net", "--dtype", "bfloat16", "-o", "out", "--low-precision")
    result = mxamp(*command, "profitable")
    assert result.status == 2
    assert "no --input-shape were given" in result.err
    assert mxamp(*command, "required").status == 0


def test_a_target_for_another_dtype_is_refused(mxamp, folder):
    result = mxamp("convert", "net", "--dtype", "float16", "-o", "out", "--target", "generic-bf16")
    assert result.status == 2
    assert "must be for the same dtype" in result.err


def test_expected_times_are_shown_where_shapes_are_known(mxamp, folder):
    command = ("convert", "net", "--dtype", "bfloat16", "-o", "out", "--input-shape", "data=1,4,32,32")
    command = (*command, "--no-guard")
    result = mxamp(*command, "--low-precision", "required", "--verbose")
    assert result.status == 0, result.err
    assert "Estimated time of a forward pass: float32" in result.out
    time = json.loads(mxamp(*command, "--force", "--json").out)["report"]["time"]
    assert time["mixed_us"] <= time["float32_us"]


def test_a_target_that_runs_nothing_low_says_so(mxamp):
    out = " ".join(mxamp("targets", "cpu-bf16-avx2").out.split())
    assert "Models stay float32, and their graphs are prepared" in out
    assert "GB/s; nothing runs in bfloat16." in out
    assert "Casts" not in out


def test_auto_is_for_the_dtypes_that_it_chooses_for(mxamp):
    result = mxamp("targets", "auto", "--dtype", "int8")
    assert result.status == 2
    assert "auto chooses a target for bfloat16 or float16, not for int8" in result.err


def test_json_that_is_no_target_says_what_is_missing(mxamp, folder):
    result = mxamp("targets", "net-symbol.json")
    assert result.status == 2
    assert "net-symbol.json is not a target: it has no 'name'." in result.err
    assert "mxamp probe" in result.err
