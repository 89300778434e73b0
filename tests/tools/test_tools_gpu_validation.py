"""``make gpu-validation``: a folder is made and measured, here on a CPU, where the tool says so."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.machine import ROOT

MEASURE = ROOT / "tools" / "gpu_validation" / "measure.py"


def measure_module() -> Any:
    specification = importlib.util.spec_from_file_location("measure", MEASURE)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, Path]:
    for package in ("onnx", "onnxruntime", "mxnet", "gluoncv"):
        pytest.importorskip(package)
    from tools.gpu_validation.export import main

    folder = tmp_path_factory.mktemp("gpu")
    assert main([str(folder), "lenet", "cifar_resnet20_v1", "--batches", "1", "2"]) == 0
    command = [sys.executable, "-W", "ignore", str(folder / "measure.py"), "--device", "cpu"]
    done = subprocess.run(
        [*command, "--rounds", "2", "--seconds", "0.01"], capture_output=True, text=True, check=True, cwd="/"
    )
    return json.loads((folder / "results.json").read_text("utf-8")), done.stdout, folder


def test_every_model_and_batch_is_measured_in_fp32_and_fp16(measured: Any) -> None:
    results, _, _ = measured
    assert [model["name"] for model in results["models"]] == ["lenet", "cifar_resnet20_v1"]
    for model in results["models"]:
        assert [row["batch"] for row in model["rows"]] == [1, 2]
        for row in model["rows"]:
            # No TF32 on a CPU, and ONNX Runtime's has no bfloat16.
            assert list(row["variants"]) == ["FP32", "FP16", "FP16 for CUDA", "BF16 for CUDA"]
            assert "NOT_IMPLEMENTED" in row["variants"].pop("BF16 for CUDA")["problem"]
            for entry in row["variants"].values():
                assert entry["finite"]
                assert entry["milliseconds"] > 0
                assert len(entry["rounds"]) == 2


def test_errors_are_those_of_fp16_and_fp32_is_the_reference(measured: Any) -> None:
    for model in measured[0]["models"]:
        variants = model["rows"][0]["variants"]
        assert variants["FP32"]["error"] < 1e-5
        assert 1e-5 < variants["FP16"]["error"] < 1e-2
        emulated = model["emulated_error"]
        assert 1e-5 < emulated["FP16"] < 1e-3 < emulated["BF16 for CUDA"] < 1e-2


def test_without_a_gpu_it_says_so_everywhere(measured: Any) -> None:
    _, said, folder = measured
    assert said.startswith("NO GPU")
    assert "NO GPU" in (folder / "results.md").read_text("utf-8").splitlines()[0]


def test_the_table_has_a_line_for_every_variant_and_the_plot_is_drawn(measured: Any) -> None:
    pytest.importorskip("matplotlib")
    _, said, folder = measured
    assert said.count("| lenet | 1 |") == 4
    assert "casts |" in said
    assert (folder / "results.png").read_bytes()[1:4] == b"PNG"


def test_files_that_are_made_of_seeds_elsewhere_are_those_of_here(measured: Any, tmp_path: Path) -> None:
    from tools.gpu_validation.export import main

    assert main([str(tmp_path), "lenet", "--batches", "1", "2", "--seeds"]) == 0
    assert not list(tmp_path.glob("*/*.onnx"))
    refused = subprocess.run(
        [sys.executable, str(tmp_path / "measure.py")], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "tools.gpu_validation.fill" in refused.stderr
    without_mxnet = (
        "import sys; sys.modules['mxnet'] = None; from tools.gpu_validation.fill import fill_folder"
    )
    fill = f"{without_mxnet}; from pathlib import Path; fill_folder(Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-W", "ignore", "-c", fill], check=True, cwd=ROOT)
    for name in ("fp32.onnx", "fp16.onnx", "fp16-for-cuda.onnx", "bf16-for-cuda.onnx"):
        assert (tmp_path / "lenet" / name).read_bytes() == (measured[2] / "lenet" / name).read_bytes()


def test_files_of_other_converters_are_not_made_of_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mxnet")
    from tools.gpu_validation.export import main

    with pytest.raises(SystemExit):
        main(["folder", "--seeds", "--peers"])
    assert "--peers needs files" in capsys.readouterr().err


def test_measuring_needs_nothing_of_this_repository() -> None:
    text = MEASURE.read_text("utf-8")
    for package in ("mxamp", "mxnet", "model_zoo_eval", "tools"):
        assert f"import {package}" not in text
        assert f"from {package}" not in text


def test_variants_take_turns() -> None:
    order: list[str] = []
    module = measure_module()
    prepared = {name: lambda name=name: order.append(name) for name in ("FP32", "FP16")}
    times = module.turns(prepared, rounds=3, seconds=0)
    assert [len(each) for each in times.values()] == [3, 3]
    assert order[-6:] == ["FP32", "FP16"] * 3


def test_an_output_of_another_shape_is_infinitely_wrong() -> None:
    module = measure_module()
    assert module.relative_error(np.zeros((1, 2)), np.zeros((2, 1))) == float("inf")
    assert module.relative_error(np.array([1.0, np.inf]), np.array([1.0, np.inf])) == 0


def test_a_name_that_the_folder_does_not_have_is_an_error(measured: Any) -> None:
    folder = measured[2]
    command = [sys.executable, str(folder / "measure.py"), "resnet50_v1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no resnet50_v1" in done.stderr


def test_a_gpu_that_is_asked_for_and_not_there_is_an_error(measured: Any) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("a GPU's provider is installed here")
    command = [
        sys.executable,
        str(measured[2] / "measure.py"),
        "--device",
        "cuda",
        "--runtime",
        "onnxruntime",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No runtime here sees a GPU" in done.stderr
