"""Data that a model is calibrated or judged with: any kind of it, checked, batch after batch."""

from __future__ import annotations

import functools
import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.compare.data_files import load_data
from mxamp.compare.inputs import Inputs, counted, fitted_arrays, input_names, with_labels
from mxamp.errors import DataError
from mxamp.files.digest import new_digest
from mxamp.messages.arguments import path_fault
from mxamp.model import Model

DEFAULT_BATCH_SIZE = 8
"""Samples that arrays are cut into, where nobody says otherwise."""

_LABEL_NAMES = ("label", "labels", "target", "targets")
"""What arrays with labels are called in files, where no input is called so."""

_KINDS = (
    "a mapping from input names to arrays, an array, an .npz or .npy file, a folder of them, a Gluon "
    "DataLoader, a DataIter, an iterable of batches, or a function that returns one"
)


@dataclass(frozen=True)
class Batch:
    """Some samples, checked against a model's inputs.

    Attributes
    ----------
    arrays
        Input name -> values, the samples along the first axis of each where ``batched``.
    samples
        How many samples they are.
    first
        How many samples came before.
    labels
        The labels, one a sample, as they came; None where there are none.
    batched
        Whether it may be cut.
    """

    arrays: Mapping[str, NDArray[Any]]
    samples: int
    first: int
    labels: NDArray[Any] | None = None
    batched: bool = True

    def parts(self, size: int) -> Iterator[Batch]:
        """Yield the batch in parts of at most ``size`` samples; whole where it cannot be cut."""
        if not self.batched or self.samples <= size:
            yield self
            return
        for start in range(0, self.samples, size):
            stop = min(start + size, self.samples)
            yield Batch(
                {name: values[start:stop] for name, values in self.arrays.items()},
                stop - start,
                self.first + start,
                None if self.labels is None else self.labels[start:stop],
            )


@dataclass(frozen=True)
class DataDescription:
    """What samples were, for whoever reads a result of theirs.

    Attributes
    ----------
    source
        Where they came from: ``"arrays"``, the name of a file or folder, or the class of an object.
    samples
        How many were used.
    digest
        The hash of their values, batch after batch.
    shapes
        Input name -> the shape of the first batch.
    """

    source: str
    samples: int
    digest: str
    shapes: Mapping[str, tuple[int, ...]]


