"""Read intermediate entries of a model, as the graph defines them: with fusion off."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.graph.graph import Entry
from mxamp.model import Model
from mxamp.runtime.executor import BoundModel, as_numpy

ENTRY_BYTES = 256 << 20
"""The most bytes of intermediate tensors to hold at a time, per model."""

_UNKNOWN_A_CHUNK = 32
"""The most entries to read together where their shapes, and so their bytes, are not known."""


class EntryReader:
    """Reads the same entries of a model for one batch after another.

    Parameters
    ----------
    model
        The model.
    entries
        What to read, of ``model.graph``.
    ctx
        See :class:`mxamp.runtime.executor.BoundModel`.
    max_bytes
        The most to hold at a time, counted as float32; more entries take another forward pass.
    label
        What messages call the model.
    """

    def __init__(
        self,
        model: Model,
        entries: Sequence[Entry],
        *,
        ctx: Any = None,
        max_bytes: int = ENTRY_BYTES,
        label: str = "the model",
    ) -> None:
        self._model, self._entries, self._ctx = model, tuple(entries), ctx
        self._max_bytes, self._label = max_bytes, label
        self._whole = self._bound(self._entries)
        self._parts: dict[tuple[tuple[int, ...], ...], list[tuple[Sequence[Entry], BoundModel]]] = {}

    def _bound(self, entries: Sequence[Entry]) -> BoundModel:
        return BoundModel(self._model, ctx=self._ctx, fusion=False, entries=entries, label=self._label)

    def bytes_of(self, data: Mapping[str, NDArray[Any]]) -> int:
        """Return how many bytes the entries take for such data, as float32, as far as shapes are known."""
        shapes = self._whole.output_shapes(data)
        return sum(4 * int(np.prod(shape, dtype=np.int64)) for shape in shapes if shape is not None)

    def read(self, data: Mapping[str, NDArray[Any]]) -> Iterator[tuple[Entry, NDArray[Any]]]:
        """Yield the entries of one batch, in their order.

        Parameters
        ----------
        data
            Input name -> values.

        Raises
        ------
        DataError, OperatorError
            When the data do not fit, or an operator fails.
        """
        for entries, bound in self._chunks(data):
            bound.load(data)
            for entry, output in zip(entries, bound.forward()):
                yield entry, as_numpy(output)

    def _chunks(self, data: Mapping[str, NDArray[Any]]) -> list[tuple[Sequence[Entry], BoundModel]]:
        key = tuple(values.shape for values in data.values())
        if key not in self._parts:
            divided = _divided(self._entries, self._whole.output_shapes(data), self._max_bytes)
            self._parts = {  # those for other shapes would only hold memory
                key: [
                    (entries, self._whole if len(divided) == 1 else self._bound(entries))
                    for entries in divided
                ]
            }
        return self._parts[key]


def run_entries(
    model: Model,
    data: Mapping[str, NDArray[Any]],
    entries: Sequence[Entry],
    *,
    ctx: Any = None,
    max_bytes: int = ENTRY_BYTES,
    label: str = "the model",
) -> Iterator[tuple[Entry, NDArray[Any]]]:
    """Yield intermediate entries of one batch, fusion off.

    Parameters
    ----------
    model, entries, ctx, max_bytes, label
        See :class:`EntryReader`.
    data
        Input name -> values: one batch.

    Yields
    ------
    tuple of (Entry, numpy.ndarray)
        In the order of ``entries``.
    """
    if entries:
        yield from EntryReader(model, entries, ctx=ctx, max_bytes=max_bytes, label=label).read(data)


def _divided(
    entries: Sequence[Entry], shapes: Sequence[tuple[int, ...] | None], max_bytes: int
) -> list[Sequence[Entry]]:
    chunks: list[Sequence[Entry]] = []
    chunk: list[Entry] = []
    held = 0
    for entry, shape in zip(entries, shapes):
        size = max_bytes // _UNKNOWN_A_CHUNK if shape is None else 4 * int(np.prod(shape, dtype=np.int64))
        if chunk and held + size > max_bytes:
            chunks.append(chunk)
            chunk, held = [], 0
        chunk.append(entry)
        held += size
    return [*chunks, chunk]
