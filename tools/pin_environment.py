"""Choose the versions that are installed together, and write them to constraints/.

    python3.11 tools/pin_environment.py [NAME==VERSION ...]
    python3.11 tools/pin_environment.py --peers     the set of make bench-peers and make verify-onnx

The set is for the Python that runs this. pip resolves what setup.py asks for (its ``demo`` and ``dev`` extras
where MXNet runs, its ``test`` extra on Python 3.12 and newer), with the given versions held, and nothing is
installed. Afterwards ``make environment`` installs the set and imports it, and ``make test`` says whether it
works.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Sequence

ROOT = Path(__file__).resolve().parent.parent

NEWEST_WITH_MXNET = (3, 11)

# GluonCV asks for opencv-python, which does not load where libGL and the libraries of a display are missing;
# the headless build of the same version holds the same modules and loads anywhere.
REPLACED = {"opencv-python": "opencv-python-headless"}

PEERS = (
    *("onnx==1.21.0", "onnxruntime==1.24.4", "onnxconverter-common==1.16.0", "apache-tvm==0.27.0.post1"),
    *("torch==2.13.0", "torchvision==0.28.0", "onnx2torch==1.5.15", "nvidia-modelopt==0.47.0"),
    # Of ModelOpt's extra for ONNX what conversion imports; cupy and cppimport are for CUDA and for
    # quantization, and it asks for onnxruntime-gpu.
    *("lief", "onnx-graphsurgeon", "onnxscript", "onnxslim", "polygraphy"),
)
"""The converters that mxamp is compared with, and the runtimes that compute FP16 on CPUs."""

OF_CUDA = re.compile(r"nvidia-(?!modelopt|ml-py)|cuda-|triton")
"""What PyTorch's build for CUDA needs; its build for CPUs does not."""


def resolve(requirements: Sequence[str]) -> list[dict[str, Any]]:
    """Return pip's report entries for all packages that the requirements need."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        report = Path(folder) / "report.json"
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        pip = [
            str(environment / "bin" / "python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "-qq",
        ]
        # A report needs pip 22.2, and some Pythons bundle an older one.
        subprocess.run([*pip, "--upgrade", "pip"], check=True)
        options = ["--dry-run", "--ignore-installed", "--report", str(report)]
        subprocess.run([*pip, *options, *requirements], check=True)
        entries: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
    return entries


def pins(entries: Sequence[dict[str, Any]]) -> list[str]:
    """Return one ``name==version`` line for each package but mxamp itself, sorted by name."""
    versions = {}
    for entry in entries:
        name = re.sub(r"[-_.]+", "-", entry["metadata"]["name"]).lower()
        # A build for CPUs is told by a suffix, +cpu, which an index need not have.
        versions[REPLACED.get(name, name)] = entry["metadata"]["version"].partition("+")[0]
    versions.pop("mxamp", None)
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("held", nargs="*", metavar="NAME==VERSION", help="a version to keep")
    parser.add_argument("--peers", action="store_true", help="the set of what mxamp is compared with")
    options = parser.parse_args(arguments)
    major, minor = sys.version_info[:2]
    if options.peers:
        path = ROOT / "constraints" / f"peers-python{major}.{minor}.txt"
        entries = resolve([*PEERS, "setuptools", *options.held])
        lines = [line for line in pins(entries) if not OF_CUDA.match(line)]
        header = [f"# The peers on Python {major}.{minor}, made by:"]
        command = " ".join([f"python{major}.{minor} tools/pin_environment.py --peers", *options.held])
        path.write_text("\n".join([*header, f"#   {command}", *lines]) + "\n", encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(lines)} packages")
        return 0
    extras = "demo,dev" if (major, minor) <= NEWEST_WITH_MXNET else "test"
    # setuptools builds mxamp into the environment; a new environment on Python 3.12 has none.
    lines = pins(resolve([f"{ROOT}[{extras}]", "setuptools", *options.held]))
    command = " ".join([f"python{major}.{minor} tools/pin_environment.py", *options.held])
    path = ROOT / "constraints" / f"python{major}.{minor}.txt"
    header = [f"# mxamp[{extras}] on Python {major}.{minor}, made by:", f"#   {command}"]
    path.write_text("\n".join([*header, *lines]) + "\n", encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {len(lines)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
