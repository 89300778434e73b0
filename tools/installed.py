"""Install the wheel into clean environments, one for each Python, and run the tests against it.

    make test-wheels                     every Python from 3.8 to 3.13 that is here
    make test-wheels ARGS="3.9 3.13"     these

An environment holds the wheel in ``dist/``, what it asks for, in the versions that constraints/ pins, and
nothing of the checkout: the tests are seen through ``build/installed/``, a folder of links to all of the
checkout but the package, so that ``import mxamp`` finds what was installed. An environment whose pins did
not change is used again, with the wheel installed anew. On Pythons that MXNet runs on only a part of the
tests is run, for `make test` runs all. The five tours (``tours/``) are run too, each where it belongs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
LINKED = ROOT / "build" / "installed"
VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
WITH_MXNET = VERSIONS[:4]

OF_TOURS = "3.11"
"""The Python that the tours with MXNet run on; the one without runs on the newest."""

FOR_TOURS = ("scikit-learn", "matplotlib", "opencv-python-headless")

SHORT = (
    "test_package.py",
    "measuring/test_child.py",
    "test_dtypes.py",
    "messages/test_installation.py",
    "files",
    "integration/test_c_predict.py",
    "integration/test_stock_mxnet.py",
    "runtime/test_library_loading.py",
)
"""The tests that are run on Pythons where `make test` could run them all."""

MARKS = "not slow and not gpu and not network and not browser"

# Built by this machine's compiler is what no user without one has.
WITHOUT_COMPILER = {"CXX": "false"}

LOOK = """
import pathlib, sys, mxamp
from mxamp.ops.kernels import kernels
package = pathlib.Path(mxamp.__file__).resolve().parent
assert pathlib.Path(sys.prefix).resolve() in package.parents, f"mxamp comes from {package}"
assert kernels() is not None, "the kernels of the wheel do not load"
if sys.argv[1:]:
    import mxnet as mx
    from mxamp.runtime.library import round_values
    assert round_values(mx.nd.array([1.0001, 70000.0]), "float16").asnumpy().tolist() == [1.0, float("inf")]
"""


class InstallError(Exception):
    """An environment cannot be made, or what is installed in it does not work."""


def say(text: str) -> None:
    """Report progress at once, also when the output is a file."""
    print(f"mxamp: {text}", flush=True)


def find_wheel() -> Path:
    """Return the wheel that make wheels made."""
    wheels = sorted((ROOT / "dist").glob("mxamp-*.whl"))
    if len(wheels) != 1:
        raise InstallError(f"There are {len(wheels)} wheels in dist/, and there should be one: make wheels")
    return wheels[0]


def link_all_but_the_package() -> None:
    """Make a folder of links to what the checkout has, the package itself left out."""
    LINKED.mkdir(parents=True, exist_ok=True)
    for link in LINKED.iterdir():
        if link.is_symlink():
            link.unlink()
    for path in ROOT.iterdir():
        kept = path.name in ("mxamp", "mxamp_command.py", "build", "dist") or path.name.endswith(".egg-info")
        if not path.name.startswith(".") and not kept:
            (LINKED / path.name).symlink_to(path)


def find_python(version: str) -> str | None:
    """Return the path of a Python, or None where it is not here."""
    completed = subprocess.run(
        ["sh", "tools/find_python.sh", "core", f".venv-wheel-{version}"],
        cwd=ROOT,
        env={**os.environ, "PYTHON": f"python{version}"},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return completed.stdout.strip() or None


def run(command: Sequence[object], what: str, extra: Mapping[str, str] | None = None) -> None:
    """Run a command beside the checkout's links, and raise InstallError where it fails."""
    environment = {**os.environ, **(extra or {})}
    environment.pop("PYTHONPATH", None)
    completed = subprocess.run([str(word) for word in command], cwd=LINKED, env=environment, check=False)
    if completed.returncode:
        raise InstallError(f"{what}: status {completed.returncode}, see above")


