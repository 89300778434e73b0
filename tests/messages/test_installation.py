"""What is missing is told with what works: with this Python, and from a checkout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import mxamp
from model_zoo_eval.build import build_model
from model_zoo_eval.registry import select_cases
from mxamp.errors import MxnetMissingError
from mxamp.guard import Guard, machine
from mxamp.messages import installation
from mxamp.targets import Target
from tests.building import Net, parameters

ROOT = Path(__file__).resolve().parents[2]


def on_python(monkeypatch: pytest.MonkeyPatch, minor: int, *, mxnet: bool = True) -> None:
    monkeypatch.setattr(sys, "version_info", (3, minor, 0, "final", 0))
    if not mxnet:
        monkeypatch.setitem(sys.modules, "mxnet", None)


@pytest.mark.parametrize("extra", ["mxnet", "zoo", "demo", "dask", "onnx"])
def test_a_hint_names_a_file_and_an_extra_that_exist(monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    monkeypatch.setattr(installation, "ROOT", ROOT)  # the tests may run on an installed wheel
    for minor in (8, 9, 10, 11):
        on_python(monkeypatch, minor)
        hint = installation.install_hint(extra)
        assert hint.startswith(
            f"Install it with: pip install -c constraints/python3.{minor}.txt '.[{extra}]'"
        )
        assert (ROOT / "constraints" / f"python3.{minor}.txt").is_file()
        assert str(ROOT) in hint
    assert f'"{extra}": ' in (ROOT / "setup.py").read_text("utf-8")


@pytest.mark.parametrize("minor", [12, 13])
def test_where_mxnet_cannot_be_nothing_is_advised_that_needs_it(
    monkeypatch: pytest.MonkeyPatch, minor: int
) -> None:
    on_python(monkeypatch, minor, mxnet=False)
    hint = installation.install_hint("mxnet")
    assert f"Python 3.8 to 3.11, and this is 3.{minor}" in hint
    assert "pip install" not in hint
    assert "make environment" in hint
    assert "environment:" in (ROOT / "Makefile").read_text("utf-8")


def test_outside_a_checkout_the_hint_says_where_to_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    assert "(in a checkout of mxamp)" in installation.install_hint("zoo")


def test_no_text_advises_to_install_mxamp_from_an_index() -> None:
    folders = ("mxamp/**/*.py", "model_zoo_eval/**/*.py", "docs/**/*.md", "*.md")
    files = [path for pattern in folders for path in ROOT.glob(pattern)]
    assert [path for path in files if "install 'mxamp[" in path.read_text("utf-8")] == []


def test_what_needs_no_mxnet_is_installed_on_any_python(monkeypatch: pytest.MonkeyPatch) -> None:
    on_python(monkeypatch, 13, mxnet=False)
    assert "pip install -c constraints/python3.13.txt '.[onnx]'" in installation.install_hint("onnx")
    assert (ROOT / "constraints" / "python3.13.txt").is_file()


def test_without_mxnet_no_hint_asks_for_what_needs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mxamp.cli.main import main

    net = Net()
    graph = net.graph(net.conv(net.var("data"), "c0"))
    model = mxamp.Model(graph, parameters(net.params), {})
    monkeypatch.chdir(tmp_path)
    model.save("net")
    on_python(monkeypatch, 12, mxnet=False)
    why: Any = machine.why_not_here(Guard(), model, Target.builtin("cpu-bf16"), None)
    assert why.startswith("this needs MXNet")
    assert "shapes" not in why
    with pytest.raises(MxnetMissingError, match=r"this is 3\.12"):
        mxamp.convert_model(graph, net.params, {}, "bfloat16", profile=True)
    assert main(["compare", "net", "net"]) == 2
    said = capsys.readouterr().err
    assert "This needs MXNet" in said
    assert "--random" not in said
    assert main(["convert", "net", "--dtype", "bf16", "-o", "out"]) == 0
    assert "not measured; where MXNet is, mxamp compare" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("minor", [11, 13])
def test_models_of_the_zoo_say_what_they_need(monkeypatch: pytest.MonkeyPatch, minor: int) -> None:
    on_python(monkeypatch, minor, mxnet=minor < 12)
    monkeypatch.setitem(sys.modules, "gluoncv", None)
    if minor < 12:
        monkeypatch.setattr("mxamp.runtime.zoo.import_mxnet", lambda: None)
    advice = "this is 3\\.13: use one of those" if minor == 13 else r"'\.\[zoo\]'"
    with pytest.raises(MxnetMissingError, match=advice):
        build_model(select_cases(["resnet18_v1"])[0])
