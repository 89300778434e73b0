"""Build the wheel and the source distribution that users install, and check both.

    make wheels

The source distribution is made of the checkout, the wheel of the source distribution, with both native
libraries: the environment has mxnet 1.9.1, for its headers. auditwheel
gives the wheel the oldest manylinux tag that its libraries' symbols allow, and strips them. What is asked
of both is in :func:`check_wheel` and :func:`check_source`; twine renders the long description as a package
index does. All goes to ``dist/``.

``MXAMP_URL`` in the environment names the repository, for the links of the package's page
(docs/releasing.md).
"""

from __future__ import annotations

import argparse
import email
import email.message
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Callable, Sequence

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"

PATCHABLE = sys.platform.startswith("linux")
"""Whether there is a manylinux tag to be had; elsewhere the wheel is left as it was built."""

NEWEST_GLIBC = (2, 28)
"""The newest C library that a wheel may ask for: that of the systems which NumPy's wheels are for, too."""

LIBRARIES = ("libmxamp_kernels-", "libmxamp_operators-mxnet1.9.1-")
"""How the names of the native libraries begin that a wheel has to hold; a hash of their sources follows."""

_RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:|#)[^)]*\)|(?:href|src)=[\"'](?![a-z]+:|#)")


class WheelError(Exception):
    """A wheel or source distribution is not what it should be; the message says what is wrong."""


