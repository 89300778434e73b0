"""Which nodes make the difference, on models where that is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.cli.main import main
from mxamp.debug import Suspects, debug_models
from mxamp.debug.run import Suspect
from mxamp.debug.text import format_suspects, suspects_section
from mxamp.errors import DataError
from mxamp.model import Model
from tests.building import Net, parameters

LAYERS = 6
GUILTY = 3


def network() -> Model:
    """Six layers in a row, of which the fourth multiplies by values that float16 overflows at."""
    net = Net()
    x = net.var("data")
    for number in range(LAYERS):
        x = net.conv(x, f"conv{number}")
    graph = net.graph(x)
    params = {name: np.full_like(value, 0.25) for name, value in net.params.items()}
    for name, value in params.items():
        if name == f"conv{GUILTY}_weight":
            params[name] = np.full_like(value, 3e4)
        elif name == f"conv{GUILTY + 1}_weight":
            params[name] = np.full_like(value, 1e-5)
    return Model(graph, parameters(params), {})


def images() -> np.ndarray:
    return np.random.default_rng(0).uniform(1, 2, (4, 4, 16, 16)).astype(np.float32)


def test_the_layer_that_overflows_is_found() -> None:
    pytest.importorskip("mxnet")
    own = network()
    low = mxamp.convert_model(own.graph, own.arg_params, {}, "float16", low_precision="required")
    found = debug_models(own, low, images(), trials=16)
    assert found.is_emulated
    assert found.dtype == "float16"
    # What writes a value beyond float16's range, and what reads it.
    assert [suspect.nodes for suspect in found.suspects[:2]] == [(f"conv{GUILTY}",), (f"conv{GUILTY + 1}",)]
    assert all(suspect.error == math.inf for suspect in found.suspects[:2])
    assert all(suspect.error < 0.01 for suspect in found.suspects[2:])
    assert found.low_nodes == LAYERS
    assert found.trials <= 16


def test_shares_add_up_and_suspects_are_all_that_is_low() -> None:
    pytest.importorskip("mxnet")
    net = Net()
    x = net.var("data")
    for number in range(4):
        x = net.op("Activation", net.conv(x, f"conv{number}"), name=f"relu{number}", act_type="relu")
    own = Model(net.graph(x), parameters(net.params), {})
    low = mxamp.convert_model(own.graph, own.arg_params, {}, "bfloat16", low_precision="required")
    found = debug_models(own, low, images(), trials=12, emulate=True)
    assert sum(suspect.share or 0 for suspect in found.suspects) == pytest.approx(1)
    assert {name for suspect in found.suspects for name in suspect.nodes} == {
        node.name for node in low.report.nodes if node.compute == "bfloat16"
    }


def test_neither_model_is_changed_and_a_conversion_without_low_nodes_is_refused() -> None:
    pytest.importorskip("mxnet")
    own = network()
    before = own.symbol_json()
    with pytest.raises(DataError, match="Nothing of the converted model is in low precision"):
        debug_models(own, own, images())
    assert own.symbol_json() == before


def test_files_without_their_record_tell_what_is_low_themselves(tmp_path: Path) -> None:
    pytest.importorskip("mxnet")
    own = network()
    low = mxamp.convert_model(own.graph, own.arg_params, {}, "float16", low_precision="required")
    low.save(tmp_path / "low", provenance=False)
    found = debug_models(own, mxamp.load(tmp_path / "low"), images(), trials=16)
    assert found.suspects[0].nodes == (f"conv{GUILTY}",)


def found() -> Suspects:
    return Suspects(
        dtype="float16",
        is_emulated=True,
        low_nodes=4,
        converted=0.25,
        together=0.2,
        suspects=(Suspect(("a", "b", "c", "d"), 0.2, 0.8), Suspect(("e",), math.inf, None)),
        without_first=0.05,
        trials=7,
        samples=8,
    )


def test_a_culprit_whose_errors_cancel_others_is_not_advised_against() -> None:
    worse = replace(found(), without_first=0.3)
    assert "no better" in format_suspects(worse, 100)
    assert "no better" not in format_suspects(found(), 100)


@pytest.mark.parametrize("width", [40, 100])
def test_text_says_which_how_much_and_what_to_do(width: int) -> None:
    text = format_suspects(found(), width)
    assert max(map(len, text.splitlines())) <= width
    said = " ".join(text.split())
    assert "0.25 as converted, 0.2 with the same 4 nodes in float16 here (7 models, emulated)" in said
    assert "80.0 %" in said
    assert "--exclude a --exclude b --exclude c ..." in said


def test_the_section_of_a_page_and_json_say_the_same() -> None:
    rows = suspects_section(found()).tables[0].rows
    assert rows == (("80.0 %", "0.2", "4", "a ... d"), ("-", "inf", "1", "e"))
    plain = json.loads(json.dumps(found().to_mapping(), allow_nan=False))
    assert plain["suspects"][1]["error"] == "inf"


def test_the_command_prints_what_it_found_and_writes_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[Any]
) -> None:
    pytest.importorskip("mxnet")
    monkeypatch.chdir(tmp_path)
    own = network()
    own.save("net")
    mxamp.convert_model(own.graph, own.arg_params, {}, "float16", low_precision="required").save("low")
    np.savez("images.npz", data=images())
    given = ["debug", "net", "low", "--data", "images.npz", "--trials", "8"]
    assert main([*given, "--html", "page.html"]) == 0
    assert f"conv{GUILTY}" in capsys.readouterr().out
    assert "Which nodes make the difference" in (tmp_path / "page.html").read_text("utf-8")
    assert main([*given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dtype"] == "float16"
