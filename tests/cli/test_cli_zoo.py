"""``zoo:NAME`` on the command line."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

pytest.importorskip("mxnet")
pytest.importorskip("gluoncv")

pytestmark = pytest.mark.zoo

NAME = "zoo:cifar_resnet20_v1"


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Let no test download anything, whatever the machine can reach."""

    def refuse(*_, **__):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setenv("MXNET_HOME", str(tmp_path / "home"))


def test_random_weights_are_announced_first_and_with_the_steps(mxamp, folder, offline):
    result = mxamp("convert", NAME, "--no-guard", "--dtype", "bfloat16", "-o", "out", "--verbose")
    assert result.status == 0, result.err
    assert result.err.splitlines()[0].startswith(f"mxamp: warning: {NAME}: the weights are RANDOM (seed 0)")
    assert result.out.count("RANDOM (seed 0)") == 1
    assert "Multiply-adds in bfloat16: " in result.out
    assert (folder / "out-symbol.json").is_file()


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_random_weights_do_not_go_unsaid_where_nothing_is_printed(mxamp, folder, offline, option):
    result = mxamp("convert", NAME, "--no-guard", "--dtype", "bfloat16", "-o", "out", option)
    assert result.status == 0
    assert "mxamp: warning: zoo:cifar_resnet20_v1: the weights are RANDOM" in result.err


def test_json_says_that_weights_are_random(mxamp, folder, offline):
    result = mxamp(
        "convert", NAME, "--no-guard", "--dtype", "bfloat16", "-o", "out", "--json", "--no-pretrained"
    )
    assert json.loads(result.out)["has_random_weights"] is True


def test_trained_weights_that_cannot_be_had_are_an_error(mxamp, folder, offline):
    result = mxamp("convert", NAME, "--no-guard", "--dtype", "bfloat16", "-o", "out", "--pretrained")
    assert result.status == 2
    assert "cannot be had" in result.err
    assert not (folder / "out-symbol.json").exists()


def test_unknown_zoo_name_suggests_the_nearest(mxamp, folder, offline):
    result = mxamp("convert", "zoo:resnet50v1", "--dtype", "bfloat16", "-o", "out")
    assert result.status == 2
    assert "Did you mean 'resnet50_v1'" in result.err


def test_zoo_model_can_be_inspected(mxamp, folder, offline):
    result = mxamp("inspect", NAME)
    assert result.status == 0, result.err
    assert "none in low precision" in result.out
    assert "RANDOM" in result.out
