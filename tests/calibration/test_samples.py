"""Every kind of data comes as the same checked batches, and what is wrong with it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mxamp.calibration import Samples
from mxamp.errors import DataError
from mxamp.model import Model
from tests.building import Net, parameters
from tests.calibration.models import small_model

Images = NDArray[np.float32]


def fed(samples: Samples) -> Images:
    return np.concatenate([batch.arrays["data"] for batch in samples.batches()])


class DataIterator:
    """What `mx.io.DataIter` has, without MXNet."""

    provide_data = ()

    def __init__(self, images: Images, labels: NDArray[Any], pad: int) -> None:
        self.images, self.labels, self.pad, self.resets = images, labels, pad, 0

    def reset(self) -> None:
        self.resets += 1

    def __iter__(self) -> Any:
        class Batch:
            data = (self.images,)
            label = (self.labels,)
            pad = self.pad

        return iter([Batch()])


def test_every_kind_of_data_gives_the_same_samples(images: Images, tmp_path: Path) -> None:
    model, labels = small_model(), np.arange(12)
    np.savez(tmp_path / "all.npz", data=images, label=labels)
    np.save(tmp_path / "all.npy", images)
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(3):
        np.savez(folder / f"{number}.npz", data=images[4 * number : 4 * number + 4])
    halves = [images[:6], images[6:]]
    kinds: dict[str, Any] = {
        "mapping": {"data": images, "label": labels},
        "array": images,
        "npz": tmp_path / "all.npz",
        "npy": str(tmp_path / "all.npy"),
        "folder": folder,
        "list of batches": halves,
        "list of mappings": [{"data": half} for half in halves],
        "list with labels": [(half, labels[:6]) for half in halves],
        "generator": (half for half in halves),
        "function": lambda: iter(halves),
        "iterator that pads": DataIterator(np.concatenate([images, images[:2]]), np.arange(14), 2),
    }
    for kind, data in kinds.items():
        samples = Samples(model, data)
        np.testing.assert_array_equal(fed(samples), images, err_msg=kind)
        assert samples.description.samples == 12, kind
        assert samples.notes == (), kind


def test_gluon_loaders_and_mxnet_iterators(images: Images) -> None:
    mx = pytest.importorskip("mxnet")
    model = small_model()
    dataset = mx.gluon.data.ArrayDataset(images, np.arange(12, dtype=np.float32))
    loader = mx.gluon.data.DataLoader(dataset, batch_size=5)
    iterator = mx.io.NDArrayIter(images, np.arange(12), batch_size=5)
    for data in (loader, iterator):
        samples = Samples(model, data, needs_labels=True)
        for _ in range(2):  # both can be gone through again
            np.testing.assert_array_equal(fed(samples), images)
        found = np.concatenate([batch.labels for batch in samples.batches() if batch.labels is not None])
        np.testing.assert_array_equal(found, np.arange(12))


def test_batches_are_cut_and_limited(images: Images) -> None:
    batches = list(Samples(small_model(), images, batch_size=5, max_samples=7).batches())
    assert [(batch.first, batch.samples) for batch in batches] == [(0, 5), (5, 2)]
    assert [part.samples for part in batches[0].parts(2)] == [2, 2, 1]
    assert [part.first for part in batches[1].parts(1)] == [5, 6]


def test_labels_go_with_their_samples(images: Images) -> None:
    samples = Samples(small_model(), images, labels=np.arange(12), batch_size=8)
    found = [batch.labels for batch in samples.batches()]
    np.testing.assert_array_equal(
        np.concatenate([labels for labels in found if labels is not None]), range(12)
    )


def test_missing_and_misaligned_labels_are_errors(images: Images) -> None:
    model = small_model()
    with pytest.raises(DataError, match="no labels in arrays, batch 0, and they are needed"):
        list(Samples(model, images, needs_labels=True).batches())
    with pytest.raises(DataError, match="11 labels for 12 samples"):
        list(Samples(model, images, labels=np.arange(11)).batches())


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (np.inf, "an infinity")])
def test_a_sample_with_nan_is_named(images: Images, value: float, what: str) -> None:
    images[9, 0, 0, 0] = value
    with pytest.raises(DataError, match=rf"'data' holds {what} in sample 9 of arrays"):
        fed(Samples(small_model(), images, batch_size=4))


def test_a_wrong_shape_is_told_with_its_place(images: Images) -> None:
    with pytest.raises(DataError, match=r"the model takes \(samples, 4, \?, \?\).*In list, batch 1"):
        fed(Samples(small_model(), [images, images[:, :3]]))


@pytest.mark.parametrize("data", [None, 3, object()], ids=["None", "3", "object"])
def test_what_is_no_data_is_refused(data: Any) -> None:
    with pytest.raises(DataError, match="Give a mapping"):
        Samples(small_model(), data)


def test_empty_data_are_errors(images: Images, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="hold no samples"):
        fed(Samples(small_model(), []))
    with pytest.raises(DataError, match=r"holds no \.npz or \.npy files"):
        Samples(small_model(), tmp_path)
    with pytest.raises(DataError, match="has 3 parts, but the model takes 1"):
        fed(Samples(small_model(), [(images, images, images)]))


def test_an_iterator_is_used_up_after_one_pass(images: Images) -> None:
    samples = Samples(small_model(), iter([images]))
    fed(samples)
    with pytest.raises(DataError, match="an iterator that is used up"):
        fed(samples)


def test_samples_that_tell_little_are_noted(images: Images) -> None:
    model = small_model()

    def notes(data: Any) -> str:
        samples = Samples(model, data)
        fed(samples)
        return " ".join(samples.notes)

    assert "one sample only" in notes(images[:1])
    assert "All 3 samples are the same" in notes(np.repeat(images[:1], 3, axis=0))
    assert "holds the number 0.5 everywhere" in notes(np.full_like(images, 0.5))
    assert "was cast to float32, not scaled" in notes((images * 10).astype(np.int8))


def test_inputs_that_cannot_be_cut_are_one_batch(images: Images) -> None:
    net = Net()
    graph = net.graph(net.op("broadcast_add", net.var("data"), net.var("shift"), name="sum"))
    model = Model(graph, parameters({}), parameters({}))
    (batch,) = Samples(model, {"data": images, "shift": images[:1]}, batch_size=2).batches()
    assert not batch.batched
    assert list(batch.parts(1)) == [batch]
