from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from mxamp import convert_model
from tests.building import Net
from tools.fingerprint import compare, fingerprint, main, models_by_default
from tools.machine import ROOT


def converted(weight=1.0, **options):
    net = Net()
    graph = net.graph(net.conv(net.var("data"), "conv"))
    values = {"conv_weight": np.full((4, 4, 1, 1), weight, np.float32)}
    return convert_model(graph, values, {}, "bfloat16", **options)


def test_equal_conversions_have_equal_hashes():
    assert fingerprint(converted()) == fingerprint(converted())


def test_a_parameter_that_differs_is_named():
    lines = compare({"case": fingerprint(converted())}, {"case": fingerprint(converted(weight=2.0))})
    assert lines == ["case: parameters (conv_weight)"]


def test_another_graph_differs_in_symbol_and_report():
    lines = compare({"case": fingerprint(converted())}, {"case": fingerprint(converted(exclude=["conv"]))})
    assert len(lines) == 1
    assert "report (casts, nodes" in lines[0]
    assert lines[0].endswith("symbol")


def test_a_case_that_is_missing_is_a_difference():
    assert compare({"a": {}}, {}) == ["a: only before"]
    assert compare({}, {"a": {}}) == ["a: only after"]


def test_an_error_that_differs_is_told():
    assert compare({"a": {"error": "X"}}, {"a": {"error": "Y"}}) == ["a: error (X -> Y)"]


def test_diff_fails_where_a_file_differs(tmp_path, capsys):
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    before.write_text(json.dumps({"case": "a", "symbol": "1"}) + "\n")
    after.write_text(json.dumps({"case": "a", "symbol": "2"}) + "\n")
    assert main(["diff", str(before), str(before)]) == 0
    assert main(["diff", str(before), str(after)]) == 1
    assert "a: symbol" in capsys.readouterr().out


def test_every_family_of_the_zoo_is_in_it():
    assert len(models_by_default()) >= 60


def test_a_conversion_is_the_same_in_another_process_whatever_the_order_of_sets():
    pytest.importorskip("gluoncv", reason="builds a model of GluonCV's zoo")
    found = []
    for seed in ("1", "2"):
        process = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tools.fingerprint", "model", "ssd_300_mobilenet0.25_voc"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(process.stdout)
    assert found[0] == found[1]
    assert len(found[0].splitlines()) == 18
