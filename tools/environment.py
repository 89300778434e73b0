"""Make the virtual environment that the make targets run in, or bring it up to date.

    python tools/environment.py full .venv         mxamp, MXNet, GluonCV, the demonstration, tests and linters
    python tools/environment.py core .venv-core    mxamp and its tests, without MXNet
    python tools/environment.py peers .venv-peers  other converters, PyTorch and TVM, to compare with
    python tools/environment.py runtimes .venv-runtimes    the first, and OpenVINO (constraints/runtimes.txt)

The Python that runs this script becomes the environment's. What is installed is what constraints/ pins
for that Python. An environment that is already right is left alone; nothing outside the clone is written.
Only the standard library is used, and only syntax that Python 3.8 knows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Sequence

ROOT = Path(__file__).resolve().parent.parent
STAMP = "mxamp-installed.json"

# pip before this one does not know the manylinux_2_28 wheels that the pinned versions come in.
OLDEST_PIP = (21, 0)

# MXNet 1.9.1 is published for these; elsewhere pip would only say that no version matches.
MXNET_PLATFORMS = (("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "x86_64"))

CHECKS = {
    "full": ("numpy", "scipy", "ml_dtypes", "mxnet", "cv2", "sklearn", "gluoncv", "pytest", "mxamp"),
    "core": ("numpy", "scipy", "ml_dtypes", "pytest", "mxamp"),
    # Not onnx2torch: it imports torchvision, whose wheel may need help (tools/peers/inside.py).
    "peers": ("numpy", "onnxruntime", "onnxconverter_common", "torch", "tvm", "modelopt.onnx.autocast"),
}
CHECKS["runtimes"] = (*CHECKS["full"], "onnx", "onnxruntime", "openvino")

RUNTIMES = ROOT / "constraints" / "runtimes.txt"
"""What the environment of the runtimes has beside the full one."""


class SetupError(Exception):
    """The environment cannot be made; the message says why and what to do."""


def say(text: str) -> None:
    """Report progress at once, also when the output is a file."""
    print(f"mxamp: {text}", flush=True)


def constraints_file(kind: str) -> Path:
    """Return the pinned set for the running Python."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    prefix = "peers-python" if kind == "peers" else "python"
    path = ROOT / "constraints" / f"{prefix}{version}.txt"
    if not path.is_file():
        known = sorted(file.stem for file in path.parent.glob(f"{prefix}*.txt"))
        raise SetupError(
            f"There is no pinned set for Python {version}; there are sets for {', '.join(known)}."
        )
    return path


def fingerprint(kind: str, constraints: Path) -> dict[str, str]:
    """Describe all that decides what is in the environment; equal descriptions need no new installation."""
    digest = hashlib.sha256()
    ops = ROOT / "mxamp" / "ops"
    native = (
        ops / "build.py",
        ops / "libraries.py",
        *sorted((ops / "src").glob("*.h")),
        *sorted((ops / "src").glob("*.cc")),
    )
    package = (ROOT / "setup.py", ROOT / "pyproject.toml", ROOT / "mxamp" / "version.py")
    for path in (*package, *native, constraints, *([RUNTIMES] if kind == "runtimes" else [])):
        digest.update(path.read_bytes() + b"\0")
    return {
        "kind": kind,
        "python": sys.version,
        "root": str(ROOT),
        "sources": digest.hexdigest(),
    }


