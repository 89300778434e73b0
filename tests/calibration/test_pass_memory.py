"""Prices are left out where one sample's backward pass does not fit into memory, and that is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxamp
from mxamp.calibration import Calibration, pass_memory
from mxamp.calibration.pass_memory import COPIES_OF_PARAMETERS, COPIES_OF_VALUES, PassMemory
from mxamp.calibration.pricing import price_roundings
from mxamp.calibration.subject import observed_entries
from mxamp.errors import DataError, MemoryBoundError, MxampWarning
from tests.calibration.models import small_model

mx = pytest.importorskip("mxnet")

SHAPE = (4, 8, 8)


def values_of_a_sample() -> int:
    """Return the bytes of the small model's tensors: the input, conv0, bn0, relu0; conv1; pool0; fc0."""
    return 4 * (4 * 4 * 64 + 4 * 36 + 4 + 3)


@pytest.fixture
def images() -> Any:
    return np.random.default_rng(0).standard_normal((4, *SHAPE)).astype(np.float32)


def given(kind: str, folder: Path) -> Any:
    """Return the small model as a value of one kind."""
    model = small_model()
    model.save(folder / "net")
    if kind == "arrays":
        return tuple(model)
    if kind == "prefix":
        return str(folder / "net")
    files = str(folder / "net-symbol.json"), ["data"], str(folder / "net-0000.params")
    return mx.gluon.SymbolBlock.imports(*files) if kind == "block" else model


@pytest.mark.parametrize("kind", ["model", "arrays", "block", "prefix"])
def test_without_enough_memory_a_calibration_has_no_prices_and_says_so(
    kind: str, images: Any, tmp_path: Path
) -> None:
    model = given(kind, tmp_path)
    with pytest.warns(MxampWarning, match=r"no prices of roundings.*up to .* for 1 sample .*were allowed"):
        found = mxamp.calibrate(model, images, prices_memory=20_000)
    assert found.prices is None
    assert found.layers  # all else is there
    found.save(tmp_path / "it.calibration")
    kept = Calibration.load(tmp_path / "it.calibration")
    assert kept.prices is None
    assert "20.0 kB were allowed" in kept.why_unpriced
    assert "20.0 kB were allowed" in " ".join(str(kept).split())
    assert mxamp.calibrate(model, images, prices_memory=10**6).prices is not None


def test_what_a_pass_takes_is_known_before_it_runs(images: Any) -> None:
    model = small_model()
    entries = [mxamp.graph.Entry(model.graph.variables["data"]), *observed_entries(model)]
    one = COPIES_OF_VALUES * values_of_a_sample()
    parameters = COPIES_OF_PARAMETERS * model.parameter_bytes
    shapes = {"data": images.shape}
    assert PassMemory(model, 4 * one + parameters).samples(shapes, entries, None) == 4
    assert PassMemory(model, one + parameters).samples(shapes, entries, 1) == 1
    for wanted, bytes_ in ((1, one + parameters - 1), (4, 4 * one + parameters - 1)):
        with pytest.raises(MemoryBoundError, match=f"for {wanted} sample"):
            PassMemory(model, bytes_).samples(shapes, entries, wanted)
    with pytest.raises(MemoryBoundError, match="the parameters alone"):
        PassMemory(model, parameters - 1)


def test_by_default_it_is_what_is_available(images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_memory, "available_memory", lambda: 10_000)
    with pytest.raises(MemoryBoundError, match="are available"):
        price_roundings(small_model(), images)
    monkeypatch.setattr(pass_memory, "available_memory", lambda: None)  # nothing tells
    assert price_roundings(small_model(), images).samples == 4


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "1GB"])
def test_a_wrong_bound_is_told(wrong: Any, images: Any) -> None:
    with pytest.raises(DataError, match="prices_memory must be"):
        mxamp.calibrate(small_model(), images, prices_memory=wrong)


_RUN = """
import numpy as np

from mxamp.calibration.pass_memory import COPIES_OF_VALUES
from mxamp.calibration.pricing import price_roundings
from mxamp.runtime.shapes import infer_shapes
from tests.calibration.models import deep_model


def peak():
    # Not getrusage's, in which a process starts with what the one had that started it.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) << 10


model = deep_model()
small, large = (np.ones((1, 4, size, size), np.float32) for size in (8, 128))
price_roundings(model, small, draws=1)
before = peak()
price_roundings(model, large, draws=2)
taken = peak() - before
shapes = infer_shapes(model.graph, {"data": large.shape}, {**model.arg_params, **model.aux_params})
values = sum(
    4 * np.prod(outputs[0]) for node, outputs in zip(model.graph.nodes, shapes) if not node.is_variable
)
print(taken / (COPIES_OF_VALUES * (values + large.nbytes)))
"""


def test_a_pass_takes_about_as_much_as_was_said() -> None:
    """Measured apart, since memory that a process took once it does not take again."""
    ran = subprocess.run([sys.executable, "-c", _RUN], capture_output=True, text=True, check=True)
    assert 0.5 < float(ran.stdout.split()[-1]) <= 1.0
