"""One pass over samples: what is kept, saved, read back and merged."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mxamp
from mxamp.calibration import Calibration, EntryName
from mxamp.errors import DataError, ExportError, MxampWarning
from tests.building import Net
from tests.calibration.models import small_model

mx = pytest.importorskip("mxnet")

Images = NDArray[np.float32]


def assert_same(left: Calibration, right: Calibration) -> None:
    assert left.entries.keys() == right.entries.keys()
    for name, found in left.entries.items():
        other = right.entries[name]
        assert (found.count, found.minimum, found.maximum) == (other.count, other.minimum, other.maximum)
        assert found.mean == pytest.approx(other.mean, abs=1e-6)
    assert left.layers.keys() == right.layers.keys()
    for name, moments in left.layers.items():
        assert moments.rows == right.layers[name].rows
        np.testing.assert_allclose(moments.mean, right.layers[name].mean, atol=1e-6)
        for block, other_block in zip(moments.blocks, right.layers[name].blocks):
            np.testing.assert_allclose(block, other_block, rtol=1e-4, atol=1e-6)


def test_entries_and_moments_are_those_of_the_forward_pass(images: Images) -> None:
    model = small_model()
    found = mxamp.calibrate(model, {"data": images})
    assert {str(name) for name in found.entries} == {"data", "conv0", "bn0", "relu0", "conv1", "pool0", "fc0"}
    weight = model.arg_params["conv0_weight"].values()[:, :, 0, 0]
    conv0 = np.einsum("oc,nchw->nohw", weight, images)
    relu0 = np.maximum(conv0 / np.sqrt(1.001), 0.0)
    seen = found.entries[EntryName("conv0")]
    assert seen.largest == pytest.approx(np.abs(conv0).max(), rel=1e-5)
    assert seen.sample == np.abs(conv0).reshape(12, -1).max(axis=1).argmax()
    assert found.entries[EntryName("relu0")].mean == pytest.approx(relu0.mean(), rel=1e-4)
    rows = images.transpose(0, 2, 3, 1).reshape(-1, 4)
    moments = found.layers["conv0"]
    assert moments.rows == 12 * 64
    np.testing.assert_allclose(moments.blocks[0][0], rows.T @ rows / len(rows), rtol=1e-4, atol=1e-5)
    assert found.layers["conv1"].mean.shape == (4, 9)
    assert found.layers["fc0"].rows == 12
    assert found.samples == 12
    assert not found.unseen


def test_every_kind_of_model_gives_the_same(images: Images, tmp_path: Path) -> None:
    model = small_model()
    whole = mxamp.calibrate(model, images)
    assert_same(whole, mxamp.calibrate(tuple(model), images))
    model.save(tmp_path / "net")
    assert_same(whole, mxamp.calibrate(str(tmp_path / "net"), images))
    block = mx.gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    )
    assert_same(whole, mxamp.calibrate(block, images))


def test_batches_make_no_difference(images: Images) -> None:
    whole = mxamp.calibrate(small_model(), images, positions=5)
    assert_same(whole, mxamp.calibrate(small_model(), images, positions=5, batch_size=1))
    assert_same(whole, mxamp.calibrate(small_model(), [images[:7], images[7:]], positions=5))
    assert whole.layers["conv0"].rows == 12 * 5


def test_merged_calibrations_are_that_of_all_samples(images: Images) -> None:
    model = small_model()
    parts = [mxamp.calibrate(model, part) for part in (images[:5], images[5:])]
    merged = parts[0].merge(parts[1])
    whole = mxamp.calibrate(model, images)
    assert_same(whole, merged)
    assert merged.samples == 12
    for name, found in whole.entries.items():
        assert merged.entries[name].sample == found.sample
    with pytest.raises(DataError, match="same 5 samples"):
        merged.merge(parts[0])
    with pytest.raises(DataError, match="at most 512 positions"):
        merged.merge(mxamp.calibrate(model, images * 2, positions=3))
    other = {**model.args, "conv0_weight": model.args["conv0_weight"] * 2}
    with pytest.raises(DataError, match="different parameters"):
        merged.merge(mxamp.calibrate((model.sym, other, model.auxs), images * 2))


def test_a_file_holds_all_of_it(images: Images, tmp_path: Path) -> None:
    found = mxamp.calibrate(small_model(), images)
    path = tmp_path / "net.calibration"
    found.save(path)
    again = Calibration.load(path)
    assert_same(found, again)
    assert (again.model, again.data, dict(again.entries)) == (found.model, found.data, dict(found.entries))
    assert again.data[0].samples == 12
    found.save(tmp_path / "second")
    assert path.read_bytes() == (tmp_path / "second").read_bytes()
    text = str(again)
    assert "Calibrated with 12 samples of arrays (data 4x8x8)." in text
    assert "conv0" in text


def test_damaged_files_are_told(images: Images, tmp_path: Path) -> None:
    path = tmp_path / "net.calibration"
    mxamp.calibrate(small_model(), images).save(path)
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"PK\x03\x04", whole.replace(b'"rows"', b'"rats"')):
        path.write_bytes(broken)
        with pytest.raises(DataError, match="is no calibration"):
            Calibration.load(path)
    np.savez(tmp_path / "data.npz", data=images)
    with pytest.raises(DataError, match=r"holds no calibration\.json"):
        Calibration.load(tmp_path / "data.npz")
    with pytest.raises(DataError, match="calibration"):
        Calibration.load(tmp_path / "nowhere")
    with pytest.raises(ExportError):
        mxamp.calibrate(small_model(), images).save(tmp_path / "missing" / "x")


def test_second_moments_stay_within_their_memory(images: Images) -> None:
    found = mxamp.calibrate(small_model(), images, memory=600)
    assert found.moment_bytes <= 4 * (16 + 16) * 4 + 4 * 4 * 81
    generous = mxamp.calibrate(small_model(), images)
    assert generous.layers["conv1"].blocks[0].shape == (4, 9, 9)


def test_too_few_samples_are_warned_of(images: Images) -> None:
    with pytest.warns(MxampWarning, match="one sample only"):
        mxamp.calibrate(small_model(), images[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", MxampWarning)
        mxamp.calibrate(small_model(), images)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"positions": 0}, "positions"), ({"batch_size": -1}, "batch size"), ({"progress": 3}, "progress")],
    ids=str,
)
def test_wrong_arguments_are_told(images: Images, given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        mxamp.calibrate(small_model(), images, **given)


def test_progress_is_told(images: Images) -> None:
    seen: list[tuple[int, int | None]] = []
    mxamp.calibrate(small_model(), images, batch_size=5, progress=lambda *given: seen.append(given))
    assert seen == [(5, 12), (10, 12), (12, 12)]


def test_a_model_without_parameters_for_its_layers_says_what_it_does_not_know(images: Images) -> None:
    data, weight = mx.sym.var("data"), mx.sym.var("weight")
    sym = mx.sym.Convolution(data, weight, kernel=(1, 1), num_filter=4, no_bias=True, name="conv")
    with pytest.warns(MxampWarning, match="one sample only"):  # the first axes differ, so it cannot be cut
        found = mxamp.calibrate(
            (sym, {}, {}), {"data": images[:5], "weight": np.ones((4, 4, 1, 1), np.float32)}
        )
    assert found.unseen == {"conv": "its weight is no parameter, or its channels come last"}


@pytest.mark.parametrize("steps", [4, 8])
def test_a_norm_over_the_steps_behind_a_dense_layer_is_no_part_of_it(steps: int) -> None:
    """Gluon's BatchNorm has axis 1, which is not that of the units where nothing was flattened."""
    net = Net()
    weight = net.param("weight", 4, 4)
    layer = net.op("FullyConnected", net.var("data"), weight, num_hidden=4, no_bias=True, flatten=False)
    values = [net.param(name, steps, value=value) for name, value in (("gamma", 1.0), ("beta", 0.0))]
    values += [net.param(name, steps, value=value) for name, value in (("mean", 0.0), ("var", 1.0))]
    graph = net.graph(net.op("BatchNorm", layer, *values, name="norm", outputs=3, fix_gamma=False))
    params = dict(net.params)
    auxs = {name: params.pop(name) for name in ("mean", "var")}
    data = np.random.default_rng(0).standard_normal((3, steps, 4)).astype(np.float32)
    found = mxamp.calibrate((graph, params, auxs), data)
    assert found.prices is not None
    assert all("beta" not in priced for priced in found.prices.parameters.values())