def read_stamp(environment: Path) -> dict[str, object]:
    """Return the description of what was installed, or an empty one where this script did not make it."""
    try:
        document = json.loads((environment / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def write_stamp(environment: Path, description: dict[str, str], *, complete: bool) -> None:
    """Record what the environment holds, or was about to hold when an installation was interrupted."""
    text = json.dumps({**description, "complete": complete}, indent=2)
    (environment / STAMP).write_text(text + "\n", encoding="utf-8")


def create(environment: Path, found: dict[str, object]) -> None:
    """Make an empty environment in the place of an earlier one of ours."""
    if not found and environment.is_dir() and any(environment.iterdir()):
        raise SetupError(
            f"{environment} exists, but make did not make it, so it is left alone. Move it away, or "
            "remove it if nobody needs it, and try again."
        )
    say(f"creating {environment.name} with Python {platform.python_version()} ({sys.executable})")
    shutil.rmtree(environment, ignore_errors=True)
    run(
        [sys.executable, "-m", "venv", environment],
        f"{sys.executable} could not create an environment; its own message is above.",
    )


def run(command: Sequence[object], failure: str) -> None:
    """Run a command in the root of the clone, and raise SetupError with ``failure`` where it fails."""
    completed = subprocess.run([str(part) for part in command], cwd=str(ROOT), check=False)
    if completed.returncode:
        raise SetupError(failure)


def pip_version(python: Path) -> tuple[int, ...]:
    """Return the version of the environment's pip."""
    command = [str(python), "-c", "import pip; print(pip.__version__)"]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def install(kind: str, python: Path, constraints: Path) -> None:
    """Install the pinned packages and mxamp itself, in place, into the environment."""
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    failure = (
        "pip could not install the packages; its own message is above. They come from the Python package "
        "index, so this needs a network connection, or pip configured for a mirror. Run the same command "
        "again to go on."
    )
    if pip_version(python) < OLDEST_PIP:
        run([*pip, "--upgrade", "pip"], failure)
    if kind in ("full", "runtimes"):
        say(f"installing what constraints/{constraints.name} pins (a few minutes the first time) ...")
        # --no-deps: the set is complete, and the OpenCV that GluonCV asks for needs the libraries of a
        # display (constraints/README.md).
        run([*pip, "--no-deps", "-r", constraints], failure)
        if kind == "runtimes":
            run([*pip, "--no-deps", "-r", RUNTIMES], failure)
        run([*pip, "--no-deps", "--no-build-isolation", "-e", ROOT], failure)
    elif kind == "peers":
        say(f"installing what constraints/{constraints.name} pins (PyTorch and TVM are large) ...")
        # PyTorch with its dependencies: a build for CUDA needs NVIDIA's libraries, which a CPU's does not.
        run([*pip, "-c", constraints, "torch"], failure)
        run([*pip, "--no-deps", "-r", constraints], failure)
    else:
        say(f"installing what needs no MXNet, as pinned in constraints/{constraints.name} ...")
        run([*pip, "-c", constraints, "setuptools"], failure)
        run([*pip, "-c", constraints, "--no-build-isolation", "-e", f"{ROOT}[test]"], failure)


def check_imports(kind: str, python: Path) -> None:
    """Import what was installed: a package may install well and still not load."""
    say(f"checking that {', '.join(CHECKS[kind])} can be imported ...")
    # mxnet and gluoncv warn about retired NumPy names when they are imported; that is no news here.
    statement = "import " + ", ".join(CHECKS[kind])
    completed = subprocess.run(
        [str(python), "-W", "ignore", "-c", statement],
        cwd=str(ROOT),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if not completed.returncode:
        return
    advice = "Remove the environment and try again; if it fails again, please report it with this text."
    if ".so" in completed.stdout:
        advice = (
            "A library of the operating system is missing. MXNet needs libgomp and libquadmath: on Debian "
            "and Ubuntu, sudo apt install libgomp1 libquadmath0."
        )
    raise SetupError(
        f"{completed.stdout}\nThe packages are installed, but the imports fail (above). {advice}"
    )


def report_native(python: Path) -> None:
    """Say so when the native kernels were not built: pip keeps a build's warnings to itself."""
    statement = "import sys; from mxamp.ops.kernels import kernels; sys.exit(kernels() is None)"
    if subprocess.run([str(python), "-W", "ignore", "-c", statement], cwd=str(ROOT), check=False).returncode:
        say(
            "the native kernels could not be built; everything works without them, slower. This says why: "
            f"{python} -m mxamp.ops.build"
        )


def prepare(kind: str, environment: Path) -> None:
    """Make ``environment`` hold what ``kind`` asks for, doing no more than is needed."""
    constraints = constraints_file(kind)
    if kind in ("full", "runtimes") and (platform.system(), platform.machine()) not in MXNET_PLATFORMS:
        raise SetupError(
            f"MXNet 1.9.1 is not published for {platform.system()} on {platform.machine()}: only for Linux "
            "(x86-64, ARM) and macOS (x86-64). The part of mxamp that needs no MXNet works here: "
            "make test-core."
        )
    wanted = fingerprint(kind, constraints)
    found = read_stamp(environment)
    if found == {**wanted, "complete": True}:
        return
    began = time.monotonic()
    # Packages can be exchanged in place; another Python, or a clone that was moved, needs a new environment.
    if any(found.get(key) != wanted[key] for key in ("kind", "python", "root")):
        create(environment, found)
    python = environment / "bin" / "python"
    write_stamp(environment, wanted, complete=False)
    install(kind, python, constraints)
    check_imports(kind, python)
    if kind != "peers":  # which has no mxamp
        report_native(python)
    write_stamp(environment, wanted, complete=True)
    say(f"{environment.name} is ready ({time.monotonic() - began:.0f} s)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=sorted(CHECKS))
    parser.add_argument("environment", type=Path)
    options = parser.parse_args(arguments)
    if os.environ.get("PYTHONHOME"):
        # It would send the environment's Python to another one's library.
        del os.environ["PYTHONHOME"]
    try:
        prepare(options.kind, ROOT / options.environment)
    except SetupError as error:
        print(f"mxamp: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
