"""Writing files so that a failure, whenever it comes, leaves the old ones or the new ones."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, Sequence

from mxamp.errors import ExportError, MxampError
from mxamp.files.leftovers import settle_dead
from mxamp.files.lock import folder_lock
from mxamp.files.staged import StagedFile
from mxamp.files.switch import StagingFolder, resolve_links
from mxamp.messages.warn import warn_user

if TYPE_CHECKING:
    from os import PathLike


@contextlib.contextmanager
def atomic_write(
    *paths: str | PathLike[str], remove: Sequence[str | PathLike[str]] = ()
) -> Iterator[tuple[StagedFile, ...]]:
    """Write several files of a folder, and let all of them appear under their names at once.

    When the block ends normally the files are synced and take their places. When anything fails, in the block
    or after it, what was there stays, and nothing else does.

    Parameters
    ----------
    *paths
        The destinations. A symbolic link is followed: what it points to is replaced.
    remove
        Files of the same folder that go when the others come; they need not exist.

    Yields
    ------
    tuple of StagedFile
        One file open for writing per destination, in order. Closing them is not the caller's business.

    Raises
    ------
    ExportError
        When the operating system refuses a step: no such folder, no permission, disk full. Other errors that
        the block raises pass through unchanged, after the clean-up.

    Notes
    -----
    A process that is killed, and a machine that loses power, at any moment leaves the old files or the new
    ones: whoever reads them then, with mxamp or without, sees no mix of both. What else was left beside them
    is removed by the next save into the folder, and by `settle_leftovers`.

    Of several processes that save to the same names, the last to finish wins, with all its files. Both
    need a file system with symbolic links and locks; `mxamp.files.switch` says what holds without.

    A file that somebody has open or memory-mapped stays what it is, because the name moves to a new file
    instead of the content changing.
    """
    names = ", ".join(repr(os.fspath(path)) for path in paths)
    try:
        destinations = _destinations(paths)
        removed = [resolve_links(Path(path)) for path in remove]
        folder = _common_folder([*destinations, *removed])
        with contextlib.ExitStack() as cleanup:
            staging = StagingFolder(folder)
            with folder_lock(folder):
                settle_dead(folder)
                cleanup.callback(_finish, staging)
                staging.create()
            files = []
            for destination in destinations:
                file = StagedFile(staging.new(destination.name), destination.name)
                cleanup.callback(_close, file)
                files.append(file)
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(file.path, stat.S_IMODE(destination.stat().st_mode))
            yield tuple(files)
            for file in files:
                file.sync()
                file.close()
            with folder_lock(folder):
                gone = [path.name for path in removed if path.exists()]
                try:
                    staging.commit([path.name for path in destinations] + gone)
                finally:
                    with contextlib.suppress(OSError):  # _finish tries again
                        staging.settle()
    except MxampError:
        # Some of them are OSErrors too, and they already say what is wrong.
        raise
    except OSError as error:
        raise ExportError(
            f"Cannot write {names}: {error.strerror or error}. Nothing was changed and nothing half-written "
            "is left behind; make room or choose another place, then try again."
        ) from error


def _destinations(paths: Sequence[str | PathLike[str]]) -> list[Path]:
    """Resolve links and refuse what could only fail after part of the work is done."""
    for path in paths:
        if "\0" in str(path):
            raise ExportError(f"Cannot write {os.fspath(path)!r}: no file name can hold a NUL.")
    destinations = [resolve_links(Path(path)) for path in paths]
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


def _common_folder(destinations: Sequence[Path]) -> Path:
    folder = destinations[0].parent
    for destination in destinations[1:]:
        if destination.parent != folder:
            raise ExportError(
                f"{str(destinations[0])!r} and {str(destination)!r} are in different folders, so they cannot "
                "be replaced in one step. If one is reached through a symbolic link, remove the link, or "
                "choose another name."
            )
    return folder


def _finish(staging: StagingFolder) -> None:
    """Leave the old files or the new ones, and nothing else, whatever happened."""
    try:
        if not staging.has_begun:
            staging.settle()  # nobody else can reach it, and a full disk may have no room for a lock
        elif staging.path.exists():
            with folder_lock(staging.folder):
                staging.settle()
    except OSError as error:
        warn_user(
            f"{str(staging.path)!r} cannot be removed yet: {error.strerror or error}. The model beside it is "
            "whole, and may be reached through it, so leave it there: the next save or load tidies up."
        )
    finally:
        staging.close()


def _close(file: StagedFile) -> None:
    # Closing flushes, which fails again on a full disk; the first error is the one to report.
    with contextlib.suppress(OSError):
        file.close()
