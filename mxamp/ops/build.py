"""Builds the native libraries from ``mxamp/ops/src``.

    python -m mxamp.ops.build            build both by hand

Installing mxamp builds what can be built there. The compiler is the one that ``$CXX`` names, or the first of
c++, g++ and clang++. :mod:`mxamp.ops.libraries` says what the libraries are and where they go.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, Sequence

from mxamp.errors import LibraryError
from mxamp.ops import libraries
from mxamp.ops.libraries import Library, kernels_library, operators_library

_COMPILERS = ("c++", "g++", "clang++")
_SECONDS = 600


def build(library: Library, *, folder: Path | None = None) -> Path:
    """Build a library, whether or not it is there already.

    Parameters
    ----------
    library
        What to build.
    folder
        Where to write it; None takes the first of the usual folders that can be written to.

    Returns
    -------
    pathlib.Path
        The absolute path of the library. It appears there complete: two processes may build at once.

    Raises
    ------
    LibraryError
        When there is no compiler, the compiler fails, or nothing can be written.
    """
    compiler = _find_compiler(library)
    with _temporary_file(library, [folder] if folder is not None else libraries.folders()) as temporary:
        command = [*compiler, *library.options, "-o", str(temporary), *map(str, library.files)]
        _compile(library, command)
        destination = temporary.parent / library.file_name
        _set_mode(temporary)
        os.replace(temporary, destination)
    if destination.parent == libraries.PACKAGE_FOLDER:
        _remove_earlier(destination)
    return destination.resolve()


def _remove_earlier(built: Path) -> None:
    """Remove what earlier sources made; a process that uses it keeps it. Only where no other mxamp looks."""
    stem = built.name.rpartition("-")[0]
    for path in built.parent.glob(f"{stem}-*.so"):
        if path != built:
            with contextlib.suppress(OSError):
                path.unlink()


def _find_compiler(library: Library) -> list[str]:
    named = os.environ.get("CXX", "").strip()
    if named:
        command = shlex.split(named)
        if shutil.which(command[0]) is None:
            raise LibraryError(
                f"The {library.name} library of mxamp cannot be built: the environment variable CXX is "
                f"{named!r}, and there is no program {command[0]!r}. Set CXX to a C++ compiler, or unset it."
            )
        return command
    for name in _COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return [path]
    raise LibraryError(
        f"The {library.name} library of mxamp cannot be built: there is no C++ compiler (looked for "
        f"{', '.join(_COMPILERS)}). Install one (Debian and Ubuntu: sudo apt install g++; Fedora and Red "
        "Hat: sudo dnf install gcc-c++; macOS: xcode-select --install), or name yours in the environment "
        "variable CXX."
    )


def _compile(library: Library, command: Sequence[str]) -> None:
    what = f"The {library.name} library of mxamp cannot be built:"
    try:
        completed = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
        )
    except OSError as error:
        raise LibraryError(
            f"{what} {command[0]} cannot be run: {error.strerror or error}. Set the environment variable CXX "
            "to a C++ compiler that can."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise LibraryError(
            f"{what} {command[0]} did not finish within {_SECONDS} s. The command was: {shlex.join(command)}"
        ) from error
    if completed.returncode:
        words = _first_words(completed.stdout.decode(errors="replace"))
        raise LibraryError(
            f"{what} {command[0]} failed with status {completed.returncode}. GCC and Clang are known to "
            "work; set the environment variable CXX to use another compiler. "
            f"The command was: {shlex.join(command)}\nIt said: {words}"
        )


def _first_words(text: str) -> str:
    """Return what a compiler says from the first error on; it may warn, and go on, for pages."""
    lines = text.strip().splitlines()
    first = next((number for number, line in enumerate(lines) if "error" in line.lower()), 0)
    return "\n".join(lines[first:])[:2000] or "(nothing)"


@contextlib.contextmanager
def _temporary_file(library: Library, candidates: Sequence[Path]) -> Iterator[Path]:
    """Make an empty file in the first folder that allows it, and remove what is left of it."""
    refusals = []
    for folder in candidates:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{library.name}-", suffix=".so", dir=folder)
        except OSError as error:
            refusals.append(f"{folder} ({error.strerror or error})")
            continue
        os.close(handle)
        try:
            yield Path(name)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        return
    raise LibraryError(
        f"The {library.name} library of mxamp cannot be built: nothing can be written to "
        f"{' or '.join(refusals)}. Set the environment variable XDG_CACHE_HOME to a folder that can be "
        "written to."
    )


def _set_mode(path: Path) -> None:
    """Give a temporary file, which only its owner may read, the permissions of an ordinary new program."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, 0o777 & ~mask)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build from the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; None means those of the process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m mxamp.ops.build",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="kernels or operators (default: both)",
    )
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="where to write them")
    options = parser.parse_args(arguments)
    kinds = {"kernels": kernels_library, "operators": operators_library}
    names = options.names or list(kinds)
    for name in names:
        if name not in kinds:
            parser.error(f"there is no library {name!r}: use kernels or operators")
    failed = False
    for name in names:
        try:
            path = build(kinds[name](), folder=options.folder)
        except LibraryError as error:
            print(f"mxamp: {error}", file=sys.stderr)
            failed = True
        else:
            print(f"{name}: {path}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
