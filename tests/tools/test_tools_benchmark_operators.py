from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxamp.ops.kernels import kernels
from tools.benchmark_operators import Timing, main


def test_ratios_are_of_rounds_that_belong_together() -> None:
    slow, fast = Timing("slow", 8, [2.0, 40.0, 6.0]), Timing("fast", 8, [1.0, 20.0, 3.0])
    assert slow.ratio(fast) == (2.0, 2.0, 2.0)


def test_everything_measured_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels() is None:
        pytest.skip("the kernels are not built")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    file = tmp_path / "timings.json"
    assert main(["--megabytes", "1", "--rounds", "2", "--no-mxnet", "--json", str(file)]) == 0
    document = json.loads(file.read_text(encoding="utf-8"))
    printed = capsys.readouterr().out
    assert document["timings"][0]["variant"] == "copy (NumPy)"
    for timing in document["timings"]:
        assert len(timing["milliseconds"]) == 2
        assert timing["variant"] in printed
    assert "of the bandwidth of a copy (wanted: at least 0.5)" in printed


def test_without_kernels_there_is_nothing_to_measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MXAMP_NATIVE", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["--megabytes", "1"]) == 1
    assert "not built" in capsys.readouterr().err
