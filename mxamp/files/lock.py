"""Locks between processes that write into one folder; the operating system drops those of a dead process."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from pathlib import Path
from typing import Iterator

from mxamp.errors import ExportError

if sys.platform != "win32":
    import fcntl

LOCK_NAME = ".mxamp.lock"
"""The file that is locked; it exists only as long as somebody holds the lock or waits for it."""

_PATIENCE = 60.0
"""Seconds to wait for the lock, which is held for a few renames at a time."""

_PAUSE = 0.01
_BUSY = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)


def try_lock(descriptor: int) -> bool | None:
    """Lock an open file if nobody else has; closing it, or the end of the process, unlocks it.

    Returns
    -------
    bool or None
        Whether it is locked now; None where the file system or the platform has no such locks.
    """
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in _BUSY else None
    return True


@contextlib.contextmanager
def folder_lock(folder: Path, *, patience: float = _PATIENCE) -> Iterator[bool]:
    """Keep other processes and threads from replacing files of a folder meanwhile.

    Parameters
    ----------
    folder
        The folder.
    patience
        The most seconds to wait for others.

    Yields
    ------
    bool
        Whether it is locked; False where there are no locks, so that nothing is known of others.

    Raises
    ------
    ExportError
        When others did not let go in time.
    OSError
        When the folder cannot be written.
    """
    path = folder / LOCK_NAME
    descriptor = _acquire(path, time.monotonic() + patience)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            # Removed while it is locked: whoever waits for it finds that the name has gone, and starts over.
            with contextlib.suppress(OSError):
                os.unlink(path)
            os.close(descriptor)


def _acquire(path: Path, deadline: float) -> int | None:
    while True:
        descriptor = _open(path)
        has_locked = try_lock(descriptor)
        if has_locked and _is_at(path, descriptor):
            return descriptor
        if has_locked is None:
            with contextlib.suppress(OSError):
                os.unlink(path)
        os.close(descriptor)
        if has_locked is None:
            return None
        if time.monotonic() > deadline:
            raise ExportError(
                f"Another process is saving into {str(path.parent)!r} and does not finish: it holds the lock "
                f"{path.name}. Wait for it, or end it, then try again."
            )
        if not has_locked:
            time.sleep(_PAUSE)


def _open(path: Path) -> int:
    flags = os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    try:
        return os.open(path, flags | os.O_RDWR, 0o666)
    except PermissionError:
        # Another user's; network file systems alone need to write what they lock.
        return os.open(path, flags | os.O_RDONLY, 0o666)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file still has its name; otherwise others lock the file that has it now."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
