"""Finding model files, and writing them so that a failure leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Iterator

from mxamp.errors import ExportError, ModelFileNotFoundError, MxampError, nearest_names

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["atomic_write", "existing_file"]

_LISTED = 5
"""The most files to list when none has a similar name."""


def existing_file(path: str | PathLike[str], what: str) -> Path:
    """Return ``path`` as a `Path` when a regular file is there.

    Parameters
    ----------
    path
        The file.
    what
        What it should be, as in ``"parameter file"``, for the message.

    Raises
    ------
    ModelFileNotFoundError
        When nothing is there, or something that is not a regular file (opening a pipe would wait forever).
        The message names the files in the folder that the caller may have meant.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            message = f"There is no {what} {str(path)!r}.{_near_files(path)}"
        else:
            # ValueError is a NUL inside the name.
            reason = getattr(error, "strerror", None) or error
            message = f"The {what} {str(path)!r} cannot be reached: {reason}."
        raise ModelFileNotFoundError(message) from None
    if stat.S_ISDIR(mode):
        raise ModelFileNotFoundError(
            f"{str(path)!r} is a folder, not a {what}.{_list_files(path, '')} Give the path of a file."
        )
    if not stat.S_ISREG(mode):
        raise ModelFileNotFoundError(
            f"{str(path)!r} is not a regular file, and a {what} must be one to be read safely."
        )
    return path


def _near_files(path: Path) -> str:
    """Say which existing files or folders the missing ``path`` may stand for."""
    folder = path.parent
    if not folder.is_dir():
        return f" Its folder {str(folder)!r} does not exist either; check the path."
    near = nearest_names(path.name, _names_in(folder))
    return near or _list_files(folder, path.suffix)


def _list_files(folder: Path, suffix: str) -> str:
    names = [name for name in _names_in(folder) if name.endswith(suffix)]
    kind = f"{suffix} file" if suffix else "file"
    if not names:
        return f" There is no {kind} in {str(folder)!r}."
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f" In {str(folder)!r} there is: {', '.join(names[:_LISTED])}{more}."


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:
        return []


@contextlib.contextmanager
def atomic_write(*paths: str | PathLike[str]) -> Iterator[tuple[BinaryIO, ...]]:
    """Write several files, and let them appear under their names only when all are complete.

    Each file is staged as ``.mxamp-*.tmp`` in the folder of its destination. When the block ends normally
    the staged files are flushed to disk and renamed over their destinations in the order given. When
    anything fails, in the block or after it, the staged files are removed and destinations that were already
    replaced get their old content back.

    Parameters
    ----------
    *paths
        The destinations. A symbolic link is followed: what it points to is replaced.

    Yields
    ------
    tuple of BinaryIO
        One file open for writing per destination, in order. Closing them is not the caller's business.

    Raises
    ------
    ExportError
        When the operating system refuses a step: no such folder, no permission, disk full. Other errors that
        the block raises pass through unchanged, after the clean-up.

    Notes
    -----
    Every rename is atomic, so nobody ever sees half a file. Several renames together are not: a process
    that is killed between them leaves the first files new and the rest old.

    A file that somebody has memory-mapped stays intact under its mapping, because the name moves to a new
    file instead of the content changing.
    """
    names = ", ".join(repr(os.fspath(path)) for path in paths)
    try:
        with contextlib.ExitStack() as cleanup:
            destinations = _destinations(paths)
            staged = []
            files: list[BinaryIO] = []
            for destination in destinations:
                name = _temporary(destination)
                files.append(_create(name, destination, cleanup))
                staged.append(name)
            yield tuple(files)
            for file in files:
                file.flush()
                os.fsync(file.fileno())
                file.close()
            _rename_all(staged, destinations)
            for folder in dict.fromkeys(destination.parent for destination in destinations):
                _sync_folder(folder)
    except MxampError:
        # Some of them are OSErrors too, and they already say what is wrong.
        raise
    except OSError as error:
        raise ExportError(
            f"Cannot write {names}: {error.strerror or error}. Nothing was changed and nothing half-written "
            "is left behind; make room or choose another place, then try again."
        ) from error


def _destinations(paths: tuple[str | PathLike[str], ...]) -> list[Path]:
    """Resolve links and refuse what could only fail after part of the work is done."""
    for path in paths:
        if "\0" in str(path):
            raise ExportError(f"Cannot write {os.fspath(path)!r}: no file name can hold a NUL.")
    destinations = [Path(os.path.realpath(path)) for path in paths]
    for path, destination in zip(paths, destinations):
        if destination.is_dir():
            raise ExportError(
                f"Cannot write {os.fspath(path)!r}: a folder has this name. Choose another name."
            )
        if destinations.count(destination) > 1:
            raise ExportError(
                f"Cannot write {os.fspath(path)!r} twice in one step: give each file its own name."
            )
        if not destination.parent.is_dir():
            raise ExportError(
                f"Cannot write {os.fspath(path)!r}: the folder {str(destination.parent)!r} does not exist. "
                "Create it first."
            )
    return destinations


def _temporary(destination: Path) -> Path:
    """Name a new file beside ``destination``, briefly: a long name could exceed the file system's limit."""
    return destination.parent / f".mxamp-{secrets.token_hex(8)}.tmp"


def _create(name: Path, destination: Path, cleanup: contextlib.ExitStack) -> BinaryIO:
    # os.open rather than tempfile: the umask then gives the permissions of any new file, not 0600.
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(name, flags, 0o666)
    cleanup.callback(_remove, name)
    file = os.fdopen(descriptor, "wb")
    cleanup.callback(_close, file)
    with contextlib.suppress(FileNotFoundError):
        os.chmod(name, stat.S_IMODE(destination.stat().st_mode))
    return file


def _rename_all(staged: list[Path], destinations: list[Path]) -> None:
    """Rename each staged file; when one rename fails, put the old files back and raise."""
    with contextlib.ExitStack() as cleanup, contextlib.ExitStack() as undo:
        # The last rename needs no way back, so one file alone costs nothing extra. All backups are made
        # before the first rename: running out of space for one changes nothing.
        backups = {}
        for destination in destinations[:-1]:
            if destination.exists():
                backup = _temporary(destination)
                cleanup.callback(_remove, backup)
                try:
                    os.link(destination, backup)
                except OSError:
                    # A file system without hard links.
                    shutil.copy2(destination, backup)
                backups[destination] = backup
        for name, destination in zip(staged, destinations):
            os.replace(name, destination)
            if destination in backups:
                undo.callback(os.replace, backups[destination], destination)
            else:
                undo.callback(_remove, destination)
        undo.pop_all()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _close(file: BinaryIO) -> None:
    # Closing flushes, which fails again on a full disk; the first error is the one to report.
    with contextlib.suppress(OSError):
        file.close()


def _sync_folder(folder: Path) -> None:
    """Make the renames themselves durable, where the platform can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
