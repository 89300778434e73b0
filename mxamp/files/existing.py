"""Finding the files that a user named."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from mxamp.errors import ExportError, ModelFileNotFoundError, nearest_names

if TYPE_CHECKING:
    from os import PathLike

_LISTED = 5
"""The most files to list when none has a similar name."""


def check_folder(folder: Path) -> None:
    """Check that a folder is there that something is to be written into.

    Raises
    ------
    ExportError
        When it is not.
    """
    if not folder.is_dir():
        raise ExportError(f"The folder {str(folder)!r} does not exist. Create it first.")


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


_ADVICE = {
    errno.EACCES: "Check its permissions.",
    errno.EPERM: "Check its permissions.",
    errno.ENOMEM: "There is not enough memory for it: free some, or raise its limit (ulimit -v).",
    errno.EMFILE: "Too many files are open: raise the limit of the process (ulimit -n).",
    errno.ENFILE: "Too many files are open on this machine: close some.",
    errno.EIO: "Check the disk.",
}


def why_unreadable(error: OSError) -> str:
    """Return what the system says of a file that cannot be read, and what to do about it, as two sentences.

    Parameters
    ----------
    error
        What the system said.
    """
    advice = _ADVICE.get(error.errno or 0, "Check its permissions and the disk.")
    return f"{error.strerror or error}. {advice}"
