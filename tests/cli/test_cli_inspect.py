"""``mxamp inspect``: read from the files alone, at any width."""

from __future__ import annotations

import json

import pytest

from mxamp.model import Model, load
from mxamp.model.source_files import hash_file


@pytest.fixture
def converted(mxamp, folder):
    assert mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out").status == 0
    return folder


def test_overview_tells_precision_casts_sizes_and_ends(mxamp, converted):
    result = mxamp("inspect", "out")
    assert result.status == 0, result.err
    assert "4 in bfloat16, 1 in float32" in result.out
    assert "Inputs: data float32." in result.out
    assert "Outputs: exp0_output float32." in result.out
    assert "2 casts: 1 down, 1 up" in result.out
    assert "float32 -> bfloat16" in result.out


def test_full_precision_model_is_said_to_be_one(mxamp, folder):
    result = mxamp("inspect", "net")
    assert result.status == 0, result.err
    assert "none in low precision" in result.out
    assert "No casts." in result.out


def test_json_holds_everything(mxamp, converted):
    document = json.loads(mxamp("inspect", "out", "--json").out)
    assert document["operators"]["Convolution"] == {"bfloat16": 2}
    assert document["operators"]["exp"] == {"float32": 1}
    assert [cast["direction"] for cast in document["casts"]] == ["down", "up"]
    assert document["inputs"] == {"data": "float32"}
    assert document["parameters"]["float32"]["arrays"] == 4


def test_nodes_are_picked_by_name_or_operator(mxamp, converted):
    (converted / "out-mxamp.json").unlink()  # reasons would take several lines
    by_name = mxamp("inspect", "out", "--nodes", "conv*")
    by_operator = mxamp("inspect", "out", "--nodes", "Convolution")
    assert by_name.out == by_operator.out
    assert len(by_name.out.splitlines()) == 4
    assert len(mxamp("inspect", "out", "--nodes").out.splitlines()) == 7


def test_the_overview_says_what_the_model_was_made_from(mxamp, converted):
    out = " ".join(mxamp("inspect", "out").out.split())
    record = hash_file(converted / "net-0000.params")
    assert "Converted by mxamp" in out
    assert "to bfloat16 for the target cpu-bf16" in out
    assert f"net-0000.params ({record.algorithm} {record.digest[:12]}...)" in out
    assert "Policy: the built-in one." in out


def test_a_policy_of_the_users_is_named(mxamp, folder):
    assert mxamp("convert", "net", "--dtype", "bfloat16", "-o", "out", "--exclude", "conv0").status == 0
    assert "Policy: custom." in mxamp("inspect", "out").out
    table = mxamp("inspect", "out", "--nodes", "conv0", "--width", "250").out
    assert "excluded" in table


def test_reasons_are_beside_the_nodes(mxamp, converted):
    report = json.loads((converted / "out-mxamp.json").read_text("utf-8"))["decisions"]
    reasons = {node["name"]: node["reason"] for node in report["nodes"]}
    lines = mxamp("inspect", "out", "--nodes", "--width", "400").out.splitlines()
    assert lines[0].endswith("Why")
    for line in lines[2:]:
        assert line.endswith(reasons[line.split()[0]])


def test_json_holds_the_provenance_or_none(mxamp, converted):
    recorded = json.loads((converted / "out-mxamp.json").read_text("utf-8"))
    assert json.loads(mxamp("inspect", "out", "--json").out)["provenance"] == recorded
    (converted / "out-mxamp.json").unlink()
    assert json.loads(mxamp("inspect", "out", "--json").out)["provenance"] is None


@pytest.mark.parametrize("damage", ["symbol", "params", "provenance"])
def test_provenance_that_does_not_fit_or_is_damaged_is_not_shown(mxamp, converted, damage):
    if damage == "symbol":
        path = converted / "out-symbol.json"
        path.write_text(path.read_text("utf-8").replace('"bn0"', '"bn9"'), "utf-8")
    elif damage == "params":
        model = load("net")
        Model(model.graph, model.arg_params, model.aux_params).save("other", provenance=False)
        (converted / "other-0000.params").replace(converted / "out-0000.params")
    else:
        (converted / "out-mxamp.json").write_text('{"format": 1,', "utf-8")
    result = mxamp("inspect", "out")
    assert result.status == 0
    assert "Converted by" not in result.out
    assert "mxamp: warning: out" in result.err
    assert (
        "not valid JSON" if damage == "provenance" else "mxamp verify out tells what differs"
    ) in result.err


def test_pattern_that_fits_no_node_suggests_the_nearest(mxamp, converted):
    result = mxamp("inspect", "out", "--nodes", "Convolutio")
    assert result.status == 2
    assert "Did you mean 'Convolution'" in result.err


def test_casts_are_listed_with_their_readers(mxamp, converted):
    result = mxamp("inspect", "out", "--casts")
    assert result.status == 0
    rows = [line.split() for line in result.out.splitlines()[2:]]
    assert ["data", "float32", "->", "bfloat16", "conv0"] in rows
    assert ["conv1", "bfloat16", "->", "float32", "exp0"] in rows


def test_graph_is_printed_with_dtypes(mxamp, converted):
    lines = mxamp("inspect", "out", "--graph").out.splitlines()
    assert lines[0] == "data: float32"
    assert any(line.startswith("conv0: bfloat16 = Convolution(") for line in lines)


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("view", [[], ["--nodes"], ["--casts"]], ids=["overview", "nodes", "casts"])
@pytest.mark.parametrize("how", ["option", "terminal"])
def test_no_line_is_wider_than_the_terminal(mxamp, converted, monkeypatch, width, view, how):
    if how == "terminal":
        monkeypatch.setenv("COLUMNS", str(width))
        result = mxamp("inspect", "out", *view)
    else:
        result = mxamp("inspect", "out", "--width", str(width), *view)
    assert result.status == 0, result.err
    assert max(len(line) for line in result.out.splitlines()) <= width


def test_inputs_are_not_opened_for_writing(mxamp, converted):
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in converted.iterdir()}
    mxamp("inspect", "out")
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in converted.iterdir()} == before


# ---------------------------------------------------------------------- casts that were dropped


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_model_that_was_saved_without_its_casts_is_recognised(mxamp, folder, dtype):
    """``Symbol.save`` drops them by default, and says nothing."""
    mx = pytest.importorskip("mxnet")
    assert mxamp("convert", "net", "--dtype", dtype, "-o", "out", "--no-provenance").status == 0
    whole = mxamp("inspect", "out")
    assert whole.status == 0
    assert "without its casts" not in whole.err
    mx.sym.load("out-symbol.json").save("out-symbol.json")
    result = mxamp("inspect", "out")
    assert result.status == 0
    assert "saved without its casts" in result.err
    assert "remove_amp_cast=False" in result.err
    assert "conv0" in result.err  # where it shows


def test_a_float32_model_and_one_that_is_low_throughout_have_lost_nothing(mxamp, folder):
    assert "casts" not in mxamp("inspect", "net").err
    command = [
        "convert",
        "net",
        "--dtype",
        "float16",
        "-o",
        "low",
        "--io-dtype",
        "low",
        "--exclude-op",
        "exp",
    ]
    assert mxamp(*command, "--no-provenance").status == 0
    assert "without its casts" not in mxamp("inspect", "low").err