def install(python: str, version: str, wheel: Path) -> Path:
    """Make or renew an environment with the wheel, and return its Python."""
    environment = ROOT / f".venv-wheel-{version}"
    own = environment / "bin" / "python"
    constraints = ROOT / "constraints" / f"python{version}.txt"
    content = constraints.read_bytes() + (ROOT / "setup.py").read_bytes() + repr((FOR_TOURS, ROOT)).encode()
    stamp, made_of = environment / "mxamp-made-of", hashlib.sha256(content).hexdigest()
    pip = [own, "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    if not stamp.is_file() or stamp.read_text() != made_of:
        shutil.rmtree(environment, ignore_errors=True)
        run([python, "-m", "venv", environment], f"an environment of Python {version}")
        # Older ones do not know the newer manylinux tags.
        run([*pip, "--upgrade", "pip"], f"pip of Python {version}")
        extras = "mxnet,test" if version in WITH_MXNET else "test"
        more = FOR_TOURS if version == OF_TOURS else ()
        run([*pip, "-c", constraints, f"{wheel}[{extras}]", *more], f"the wheel on Python {version}")
        stamp.write_text(made_of)
    else:
        run([*pip, "--no-deps", "--force-reinstall", wheel], f"the wheel on Python {version}")
    return own


def test(own: Path, version: str, arguments: Sequence[str]) -> None:
    """Look at what was installed, and run tests against it."""
    run(
        [own, "-W", "ignore", "-c", LOOK, *(["with MXNet"] if version in WITH_MXNET else [])],
        f"what the wheel installed on Python {version}",
        WITHOUT_COMPILER,
    )
    which = [f"tests/{name}" for name in SHORT] if version in WITH_MXNET else ["tests"]
    gone = [name for name in which if not (LINKED / name).exists()]
    if gone:  # pytest-xdist would only say that no tests ran
        raise InstallError(f"tools/installed.py names tests that do not exist: {', '.join(gone)}")
    marks = ["-m", MARKS, "-p", "no:cacheprovider"]
    run(
        [own, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *marks, *which, *arguments],
        f"the tests against the wheel on Python {version}",
    )


def tour(own: Path, version: str) -> None:
    """Run the tours that belong to a Python."""
    if (ROOT / "tours").is_dir():
        where = {OF_TOURS: "with-mxnet", VERSIONS[-1]: "files-only"}
        if version in where:
            run([own, "-W", "ignore", "-m", "tours", where[version]], f"the tours on Python {version}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "versions", nargs="*", metavar="VERSION", help="such as 3.13 (default: all that are here)"
    )
    parser.add_argument(
        "--pytest", default="", metavar="OPTIONS", help="more options for pytest, in one word"
    )
    options = parser.parse_args(arguments)
    wanted = options.versions or list(VERSIONS)
    unknown = sorted(set(wanted) - set(VERSIONS))
    if unknown:
        parser.error(f"mxamp is not for Python {', '.join(unknown)}, but for {', '.join(VERSIONS)}")
    found = {version: find_python(version) for version in wanted}
    missing = [version for version in wanted if found[version] is None]
    for version in missing:
        say(f"there is no Python {version} here: not tested")
    tested = []
    try:
        wheel = find_wheel()
        link_all_but_the_package()
        # Two at a time: pip waits for the disk and the network half of the time.
        with ThreadPoolExecutor(2) as pool:
            began = time.monotonic()
            made = [
                (version, pool.submit(install, python, version, wheel))
                for version, python in found.items()
                if python is not None
            ]
            for version, environment in made:
                environment.result()
                say(f"{wheel.name} is installed on Python {version} ({time.monotonic() - began:.0f} s)")
        for version, environment in made:
            began = time.monotonic()
            test(environment.result(), version, options.pytest.split())
            tour(environment.result(), version)
            say(f"{wheel.name} was tested on Python {version} ({time.monotonic() - began:.0f} s)")
            tested.append(version)
    except InstallError as error:
        print(f"mxamp: {error}", file=sys.stderr)
        return 1
    say(f"{wheel.name} works on Python {', '.join(tested) or 'none'}")
    # A version that was asked for by name has to be there.
    return 1 if (options.versions and missing) or not tested else 0


if __name__ == "__main__":
    sys.exit(main())
