"""Reading a file at given places, from several threads, until nobody needs it any more."""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import ParamsError
from mxamp.files import why_unreadable


class PositionedFile:
    """A file that is read by position; it is closed when the last reference to this goes.

    Raises
    ------
    ParamsError
        When it cannot be opened.

    Notes
    -----
    The file is read, not mapped: pages of a map count as the process's memory, and a file that gets shorter
    under a map kills the process. Whoever replaces the file under its name (as mxamp does) takes nothing away
    from here; one that is changed in place is an error with the next read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Kept open, and closed by the finalizer.
            file = open(path, "rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise ParamsError(f"{path} cannot be read: {why_unreadable(error)}") from error
        self._file = file
        self._lock = threading.Lock()
        self._state = _state(os.fstat(file.fileno()))
        weakref.finalize(self, file.close)

    @property
    def size(self) -> int:
        """Its size in bytes, when it was opened."""
        return self._state[2]

    def is_at(self, path: Path) -> bool:
        """Whether the file that has this name now is this one, unchanged."""
        return _state(os.stat(path)) == self._state

    def read_into(self, out: NDArray[Any], offset: int) -> None:
        """Fill an array with the bytes from ``offset`` on.

        Parameters
        ----------
        out
            C-contiguous.
        offset
            In bytes, from the beginning of the file.

        Raises
        ------
        ParamsError
            When the file was changed since it was opened, or the disk fails.
        """
        view = memoryview(out.reshape(-1).view(np.uint8).data)
        try:
            done = 0
            while done < len(view):
                count = self._read(view[done:], offset + done)
                if not count:
                    break
                done += count
            unchanged = _state(os.fstat(self._file.fileno())) == self._state
        except OSError as error:
            raise ParamsError(
                f"{self.path}, byte {offset}: cannot be read: {why_unreadable(error)}"
            ) from error
        if done < len(view) or not unchanged:
            raise ParamsError(
                f"{self.path} was changed since it was opened, and its values are read when they are needed. "
                "Load the model again, and let nothing write to the file meanwhile."
            )

    def _read(self, view: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [view], offset)
        with self._lock:
            self._file.seek(offset)
            return self._file.readinto(view) or 0

    def __repr__(self) -> str:
        return f"PositionedFile({str(self.path)!r})"


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