class Samples:
    """Samples for a model, one batch after another, each checked when it comes.

    Parameters
    ----------
    model
        The FP32 model.
    data
        A mapping from input names to arrays of samples (NumPy or NDArray), or one array for a model with one
        input; the path of an ``.npz`` or ``.npy`` file, or of a folder of them, each a batch; a Gluon
        ``DataLoader``, a ``DataIter``, or any iterable of batches: arrays, mappings, or tuples of the inputs'
        arrays in the order in which the model takes them, labels last where there are any; or a function that
        returns such an iterable. An iterator can be gone through once only.
    labels
        The labels of a mapping or an array: an array with one a sample. By default the array of a mapping
        that is called ``label``, ``labels``, ``target`` or ``targets`` and is no input.
    needs_labels
        Whether samples without labels are an error.
    batch_size
        Samples a batch, for arrays; 8 by default. Batches that come as batches are left as they are.
    max_samples
        Use only so many samples, the first ones.

    Raises
    ------
    DataError
        When ``data`` is of another kind, or the model has no inputs.
    """

    def __init__(
        self,
        model: Model,
        data: Any,
        *,
        labels: Any = None,
        needs_labels: bool = False,
        batch_size: int | None = None,
        max_samples: int | None = None,
    ) -> None:
        self._model = model
        self._names = input_names(model)
        self._labels = None if labels is None else _as_labels(labels)
        self._needs_labels = needs_labels
        self._size = DEFAULT_BATCH_SIZE if batch_size is None else counted(batch_size, "The batch size")
        self._limit = None if max_samples is None else counted(max_samples, "The number of samples")
        self._source, self._read, self.total = _reader(data)
        """How many samples there are, where that is known before they are read."""
        if self.total is not None and self._limit is not None:
            self.total = min(self.total, self._limit)
        self._watch = _Watch()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of the samples that came last; complete when all have come."""
        return tuple(dict.fromkeys([*self._watch.notes, *self._watch.doubts()]))

    @property
    def description(self) -> DataDescription:
        """What the samples were that came last."""
        return self._watch.description(self._source)

    def batches(self) -> Iterator[Batch]:
        """Yield all batches, from the first.

        Raises
        ------
        DataError
            When a batch does not fit the model, holds NaN or an infinity, has no labels that are needed or
            others than it has samples; when there is none at all; when an iterator is used up.
        """
        watch = self._watch = _Watch()
        items = self._read()
        if not hasattr(items, "__iter__"):
            raise DataError(
                f"The function {self._source} returned {items!r:.80}, and no batches to go through."
            )
        try:
            iterator = iter(items)
        except Exception as error:  # whatever an object of the user's raises, there is nothing to go through
            reason = f"{type(error).__name__}: {error}"
            raise DataError(f"The data ({self._source}) cannot be gone through: {reason:.200}.") from error
        for number, item in enumerate(iterator):
            for batch in self._fitted(item, watch, f"batch {number}"):
                yield batch
                if self._limit is not None and watch.samples >= self._limit:
                    return
        if not watch.samples:
            raise DataError(f"The data ({self._source}) hold no samples; give at least one.")

    # ------------------------------------------------------------------ one item of the source

    def _fitted(self, item: Any, watch: _Watch, place: str) -> Iterator[Batch]:
        given, labels = self._without_labels(item, place)
        try:
            arrays, notes = fitted_arrays(self._model, given)
        except DataError as error:
            raise DataError(f"{error} (In {self._source}, {place}.)") from None
        watch.notes += notes
        inputs = with_labels(self._model, arrays, ())
        watch.notes += inputs.notes
        self._check_labels(inputs, labels, place)
        whole = isinstance(item, _Whole)
        size = self._size if whole and inputs.batched else inputs.samples
        left = inputs.samples
        if self._limit is not None:
            left = min(left, self._limit - watch.samples)
        for start in range(0, left, size):
            stop = min(start + size, left)
            cut = inputs.batched and (start > 0 or stop < inputs.samples)
            part = {name: values[start:stop] if cut else values for name, values in inputs.arrays.items()}
            if not inputs.batched:
                stop = start + inputs.samples
            _check_finite(self._names, part, self._source, watch.samples)
            of_part = None if labels is None else labels[start:stop]
            batch = Batch(part, stop - start, watch.samples, of_part, inputs.batched)
            watch.see({name: part[name] for name in self._names}, batch.samples)
            yield batch

    def _without_labels(self, item: Any, place: str) -> tuple[Any, NDArray[Any] | None]:
        """Return what of an item is for the inputs, and its labels."""
        if isinstance(item, _Whole):
            given, found = without_labels(item.data, self._names)
            labels = self._labels if found is None or self._labels is not None else _as_labels(found)
            return given, labels
        if isinstance(item, Mapping):
            return self._without_labels(_Whole(item), place)
        if hasattr(item, "data") and hasattr(item, "label") and hasattr(item, "pad"):  # a DataBatch
            return self._of_data_batch(item, place)
        if isinstance(item, (tuple, list)):
            wanted = len(self._names)
            if len(item) not in (wanted, wanted + 1):
                raise DataError(
                    f"The item {place} of {self._source} has {len(item)} parts, but the model takes {wanted} "
                    f"({', '.join(self._names)}), and may be followed by labels."
                )
            labels = _as_labels(item[wanted]) if len(item) > wanted else None
            return dict(zip(self._names, item)), labels
        return item, None

    def _of_data_batch(self, item: Any, place: str) -> tuple[Any, NDArray[Any] | None]:
        data, labels = list(item.data or ()), list(item.label or ())
        if len(data) != len(self._names):
            raise DataError(
                f"The item {place} of {self._source} has {len(data)} arrays, but the model takes "
                f"{len(self._names)}: {', '.join(self._names)}."
            )
        real = -int(item.pad or 0) or None  # what fills up the last batch comes from the first
        found = {name: values[:real] for name, values in zip(self._names, data)}
        return found, _as_labels(labels[0])[:real] if labels else None

    def _check_labels(self, inputs: Inputs, labels: NDArray[Any] | None, place: str) -> None:
        if labels is None:
            if self._needs_labels:
                raise DataError(
                    f"There are no labels in {self._source}, {place}, and they are needed: give an array "
                    "'label' in the file or mapping, tuples (data, label), or labels=."
                )
            return
        if len(labels) != inputs.samples:
            raise DataError(
                f"There are {len(labels)} labels for {inputs.samples} samples in {self._source}, {place}. "
                "One belongs to each sample."
            )


@dataclass(frozen=True)
class _Whole:
    """All samples at once, to be cut into batches."""

    data: Any


class _Watch:
    """What was seen of the samples of one pass."""

    def __init__(self) -> None:
        self.samples = 0
        self.notes: list[str] = []
        self._digest = new_digest()
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._first: dict[str, NDArray[Any]] = {}
        self._is_same: dict[str, bool] = {}

    def see(self, arrays: Mapping[str, NDArray[Any]], samples: int) -> None:
        self.samples += samples
        for name, values in arrays.items():
            self._digest.update(np.ascontiguousarray(values).view(np.uint8).reshape(-1).data)
            if name not in self._first:
                self._shapes[name] = tuple(values.shape)
                self._first[name] = values[:1].copy()
                self._is_same[name] = True
            if self._is_same[name]:
                same = values.shape[1:] == self._first[name].shape[1:]
                self._is_same[name] = same and bool((values == self._first[name]).all())

    def doubts(self) -> list[str]:
        """Say why the samples may tell little."""
        if self.samples == 1:
            return [
                "There is one sample only: what is measured with it may hold for no other. Some tens of "
                "different ones, as the model meets them in use, are enough."
            ]
        found = []
        for name, same in self._is_same.items():
            first = self._first[name]
            if same and first.size and bool((first == first.flat[0]).all()):
                found.append(
                    f"The input {name!r} holds the number {first.flat[0]} everywhere, in all samples; what "
                    "is measured with it holds for that alone."
                )
            elif same and len(self._is_same) == 1:
                found.append(f"All {self.samples} samples are the same, and so tell as much as one.")
        return found

    def description(self, source: str) -> DataDescription:
        return DataDescription(source, self.samples, self._digest.hexdigest(), dict(self._shapes))


def without_labels(data: Any, names: Sequence[str]) -> tuple[Any, Any]:
    """Return data without the array that is no input and is called like labels, and that; None without one.

    Parameters
    ----------
    data
        A mapping from names to arrays; anything else has no labels.
    names
        The model's inputs.
    """
    if isinstance(data, Mapping):
        for label in _LABEL_NAMES:
            if label in data and label not in names:
                return {name: value for name, value in data.items() if name != label}, data[label]
    return data, None


# ---------------------------------------------------------------------- kinds of data


def _reader(data: Any) -> tuple[str, Callable[[], Iterable[Any]], int | None]:
    """Return what the data are called, a function that goes through them, and their number if known."""
    if data is None:
        raise DataError(f"No data were given. Give {_KINDS}.")
    if isinstance(data, (str, os.PathLike)):
        return _file_reader(Path(data))
    if isinstance(data, Mapping) or hasattr(data, "asnumpy") or isinstance(data, np.ndarray):
        return "arrays", lambda: [_Whole(data)], _count(data)
    name = type(data).__name__
    if hasattr(data, "reset") and hasattr(data, "provide_data"):

        def from_the_start() -> Iterator[Any]:
            data.reset()
            yield from data

        return name, from_the_start, None
    if hasattr(data, "__next__"):
        return name, _once(data), None
    if hasattr(data, "__iter__"):
        return name, lambda: data, None
    if inspect.isroutine(data) or isinstance(data, functools.partial):  # a block can be called, too
        return getattr(data, "__name__", name), data, None
    raise DataError(f"{name} is no data. Give {_KINDS}.")


def _once(iterator: Iterator[Any]) -> Callable[[], Iterator[Any]]:
    waiting = [iterator]

    def take() -> Iterator[Any]:
        if not waiting:
            raise DataError(
                "The data are an iterator that is used up, and they are needed a second time. Give a list, a "
                "DataLoader, or a function that returns the iterator."
            )
        return waiting.pop()

    return take


def _file_reader(path: Path) -> tuple[str, Callable[[], Iterable[Any]], int | None]:
    fault = path_fault(path)
    if fault is not None:
        raise DataError(f"{fault}. Give the path of a .npz or .npy file, or of a folder of them.")
    if not path.is_dir():
        loaded = load_data(path)
        return path.name, lambda: [_Whole(loaded)], _count(loaded)
    files = sorted(file for file in path.iterdir() if file.suffix in (".npz", ".npy"))
    if not files:
        raise DataError(
            f"The folder {str(path)!r} holds no .npz or .npy files. Each is a batch: an array for each "
            "input, with the samples along the first axis."
        )

    def read() -> Iterator[Any]:
        for file in files:
            loaded = load_data(file)
            yield _Whole(loaded) if isinstance(loaded, dict) else loaded

    return f"{path.name}/", read, None


def _count(data: Any) -> int | None:
    """Return how many samples arrays hold, where they agree; whatever is wrong with them shows later."""
    values = list(data.values()) if isinstance(data, Mapping) else [data]
    lengths = {len(array) for array in values if getattr(array, "shape", ())}
    return lengths.pop() if len(lengths) == 1 else None


def _as_labels(given: Any) -> NDArray[Any]:
    try:
        labels = given.asnumpy() if hasattr(given, "asnumpy") else np.asarray(given)
    except (ValueError, TypeError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"The labels are no array: {str(error).strip()[:120]}.") from error
    if labels.ndim == 0:
        raise DataError("The labels are a single number; give an array with one a sample.")
    found: NDArray[Any] = labels
    return found


def _check_finite(names: Sequence[str], arrays: Mapping[str, NDArray[Any]], source: str, first: int) -> None:
    for name in names:
        values = arrays[name]
        if values.dtype.kind not in "fV":  # integers are finite
            continue
        rows = values.astype(np.float32, copy=False).reshape(len(values), -1)
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if bad.size:
            what = "NaN" if np.isnan(rows[bad[0]]).any() else "an infinity"
            raise DataError(
                f"The input {name!r} holds {what} in sample {first + int(bad[0])} of {source}. Nothing can "
                "be measured with it: mend or leave out the sample."
            )
