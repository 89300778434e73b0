"""The native libraries: what they are built from, what they are called, and where they are.

There are two. The *kernels* round, cast and observe arrays, need nothing but a C++ compiler, and are
optional: without them mxamp computes the same with NumPy. The *operators* are MXNet's ``_mxamp_round`` and
``_mxamp_observe``; they are built against the headers inside the installed mxnet package.

A library is named after what it was built from (sources, options, MXNet's version), so that one that no
longer fits is not found rather than trusted. It lies in ``mxamp/ops/lib``, or, where nothing can be written
there, in ``$XDG_CACHE_HOME/mxamp`` (``~/.cache/mxamp``).

Looking for one is quick, and apart from :mod:`mxamp.ops.build` for that reason. Only the standard library is
needed, because ``setup.py`` builds with these modules where nothing else is installed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from mxamp.errors import LibraryError
from mxamp.messages.installation import install_hint

SOURCES = Path(__file__).resolve().parent / "src"
"""The folder of the C++ sources."""

PACKAGE_FOLDER = Path(__file__).resolve().parent / "lib"
"""The folder inside the package where libraries are."""

_OPERATORS_SOURCE = "operators.cc"

# Contraction into fused multiply-adds would skip the rounding of a product. No instruction set is named: the
# kernels choose theirs when they run.
_OPTIONS = ("-std=c++14", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off", "-pthread")
# MXNet unloads its libraries when the process ends; a thread of the pool may still be asleep in this one.
_LINUX_OPTIONS = ("-Wl,-z,nodelete",)


@dataclass(frozen=True)
class Library:
    """A native library: what it is built from, and so what it is called.

    Attributes
    ----------
    name : str
        ``"kernels"`` or ``"operators"``.
    file_name : str
        The name of the built file: the library, the MXNet it is for, and ``source``.
    source : str
        A hash of the text of all sources and headers and of the options. The library knows it too.
    files : tuple of pathlib.Path
        What is compiled.
    options : tuple of str
        How, but for the name of the result.
    """

    name: str
    file_name: str
    source: str
    files: tuple[Path, ...]
    options: tuple[str, ...]


def kernels_library() -> Library:
    """Describe the kernels, which need no MXNet.

    Raises
    ------
    LibraryError
        When the installation of mxamp lacks the sources.
    """
    sources = [path for path in _own_sources() if path.name != _OPERATORS_SOURCE]
    return _describe("kernels", "kernels", sources, ())


def operators_library(mxnet: Path | None = None) -> Library:
    """Describe MXNet's operators, without importing MXNet.

    Parameters
    ----------
    mxnet
        The folder of the mxnet package; None finds the one that would be imported.

    Raises
    ------
    LibraryError
        When there is no mxnet package, or it lacks the files that libraries are built with.
    """
    package = mxnet if mxnet is not None else _find_mxnet()
    api = (package / "include" / "mxnet" / "lib_api.h", package / "src" / "lib_api.cc")
    for path in api:
        if not path.is_file():
            raise LibraryError(
                f"The operator library cannot be built: {path} is missing. mxnet 1.9.1 brings this file with "
                "it; install that version: pip install mxnet==1.9.1"
            )
    version = mxnet_version(package)
    options = (
        f"-I{package / 'include'}",
        f"-I{package / 'include' / 'mxnet'}",
        f"-I{package / 'src'}",
        f"-DMXAMP_MXNET_VERSION={_version_number(version)}",
    )
    return _describe("operators", f"operators-mxnet{version}", _own_sources(), options, included=api)


def _describe(
    name: str,
    stem: str,
    sources: Sequence[Path],
    extra: tuple[str, ...],
    *,
    included: Sequence[Path] = (),
) -> Library:
    options = (*_OPTIONS, *(_LINUX_OPTIONS if sys.platform.startswith("linux") else ()))
    digest = hashlib.sha256()
    # Where mxnet lies is no part of what is built; its headers and its version are.
    for word in (sys.platform, platform.machine(), *options, *(o for o in extra if not o.startswith("-I"))):
        digest.update(word.encode() + b"\0")
    for path in (*sources, *included):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    source = digest.hexdigest()[:16]
    return Library(
        name=name,
        file_name=f"libmxamp_{stem}-{source}.so",
        source=source,
        files=tuple(path for path in sources if path.suffix == ".cc"),
        options=(*options, *extra, f'-DMXAMP_SOURCE="{source}"'),
    )


def _own_sources() -> list[Path]:
    found = sorted(path for path in SOURCES.glob("*") if path.suffix in (".cc", ".h"))
    if not found:
        raise LibraryError(
            f"The C++ sources of mxamp are missing from {SOURCES}: the installation is damaged. Install "
            "mxamp again."
        )
    return found


def _find_mxnet() -> Path:
    import importlib.util  # which takes a millisecond that the kernels need not wait for

    spec = importlib.util.find_spec("mxnet")
    if spec is None or spec.origin is None:
        raise LibraryError(
            "The operator library is built against MXNet, and no mxnet package is installed in this Python "
            f"({sys.executable}). {install_hint('mxnet')}"
        )
    return Path(spec.origin).resolve().parent


def mxnet_version(package: Path) -> str:
    """Return the version of an MXNet that is not imported."""
    text = (package / "libinfo.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "(\d+(?:\.\d+)*)', text, flags=re.MULTILINE)
    if match is None:
        raise LibraryError(
            f"The operator library cannot be built: {package / 'libinfo.py'} does not say which MXNet this "
            "is. Install mxnet 1.9.1: pip install mxnet==1.9.1"
        )
    return match.group(1)


def _version_number(version: str) -> int:
    """Return 10901 for 1.9.1, as MXNet itself numbers its versions (``MXNET_VERSION``)."""
    major, minor, patch = [*(int(part) for part in version.split(".")), 0, 0][:3]
    return 10000 * major + 100 * minor + patch


def folders() -> tuple[Path, ...]:
    """Return where libraries are looked for, and written to: the first that can be."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path is to be ignored.
    root = Path(cache) if os.path.isabs(cache) else Path(os.path.expanduser("~")) / ".cache"
    return PACKAGE_FOLDER, root / "mxamp"


def find_built(library: Library) -> Path | None:
    """Return the absolute path of a library that was built from exactly this, or None."""
    for folder in folders():
        path = folder / library.file_name
        if path.is_file():
            return path
    return None
