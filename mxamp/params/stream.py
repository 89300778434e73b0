"""Write parameters one part after the other: a file of any size, in the memory of a few parts."""

from __future__ import annotations

import contextlib
import io
import math
import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, BinaryIO, Callable, Iterable, Iterator, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.params.format import ARG_PREFIX, AUX_PREFIX
from mxamp.params.not_finite import is_finite
from mxamp.params.parameter import PART, Parameter
from mxamp.params.postponed import CastLoss, PostponedCast
from mxamp.params.sparse import SparseParameter, SparseTensor
from mxamp.params.writer import ParamsEncoder

Progress = Callable[[int, int], None]
"""``progress(done, total)``, in bytes written."""

_READ_AHEAD = 2
"""Parts in memory: one is cast and written while the next is read."""

_CAST_AHEAD = 2
"""Parts of what is written in memory: one is written and hashed while the next is cast."""

SYNC_EVERY = 64 << 20
"""Bytes after which the disk is told to begin writing: otherwise all of it waits for the end."""


class Streamed(NamedTuple):
    """What was seen of the values that were written.

    Attributes
    ----------
    may_have_lost
        Whether a postponed cast showed that values may be out of range, see
        :func:`mxamp.params.postponed.may_have_lost_range`.
    not_finite
        The parameters that were copied from disk as they are and hold NaN or infinity, by bare name.
    """

    may_have_lost: bool
    not_finite: tuple[str, ...]