def run(*command: object, folder: Path | None = None) -> str:
    """Run a command; raise WheelError with its output where it fails."""
    words = [str(word) for word in command]
    completed = subprocess.run(
        words, cwd=folder, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if completed.returncode:
        raise WheelError(f"{' '.join(words)} failed with status {completed.returncode}:\n{completed.stdout}")
    return completed.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """Make the source distribution of the checkout, and the wheel of that.

    Returns
    -------
    tuple of pathlib.Path
        The wheel, as it was built, and the source distribution, both in ``folder``.
    """
    frontend = (sys.executable, "-m", "build", "--no-isolation", "--outdir", folder)
    run(*frontend, "--sdist", ROOT)
    (source,) = folder.glob("mxamp-*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="mxamp-source-") as unpacked:
        with tarfile.open(source) as archive:
            archive.extractall(unpacked)  # our own
        run(*frontend, "--wheel", Path(unpacked) / source.name[: -len(".tar.gz")])
    (wheel,) = folder.glob("mxamp-*.whl")
    return wheel, source


def repair(wheel: Path, folder: Path) -> Path:
    """Give a wheel the oldest manylinux tag that its libraries allow, and strip what debuggers read."""
    if not PATCHABLE:
        return Path(shutil.copy(wheel, folder))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    auditwheel = ("env", f"PATH={path}", sys.executable, "-m", "auditwheel")
    run(*auditwheel, "repair", "--strip", "--wheel-dir", folder, wheel)
    (repaired,) = folder.glob("mxamp-*.whl")
    return repaired


def package_files(root: Path = ROOT) -> set[str]:
    """Return what the checkout has of the package, as names inside a wheel."""
    found = (path for path in (root / "mxamp").rglob("*") if path.is_file())
    return {
        str(path.relative_to(root))
        for path in found
        if path.suffix not in (".pyc", ".so") and path.name[0] != "."
    } | {"mxamp_command.py"}


def check_wheel(wheel: Path, files: set[str]) -> list[str]:
    """Return what is wrong with a wheel; an empty list where nothing is.

    Parameters
    ----------
    wheel
        The file.
    files
        What it has to hold of the package beside the native libraries.
    """
    wrong = []
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        (information,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(information))
    inside = {name for name in names if ".dist-info/" not in name}
    native = {name for name in inside if name.endswith(".so")}
    wrong += [f"it lacks {name}" for name in sorted(files - inside)]
    wrong += [f"it holds {name}, which is no file of the package" for name in sorted(inside - files - native)]
    for begin in LIBRARIES:
        count = sum(name.startswith(f"mxamp/ops/lib/{begin}") for name in native)
        if count != 1:
            wrong.append(f"it holds {count} native libraries {begin}*.so and should hold one")
    if not any(name.endswith("LICENSE") for name in names - inside):
        wrong.append("it lacks the licence")
    tag = re.search(r"-py3-none-(.+)\.whl$", wheel.name)
    if tag is None:
        wrong.append(f"its name, {wheel.name}, says that it is not for every Python 3")
    elif PATCHABLE:
        versions = [(int(a), int(b)) for a, b in re.findall(r"manylinux_(\d+)_(\d+)_", tag[1])]
        if not versions or min(versions) > NEWEST_GLIBC:
            newest = ".".join(map(str, NEWEST_GLIBC))
            wrong.append(f"its libraries need more than glibc {newest}: its tag is {tag[1]}")
    return wrong + check_metadata(metadata)


def check_metadata(metadata: email.message.Message) -> list[str]:
    """Return what is missing from a distribution's metadata, or wrong in it."""
    wrong = []
    for name in (
        "Name",
        "Version",
        "Summary",
        "Requires-Python",
        "Keywords",
        "Author",
        "Description-Content-Type",
    ):
        if not metadata.get(name):
            wrong.append(f"its metadata lack {name}")
    if not (metadata.get("License-Expression") or metadata.get("License")):
        wrong.append("its metadata lack a licence")
    classifiers = " ".join(metadata.get_all("Classifier", []))
    wrong += [
        f"no classifier says Python 3.{minor}"
        for minor in range(8, 14)
        if f"Python :: 3.{minor}" not in classifiers
    ]
    if os.environ.get("MXAMP_URL") and not metadata.get_all("Project-URL"):
        wrong.append("its metadata lack URLs, though MXAMP_URL is set")
    description = str(metadata.get_payload())
    links = [match[0] for match in _RELATIVE_LINK.finditer(description)]
    wrong += [
        f"its long description has a link that leads nowhere outside the checkout: {link}" for link in links
    ]
    return wrong


def check_source(source: Path, files: set[str]) -> list[str]:
    """Return what a source distribution lacks of the checkout, or holds beyond it."""
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = files | {
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "Makefile",
        "PKG-INFO",
    }
    wrong = [f"it lacks {name}" for name in sorted(needed - names)]
    return wrong + [
        f"it holds {name}, which was built" for name in sorted(names) if name.endswith((".so", ".pyc"))
    ]


def make(destination: Path = DIST, say: Callable[[str], None] = print) -> tuple[Path, Path]:
    """Build, repair and check, and put the wheel and the source distribution into a folder.

    Raises
    ------
    WheelError
        When something fails or is not as it should be; nothing is put there then.
    """
    with tempfile.TemporaryDirectory(prefix="mxamp-wheels-") as temporary:
        built, repaired = Path(temporary) / "built", Path(temporary) / "repaired"
        for folder in (built, repaired):
            folder.mkdir()
        plain, source = build(built)
        wheel = repair(plain, repaired)
        files = package_files()
        wrong = [f"{wheel.name}: {words}" for words in check_wheel(wheel, files)]
        wrong += [f"{source.name}: {words}" for words in check_source(source, files)]
        if wrong:
            raise WheelError("\n".join(wrong))
        run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", wheel, source)
        destination.mkdir(exist_ok=True)
        for earlier in (*destination.glob("mxamp-*.whl"), *destination.glob("mxamp-*.tar.gz")):
            earlier.unlink()
        made = [Path(shutil.copy(path, destination)) for path in (wheel, source)]
    for path in made:
        say(
            f"{path.relative_to(ROOT) if ROOT in path.parents else path} ({path.stat().st_size / 1e6:.1f} MB)"
        )
    return made[0], made[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--into", type=Path, default=DIST, metavar="FOLDER", help="where to put them (default: dist)"
    )
    options = parser.parse_args(arguments)
    if PATCHABLE and platform.machine() != "x86_64":
        print(f"mxamp: wheels for {platform.machine()} are built, but were never tested.", file=sys.stderr)
    try:
        make(options.into.resolve())
    except WheelError as error:
        print(f"mxamp: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
