"""Outputs with other names, as the stock converter leaves them, are compared in their order where asked."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mxnet", reason="it runs the models")

import mxamp
from mxamp.cli.main import main
from mxamp.errors import DataError
from mxamp.graph import Entry, Graph
from mxamp.model import Model
from tests.building import Net

DATA = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)


def model() -> Model:
    net = Net()
    first = net.fc(net.var("data"), "first")
    return Model.of(net.graph(net.fc(first, "second"), first), net.params, {})


def renamed(original: Model) -> Model:
    """Return the model with other names of its outputs: each is cast to what it is."""
    net = Net()
    net.nodes = list(original.graph.nodes)
    heads = [
        net.op("amp_cast", head, name=f"{original.graph.describe(head)}_amp_cast_float32", dtype="float32")
        for head in original.graph.heads
    ]
    return dataclasses.replace(original, graph=net.graph(*heads), _mxnet={})


def test_other_names_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(DataError, match=r"different outputs.*by_position=True pairs them in order"):
        mxamp.compare_models(model(), renamed(model()), DATA)


def test_by_position_they_are_compared_under_the_names_of_the_float32_model() -> None:
    original = model()
    fidelity = mxamp.compare_models(original, renamed(original), DATA, by_position=True)
    assert [output.name for output in fidelity.outputs] == ["second_output", "first_output"]
    assert all(output.distance.relative_l2 < 1e-6 for output in fidelity.outputs)  # one is fused, one is not
    assert any("'second_output' with 'second_amp_cast_float32_output'" in note for note in fidelity.notes)
    several = mxamp.compare_candidates(
        original, {"renamed": renamed(original)}, DATA, by_position=True, layers=False
    )
    assert several["renamed"].worst_output.distance.relative_l2 < 1e-6


def test_another_number_of_outputs_is_an_error_all_the_same() -> None:
    original = model()
    other = dataclasses.replace(original, graph=one_output(original.graph), _mxnet={})
    with pytest.raises(DataError, match="different outputs") as info:
        mxamp.compare_models(original, other, DATA, by_position=True)
    assert "by_position" not in str(info.value)


def one_output(graph: Graph) -> Graph:
    return dataclasses.replace(graph, heads=(Entry(graph.heads[0].node),))


def test_the_command_line_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    model().save("net")
    renamed(model()).save("other")
    np.save("data.npy", DATA)
    command: list[Any] = ["compare", "net", "other", "--data", "data.npy", "--tolerance", "1e-6"]
    assert main(command) == 2
    assert "--by-position pairs them in order" in capsys.readouterr().err
    assert main([*command, "--by-position"]) == 0
    assert "paired by their position" in " ".join(capsys.readouterr().out.split())
