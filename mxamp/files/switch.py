"""Replace several files of a folder by one rename: see docs/adr/0009-one-rename-for-two-files.md.

A save has a folder of its own beside the files, ``.mxamp-TOKEN.save``::

    owner      locked as long as the process lives
    new/       the new files
    old/       hard links to the old ones
    current    -> old, then -> new: a symbolic link, and changing it is the one rename
    next       what current is about to become

First every file is replaced by a symbolic link to ``.mxamp-TOKEN.save/current/NAME``, through which it has
its old content still. Then ``current`` is renamed over: all files are new at once. At last the new files take
the places of the links, and the folder goes. Where a step was the last one of a process, `settle` does the
rest, or takes back what was begun; readers see the old files or the new ones all the time.

Without symbolic links (some file systems, and Windows) the old files are moved away first, parameters before
symbol, and the new ones moved in: for a moment there is no such model, but never a mix of two.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
from pathlib import Path
from typing import Sequence

from mxamp.files.lock import try_lock

STAGING_NAME = re.compile(r"\.mxamp-[0-9a-f]{16}\.(?:save|gone)")
"""A folder of a save; ``.gone`` for one that is no longer needed."""

_SWITCH_LINK = re.compile(r"\.mxamp-[0-9a-f]{16}\.save/current/[^/]+")

_OWNER, _OLD, _NEW, _CURRENT, _NEXT, _LINK = "owner", "old", "new", "current", "next", "link"
_MOVING, _MOVED = "moving", "moved"
"""Marks in the folder: files are moved, for want of symbolic links; all old ones are out of the way."""

_MOST_LINKS = 40  # as Linux has it

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


class StagingFolder:
    """The folder of one save; created under the folder's lock.

    Parameters
    ----------
    folder
        Where the files are to be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / f".mxamp-{secrets.token_hex(8)}.save"
        self.has_begun = False
        self._owner: int | None = None

    def create(self) -> None:
        """Create it."""
        os.mkdir(self.path)
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
        self._owner = os.open(self.path / _OWNER, flags, 0o666)
        if try_lock(self._owner) is None:
            self.close()  # nobody can tell from it, and Windows renames no folder with an open file
        for name in (_OLD, _NEW):
            os.mkdir(self.path / name)

    def new(self, name: str) -> Path:
        """Return where to write a new file."""
        return self.path / _NEW / name

    def commit(self, names: Sequence[str]) -> None:
        """Replace files; to be called under the folder's lock, when all new files are on the disk.

        Parameters
        ----------
        names
            The files. One that has no new content is removed.
        """
        self.has_begun = True
        sync_folder(self.path / _NEW)
        if len(names) == 1 and self.new(names[0]).exists():
            # One rename is one rename.
            os.replace(self.new(names[0]), self.folder / names[0])
            sync_folder(self.folder)
        elif self._can_link():
            self._switch(names)
        else:
            self._move(names)

    def _can_link(self) -> bool:
        try:
            os.symlink(_OLD, self.path / _CURRENT)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise
            return False
        except NotImplementedError:
            return False
        return True

    def _switch(self, names: Sequence[str]) -> None:
        for name in names:
            _keep(self.folder / name, self.path / _OLD / name)
        # Each step reaches the disk before the next begins: a power cut is no excuse.
        sync_folder(self.path / _OLD)
        sync_folder(self.path)
        sync_folder(self.folder)
        for name in names:
            os.symlink(f"{self.path.name}/{_CURRENT}/{name}", self.path / _LINK)
            os.replace(self.path / _LINK, self.folder / name)
        sync_folder(self.folder)
        os.symlink(_NEW, self.path / _NEXT)
        os.replace(self.path / _NEXT, self.path / _CURRENT)
        sync_folder(self.path)

    def _move(self, names: Sequence[str]) -> None:
        _mark(self.path / _MOVING)
        sync_folder(self.path)
        sync_folder(self.folder)
        for name in reversed(names):  # the symbol last
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.folder / name, self.path / _OLD / name)
        sync_folder(self.path / _OLD)
        sync_folder(self.folder)
        _mark(self.path / _MOVED)
        sync_folder(self.path)

    def settle(self) -> None:
        """Put the new files in place if they were committed, otherwise the old ones; remove the folder."""
        settle(self.path)

    def close(self) -> None:
        """Let others see that the process is done with it."""
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None


def settle(staging: Path) -> None:
    """Finish what was committed, take back what was not, and remove a staging folder.

    Can be interrupted anywhere and called again. Files that somebody has put there since are left alone.

    Parameters
    ----------
    staging
        The folder; nobody else may be using it.
    """
    if staging.suffix == ".save" and staging.exists():
        _settle_files(staging)
        # Under another name first: half a folder would tell another story.
        gone = staging.with_suffix(".gone")
        os.rename(staging, gone)
        staging = gone
    shutil.rmtree(staging, ignore_errors=True)


def _settle_files(staging: Path) -> None:
    folder = staging.parent
    was_moving = (staging / _MOVING).exists()
    is_committed = (staging / _MOVED).exists() if was_moving else _link_of(staging / _CURRENT) == _NEW
    side = staging / (_NEW if is_committed else _OLD)
    changed = False
    for name in sorted({*_names_in(staging / _OLD), *_names_in(staging / _NEW)}, reverse=True):
        destination = folder / name
        is_ours = (
            not os.path.lexists(destination)
            if was_moving
            else _link_of(destination) == f"{staging.name}/{_CURRENT}/{name}"
        )
        if not is_ours:
            continue
        if (side / name).exists():
            os.replace(side / name, destination)
            changed = True
        elif not was_moving:
            os.unlink(destination)
            changed = True
    if changed:
        sync_folder(folder)


def resolve_links(path: Path) -> Path:
    """Return what a path stands for, symbolic links followed but for those of a save that is going on.

    Raises
    ------
    OSError
        When links go in a circle.
    """
    for _ in range(_MOST_LINKS):
        path = Path(os.path.realpath(path.parent), path.name)
        link = _link_of(path)
        if link is None or _SWITCH_LINK.fullmatch(link):
            return path
        path = path.parent / link
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, where the platform can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _keep(path: Path, kept: Path) -> None:
    """Give a file another name; nothing happens where there is none."""
    try:
        os.link(path, kept)
    except FileNotFoundError:
        return
    except OSError:
        # A file system without hard links, or another user's file.
        if path.exists():
            shutil.copy2(path, kept)
            with open(kept, "rb") as file:
                os.fsync(file.fileno())


def _mark(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))


def _link_of(path: Path) -> str | None:
    try:
        return os.readlink(path)
    except OSError:  # there is none, or it is no link
        return None


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
