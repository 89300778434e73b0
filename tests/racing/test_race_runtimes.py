"""Races between runtimes: what runs, what does not, and what is said of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")

import mxamp
from mxamp.cli.main import main
from mxamp.dtypes import DType
from mxamp.errors import AccuracyError, DataError, ModelFileNotFoundError, OperatorError
from mxamp.measuring.race import Ratio
from mxamp.model import Model
from mxamp.racing import RaceEntry, RaceResult
from tests.building import Net, convert, parameters

SHAPES = {"data": (1, 4, 6, 6)}


def net() -> Any:
    net = Net()
    return net.graph(net.op("relu", net.conv(net.var("data"), "conv0"), name="out")), net.params


def fp32() -> Model:
    graph, params = net()
    return Model(graph, parameters(params), {})


def low(dtype: DType) -> Any:
    graph, params = net()
    return convert(graph, params, dtype)


def test_models_and_files_race_without_mxnet(tmp_path: Path) -> None:
    fp32().export_onnx(tmp_path / "net.onnx", input_shapes=SHAPES)
    models = {"fp32": fp32(), "low": low(DType.FLOAT16), "file": tmp_path / "net.onnx"}
    result = mxamp.race(models, input_shapes=SHAPES, runtimes=["onnxruntime"], seconds=0.2)
    assert [entry.model for entry in result.ran] == ["fp32", "low", "file"]
    same, rounded, again = result.entries
    assert (same.error, again.error) == (0, 0)
    assert rounded.error is not None
    assert 0 < rounded.error < 2e-3
    assert all(entry.ratio is not None and entry.ratio.rounds >= 6 for entry in result.ran)
    assert same.ratio is not None
    assert same.ratio.median == 1
    assert result.best in result.entries
    document = json.loads(result.to_json())
    assert [entry["runtime"] for entry in document["entries"]] == ["onnxruntime"] * 3
    assert document["entries"][document["deploy"]]["milliseconds"] > 0
    assert "Deploy" in str(result)


def test_a_model_races_in_mxnet_too_and_is_converted(tmp_path: Path) -> None:
    pytest.importorskip("mxnet")
    fp32().save(tmp_path / "net")
    result = mxamp.race(
        str(tmp_path / "net"),
        input_shapes=SHAPES,
        dtype="bfloat16",
        runtimes=["mxnet", "onnxruntime"],
        seconds=0.2,
    )
    assert [(entry.runtime, entry.failure) for entry in result.entries[:2]] == [
        ("mxnet", None),
        ("onnxruntime", None),
    ]
    assert "fusion off" in result.reference
    assert result.entries[2].model.endswith("bfloat16 by mxamp")


def test_what_cannot_run_is_told_and_the_others_race(tmp_path: Path) -> None:
    models = {"fp32": fp32(), "low": low(DType.BFLOAT16)}
    result = mxamp.race(
        models,
        input_shapes=SHAPES,
        runtimes=["onnxruntime", "openvino"],
        python={"openvino": str(tmp_path / "no-such-python")},
        seconds=0.1,
    )
    failures = {(entry.model, entry.runtime): entry.failure for entry in result.entries}
    assert failures["fp32", "onnxruntime"] is None
    assert "no kernels for bfloat16" in (failures["low", "onnxruntime"] or "")
    assert "cannot be started" in (failures["low", "openvino"] or "")
    assert "Did not run" in str(result)
    json.loads(result.to_json())


def test_a_process_that_ends_is_a_result(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\nraise SystemExit('it broke')\n", "utf-8")
    program.chmod(0o755)
    result = mxamp.race(
        fp32(),
        input_shapes=SHAPES,
        runtimes=["onnxruntime", "openvino"],
        python={"openvino": str(program)},
        seconds=0.1,
    )
    assert "ended with status 1: it broke" in (result.entries[1].failure or "")
    with pytest.raises(OperatorError, match="runs nowhere"):
        mxamp.race(fp32(), input_shapes=SHAPES, runtimes=["openvino"], python={"openvino": str(program)})


def test_data_is_taken_a_batch_at_a_time() -> None:
    images = np.random.default_rng(1).standard_normal((6, 4, 6, 6)).astype(np.float32)
    result = mxamp.race(fp32(), images, batch_size=2, runtimes=["onnxruntime"], seconds=0.1)
    assert (result.samples, result.batch_size, result.entries[0].error) == (6, 2, 0)
    with pytest.raises(DataError, match="no batches of 4"):
        mxamp.race(fp32(), images, batch_size=4, runtimes=["onnxruntime"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runtimes": ["onnxruntim"]}, "Did you mean 'onnxruntime'"),
        ({"threads": 0}, "threads must be"),
        ({"seconds": float("inf")}, "seconds must be"),
        ({"tolerance": 0}, "tolerance must be"),
        ({"python": {"pytorch": "python"}}, "no runtime 'pytorch'"),
    ],
)
def test_what_is_no_race_is_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        mxamp.race(fp32(), input_shapes=SHAPES, **options)


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFileNotFoundError):
        mxamp.race(tmp_path / "net.onnx")
    with pytest.raises(DataError, match="nothing to race"):
        mxamp.race({})
    with pytest.raises(DataError, match="not int"):
        mxamp.race({"five": 5})


def entry(name: str, seconds: float, error: float) -> RaceEntry:
    return RaceEntry(
        name,
        "openvino",
        "float32",
        "so",
        milliseconds=seconds,
        ratio=Ratio.of([1.0] * 9, [seconds] * 9),
        error=error,
    )


def result_of(*entries: RaceEntry) -> RaceResult:
    return RaceResult(entries, "fp32", 1e-2, {"cpu": "a CPU", "threads": "1"}, 1, 1)


def test_the_fastest_within_the_tolerance_is_deployed() -> None:
    wrong, slow, fast = entry("wrong", 0.1, 0.5), entry("slow", 1.0, 0.0), entry("fast", 0.5, 5e-3)
    assert result_of(slow, wrong, fast).best is fast
    assert result_of(wrong).best is None
    assert "deploy none" in str(result_of(wrong))
    with pytest.raises(AccuracyError, match="wrong"):
        result_of(wrong).check()


def test_of_those_equally_fast_the_most_faithful_is_deployed() -> None:
    hint, ours = entry("hint", 0.500, 8e-3), entry("ours", 0.505, 5e-3)
    assert result_of(hint, ours).best is ours
    assert "As fast, within 2 %: hint" in str(result_of(hint, ours))


def test_the_command_line_races(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "net.onnx")
    fp32().export_onnx(path, input_shapes=SHAPES)
    assert main(["race", path, "--runtime", "onnxruntime", "--seconds", "0.1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["entries"][0]["failure"] is None
    assert main(["race", path, path]) == 2
    assert "given twice" in capsys.readouterr().err
    assert main(["race", path, "--python", "openvino"]) == 2
    assert "RUNTIME=PATH" in capsys.readouterr().err
