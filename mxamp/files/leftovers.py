"""What processes that were killed while saving left behind, and reading while others save."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Callable, Sequence, TypeVar

from mxamp.errors import MxampError, ParamsError
from mxamp.files.lock import LOCK_NAME, folder_lock, try_lock
from mxamp.files.switch import STAGING_NAME, settle

_ATTEMPTS = 10

_Result = TypeVar("_Result")


def settle_leftovers(folder: Path) -> None:
    """Finish or take back the saves into a folder whose processes have died, and remove what they left.

    Readers call it first. What cannot be done now (another process is saving; the folder cannot be written)
    is left for the next: the files under their names are whole in any case.

    Parameters
    ----------
    folder
        The folder of the files to read.
    """
    with contextlib.suppress(OSError):  # ExportError, for a lock that others have, is one
        if _leftovers(folder):
            with folder_lock(folder, patience=0.0) as locked:
                if locked:
                    settle_dead(folder)


def settle_dead(folder: Path) -> None:
    """Do so under the folder's lock, which the caller holds; what is another user's may have to stay."""
    for name in _leftovers(folder):
        with contextlib.suppress(OSError):
            if name != LOCK_NAME and _is_dead(folder / name):
                settle(folder / name)


def _leftovers(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(".mxamp")]
    except OSError:  # it cannot be listed, or does not exist
        return []
    return sorted(name for name in names if name == LOCK_NAME or STAGING_NAME.fullmatch(name))


def _is_dead(staging: Path) -> bool:
    """Whether no process owns a staging folder any more; False where that cannot be known."""
    try:
        descriptor = os.open(staging / "owner", os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return True  # it died while it created the folder, or while it removed it
    try:
        return bool(try_lock(descriptor))
    finally:
        os.close(descriptor)


def unchanged_while_reading(paths: Sequence[Path], read: Callable[[], _Result]) -> _Result:
    """Read files that belong together, again where another process replaced them in between.

    Parameters
    ----------
    paths
        The files.
    read
        Reads them, or opens them: an open file stays what it is.

    Returns
    -------
    object
        What ``read`` returned.

    Raises
    ------
    ParamsError
        When they change every time.
    """
    for _ in range(_ATTEMPTS):
        before = _identities(paths)
        try:
            result = read()
        except (MxampError, OSError):
            if _identities(paths) == before:
                raise
            continue
        if _identities(paths) == before:
            return result
    raise ParamsError(
        f"{' and '.join(map(str, paths))} are being replaced again and again. Try again when nothing writes "
        "to them."
    )


def _identities(paths: Sequence[Path]) -> list[tuple[int, ...] | None]:
    """Return what each path is and what it leads to, None where there is nothing.

    A save ends by putting each new file in the place of the link to it: the same file by then, but who
    followed the link meanwhile may have found nothing.
    """
    found: list[tuple[int, ...] | None] = []
    for path in paths:
        try:
            entry, status = os.lstat(path), os.stat(path)
        except (OSError, ValueError):
            found.append(None)
        else:
            found.append((entry.st_ino, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return found