def stream_params(
    file: BinaryIO,
    args: Mapping[str, Parameter],
    auxs: Mapping[str, Parameter],
    *,
    numpy_shapes: bool = False,
    progress: Progress | None = None,
) -> Streamed:
    """Write parameters to an open binary file; those on disk are read and cast part by part.

    Parameters
    ----------
    file
        Where to write; it stays open.
    args, auxs
        Arguments and auxiliary states by bare name.
    numpy_shapes
        Write for NumPy shape semantics, see :class:`mxamp.params.ParamsEncoder`.
    progress
        Called now and then with the bytes of tensors written so far and in all.

    Returns
    -------
    Streamed
        What was seen in passing. The file is complete in any case.

    Raises
    ------
    ParamsError
        When a name or a value cannot be stored, or a file that values come from was changed; part of the list
        is written then.
    """
    named = [(ARG_PREFIX, name, value) for name, value in args.items()]
    named += [(AUX_PREFIX, name, value) for name, value in auxs.items()]
    total = sum(_nbytes(value) for _, _, value in named)
    encoder = ParamsEncoder(file, len(named), numpy_shapes=numpy_shapes)
    may_have_lost = False
    dubious: list[str] = []
    done = 0
    with _Syncing(file, total) as syncing, _read_ahead([value for _, _, value in named]) as sources:

        def note(count: int) -> None:
            nonlocal done
            done += count
            syncing.written(count)
            if progress is not None:
                progress(done, total)

        def noted(blocks: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
            for block in blocks:
                yield block
                note(block.nbytes)

        for prefix, name, value in named:
            if isinstance(value, PostponedCast):
                loss = CastLoss()
                blocks = _cast(value, sources, loss)
                encoder.add_parts(prefix + name, value.dtype, value.shape, noted(blocks))
                may_have_lost |= value.shows_loss(loss)
                continue
            if value.is_on_disk:
                watched = _Watched(islice(sources, len(_parts(value))), value.dtype.is_float)
                encoder.add_parts(prefix + name, value.dtype, value.shape, noted(watched))
                if not watched.is_finite:
                    dubious.append(name)
                continue
            stored = value.stored()
            if isinstance(stored, SparseTensor):
                encoder.add_record(prefix + name, stored.record)
            else:
                encoder.add(prefix + name, stored)
            note(_nbytes(value))
        encoder.finish()
    return Streamed(may_have_lost, tuple(dubious))


class _Watched:
    """Hands on what is copied, and sees whether all of it is finite.

    Parameters
    ----------
    blocks
        The values.
    is_float
        Whether they can be anything else.
    """

    def __init__(self, blocks: Iterable[NDArray[Any]], is_float: bool) -> None:
        self._blocks = blocks
        self.is_finite = True
        self._is_float = is_float

    def __iter__(self) -> Iterator[NDArray[Any]]:
        for block in self._blocks:
            if self._is_float and self.is_finite:
                self.is_finite = is_finite(block)
            yield block


def _nbytes(value: Parameter) -> int:
    if isinstance(value, SparseParameter):
        return value.tensor.record.nbytes
    return math.prod(value.shape) * value.dtype.itemsize


@dataclass(frozen=True)
class _Part:
    """What is read at a time."""

    parameter: Parameter
    start: int
    stop: int

    def read(self, buffer: NDArray[np.uint8]) -> NDArray[Any]:
        return self.parameter.source_part(self.start, self.stop, buffer)


def _parts(parameter: Parameter) -> list[_Part]:
    size = math.prod(parameter.shape)
    return [_Part(parameter, start, min(start + PART, size)) for start in range(0, size, PART)]


@contextlib.contextmanager
def _read_ahead(parameters: Sequence[Parameter]) -> Iterator[Iterator[NDArray[Any]]]:
    """Read all parts of the parameters on disk, in order and ahead of time.

    A part that the iterator gives is to be used before the next is asked for.
    """
    parts = [part for value in parameters if value.is_on_disk for part in _parts(value)]
    if not parts:
        yield iter(())
        return
    longest = max((part.stop - part.start) * _itemsize(part.parameter) for part in parts)
    buffers = [np.empty(longest, np.uint8) for _ in range(_READ_AHEAD)]

    def results(reader: ThreadPoolExecutor) -> Iterator[NDArray[Any]]:
        waiting: deque[Future[NDArray[Any]]] = deque()
        for number in range(len(parts) + _READ_AHEAD - 1):
            if number < len(parts):
                waiting.append(reader.submit(parts[number].read, buffers[number % _READ_AHEAD]))
            if number >= _READ_AHEAD - 1:
                yield waiting.popleft().result()

    with ThreadPoolExecutor(max_workers=1) as reader:
        yield results(reader)


def _itemsize(parameter: Parameter) -> int:
    return parameter.source_itemsize if isinstance(parameter, PostponedCast) else parameter.dtype.itemsize


def _cast(
    parameter: PostponedCast, sources: Iterator[NDArray[Any]], loss: CastLoss
) -> Iterator[NDArray[Any]]:
    """Yield what is to be written of a parameter."""
    parts = _parts(parameter)
    outs = [
        np.empty(min(PART, math.prod(parameter.shape)), parameter.dtype.numpy)
        for _ in range(min(_CAST_AHEAD, len(parts)))
    ]

    def cast(number: int) -> NDArray[Any]:
        part = parts[number]
        block: NDArray[Any] = outs[number % len(outs)][: part.stop - part.start]
        parameter.cast_part(next(sources), part.start, block, loss)
        return block

    if len(parts) == 1:
        yield cast(0)
        return
    # While one part is written and hashed the next one is cast.
    with ThreadPoolExecutor(max_workers=1) as caster:
        following = caster.submit(cast, 0)
        for number in range(len(parts)):
            block = following.result()
            if number + 1 < len(parts):
                following = caster.submit(cast, number + 1)
            yield block


class _Syncing:
    """Tells the disk to write on while there is more to come: on a thread, since it waits for the disk.

    Parameters
    ----------
    file
        The file; what is no file of the operating system is left alone.
    total
        How many bytes are to be written.
    """

    def __init__(self, file: BinaryIO, total: int) -> None:
        self._unsynced = 0
        self._error: OSError | None = None
        self._work = threading.Event()
        self._wanted = False
        self._finished = False
        self._thread: threading.Thread | None = None
        try:
            self._descriptor = file.fileno()
        except (OSError, io.UnsupportedOperation):
            return
        if total > SYNC_EVERY and hasattr(os, "fdatasync"):
            self._thread = threading.Thread(target=self._run, daemon=True)

    def written(self, count: int) -> None:
        """Note that so many bytes were written.

        Raises
        ------
        OSError
            When the disk refused earlier ones. It says so only once, so this must not be lost.
        """
        self._unsynced += count
        if self._unsynced >= SYNC_EVERY:
            self._unsynced = 0
            self._wanted = True
            self._work.set()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            self._work.wait()
            self._work.clear()
            # What was wanted is done even when the end comes first: the disk may have something to say.
            if self._wanted:
                self._wanted = False
                try:
                    os.fdatasync(self._descriptor)
                except OSError as error:
                    self._error = error
                    return
            if self._finished and not self._wanted:
                return

    def __enter__(self) -> _Syncing:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._finished = True
            self._work.set()
            self._thread.join()
        if error is None and self._error is not None:
            raise self._error
