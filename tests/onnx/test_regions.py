"""ROIAlign: a region of no image is zeros, in the file and in what it is held against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install '.[onnx]'")
pytest.importorskip("mxnet", reason="MXNet is what the results are compared with")

from mxamp.export import defined_reference, verify_onnx
from mxamp.model import Model
from mxamp.onnx import OnnxSession
from mxamp.runtime.executor import run_outputs
from tests.onnx.operators import case, graph_of_case

GENERATOR = np.random.default_rng(11)
DATA = (1 + GENERATOR.random((2, 3, 16, 20))).astype(np.float32)
BOXES = np.array([[2, 3, 40, 50], [1, 1, 30, 30], [8, 4, 70, 60], [5, 6, 25, 40], [0, 0, 20, 20]], np.float32)
IMAGES = np.array([[0], [-1], [1], [-1], [-0.5]], np.float32)
OF_NO_IMAGE = [1, 3]
INPUTS = {"in0": DATA, "in1": np.concatenate([IMAGES, BOXES], axis=1)}
SHAPES = {name: values.shape for name, values in INPUTS.items()}


def pooling(*, aligned: bool) -> Model:
    attrs = {"pooled_size": "(3, 2)", "spatial_scale": "0.25", "sample_ratio": "2", "aligned": str(aligned)}
    return Model(graph_of_case(case("_contrib_ROIAlign", *INPUTS.values(), **attrs)), {}, {})


def expected(model: Model) -> Any:
    """Return what MXNet pools from regions that all have an image, and zeros for those that have none."""
    rois = INPUTS["in1"].copy()
    rois[:, 0] = np.maximum(rois[:, 0], 0)
    (values,) = run_outputs(model, {**INPUTS, "in1": rois}, fusion=False)
    assert (values > 0).all()
    values[OF_NO_IMAGE] = 0
    return values


@pytest.mark.parametrize("aligned", [False, True])
def test_a_region_of_no_image_is_exported_as_zeros(aligned: bool, tmp_path: Path) -> None:
    model = pooling(aligned=aligned)
    model.export_onnx(tmp_path / "n.onnx", input_shapes=SHAPES)
    (found,) = OnnxSession(tmp_path / "n.onnx").run(INPUTS)
    assert (found[OF_NO_IMAGE] == 0).all()
    assert np.allclose(found, expected(model), rtol=5e-6, atol=0)


@pytest.mark.parametrize("aligned", [False, True])
def test_the_reference_pools_zeros_from_no_image_and_the_same_from_all_others(aligned: bool) -> None:
    model = pooling(aligned=aligned)
    (found,) = run_outputs(defined_reference(model), INPUTS, fusion=False)
    assert (found == expected(model)).all()


def test_the_reference_keeps_inputs_and_names_of_outputs() -> None:
    model = pooling(aligned=False)
    reference = defined_reference(model)
    assert sorted(reference.sym.list_arguments()) == sorted(model.sym.list_arguments())
    assert list(reference.sym.list_outputs()) == list(model.sym.list_outputs())


def test_a_model_without_the_operator_is_its_own_reference() -> None:
    model = Model(graph_of_case(case("relu", (2, 3))), {}, {})
    assert defined_reference(model) is model


def test_verifying_holds_the_file_against_the_defined_reference(tmp_path: Path) -> None:
    model = pooling(aligned=False)
    model.export_onnx(tmp_path / "n.onnx", input_shapes=SHAPES)
    (difference,) = verify_onnx(tmp_path / "n.onnx", model, INPUTS)
    assert difference.error < 1e-6
