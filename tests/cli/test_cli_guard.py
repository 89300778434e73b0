"""The guard on the command line: on by default, and silent where nothing can be measured but for one line."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest

from mxamp.cli import convert as convert_command
from mxamp.guard import Guard, search
from tests.guard.fake_machine import FakeMachine

CONVERT = ("convert", "net", "--dtype", "bfloat16", "-o", "out")
SHAPE = ("--input-shape", "data=1,4,8,8", "--low-precision", "profitable")
ALL_LOW = ("--target", "generic-bf16")


@pytest.fixture
def machine(monkeypatch):
    """Measure on a machine that a test describes: ``machine(conv0=0.1)``."""

    def describe(prepared=0.0, **low):
        fake = FakeMachine(low, prepared)
        monkeypatch.setattr(search, "why_not_here", lambda *_: None)
        monkeypatch.setattr(search, "measuring_here", lambda *_: contextlib.nullcontext(fake))
        monkeypatch.setattr(search, "describe_machine", lambda *_, **__: {"cpu": "a CPU", "threads": "2"})
        return fake

    return describe


def test_without_shapes_one_line_says_why_nothing_is_measured(mxamp, folder):
    pytest.importorskip("mxnet", reason="without it, that is what is said")
    result = mxamp(*CONVERT, "--verbose")
    assert result.status == 0, result.err
    assert " ".join(result.out.split()).count("Not measured against float32: the shapes of the inputs") == 1
    assert result.err == ""


def test_no_guard_says_nothing(mxamp, folder):
    result = mxamp(*CONVERT, "--no-guard")
    assert "easured against" not in result.out
    assert json.loads(mxamp(*CONVERT, "--no-guard", "--force", "--json").out)["report"]["guard"] is None


def test_a_conversion_is_measured_by_default(mxamp, folder, machine):
    fake = machine(conv0=-0.004)
    result = mxamp(*CONVERT, *ALL_LOW, "--verbose")
    assert result.status == 0, result.err
    assert fake.races == [2]
    assert "Measured on a CPU, 2 threads: float32 19.00 ms, this one 11.40: 1.67 times as fast" in " ".join(
        result.out.split()
    )


def test_what_it_gives_up_is_told_where_it_matters(mxamp, folder, machine):
    machine(conv0=0.1, conv1=0.1)
    result = mxamp(*CONVERT, *ALL_LOW, "--report", "why.json")
    assert result.status == 0, result.err
    said = "the converted model was not faster than float32 (0.05 times as fast"
    assert said in result.err
    document = json.loads((folder / "why.json").read_text("utf-8"))
    assert document["guard"]["outcome"] == "original"
    assert document["guard"]["converted"]["ratio"] == pytest.approx(10 / 210, abs=1e-4)
    inspected = " ".join(mxamp("inspect", "out").out.split())
    assert "none in low precision" in inspected
    assert f"Guard: {said}" in inspected
    assert "Measured on a CPU, 2 threads:" in inspected
    nodes = " ".join(mxamp("inspect", "out", "--nodes", "conv0", "--width", "400").out.split())
    assert "measured: the converted model was 0.05 times as fast as float32" in nodes
    provenance = json.loads(mxamp("inspect", "out", "--json").out)["provenance"]
    assert provenance["decisions"]["guard"] == document["guard"]
    assert mxamp("verify", "out").status == 0


def test_json_holds_what_was_measured(mxamp, folder, machine):
    machine(conv0=-0.004)
    guard = json.loads(mxamp(*CONVERT, *ALL_LOW, "--json").out)["report"]["guard"]
    assert guard["outcome"] == "converted"
    assert guard["result"]["rounds"] == 20


def test_options_reach_the_guard(mxamp, folder, monkeypatch):
    np.savez(folder / "images.npz", data=np.zeros((2, 4, 8, 8), np.float32))
    seen = []
    real = convert_command.convert_model
    monkeypatch.setattr(
        convert_command,
        "convert_model",
        lambda *args, **options: seen.append(options) or real(*args, **{**options, "guard": False}),
    )
    result = mxamp(*CONVERT, "--guard-seconds", "7", "--data", "images.npz")
    assert result.status == 0, result.err
    (options,) = seen
    assert isinstance(options["guard"], Guard)
    assert options["guard"].seconds == 7
    assert options["guard"].data["data"].shape == (2, 4, 8, 8)
    assert options["input_shapes"] == {"data": (2, 4, 8, 8)}


def test_an_emulated_model_is_not_guarded(mxamp, folder):
    result = mxamp(*CONVERT, "--emulate")
    assert result.status == 0, result.err
    assert "Not measured" not in result.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--guard-seconds", "0"), "The guard's seconds must be a number above 0, not 0.0"),
        (("--guard-seconds", "nan"), "The guard's seconds must be a number above 0, not nan"),
        (("--data", "nowhere.npz"), "nowhere.npz"),
        (("--data", "images.npz", "--input-shape", "data=1,4,8,8"), "leave --input-shape out"),
        (("--data", "other.npz"), "has no input 'pictures'"),
    ],
    ids=["no time", "nan", "no file", "shapes twice", "another input"],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(mxamp, folder, options, message):
    images = np.zeros((1, 4, 8, 8), np.float32)
    np.savez(folder / "images.npz", data=images)
    np.savez(folder / "other.npz", pictures=images, more=images)
    result = mxamp(*CONVERT, *options)
    assert result.status == 2
    assert message in " ".join(result.err.split())
    assert not (folder / "out-symbol.json").exists()


def test_help_teaches_what_is_promised(mxamp):
    text = " ".join(mxamp("convert", "--help").out.split())
    for part in ("never slower", "--no-guard", "--guard-seconds", "this machine", "twelve times"):
        assert part in text
