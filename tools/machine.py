"""What a measurement was made with: printed at the top of the demonstration and of every benchmark."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from mxamp.errors import DeviceError
from mxamp.measuring.machine import AMX_SETTING, asks_for_amx, cpu_name, has_bfloat16_instructions
from mxamp.runtime.amx import permit_amx

__all__ = ["ROOT", "describe_machine", "machine_lines", "prepare_environment", "use_amx"]

ROOT = Path(__file__).resolve().parent.parent
"""The top of the repository."""

_PACKAGES = ("mxamp", "mxnet", "gluoncv", "numpy", "ml_dtypes", "scipy")


def prepare_environment() -> None:
    """Keep downloads inside the clone, and oneDNN quiet, unless the user has said otherwise."""
    os.environ.setdefault("MXNET_HOME", str(ROOT / ".cache" / "mxnet"))
    os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")


def use_amx() -> None:
    """Let MXNet use AMX in this process where the CPU has it and the system permits it.

    Where the user has said how far oneDNN may go, that stands. Call it before anything of MXNet runs.
    """
    variable, value = AMX_SETTING
    if variable in os.environ:
        return
    os.environ[variable] = value
    try:
        permit_amx()
    except DeviceError:
        del os.environ[variable]


def describe_machine(*, seed: int | None = None) -> dict[str, object]:
    """Return versions, CPU, threads, seed and commit.

    Parameters
    ----------
    seed : int, optional
        The seed of the run, where it has one.
    """
    return {
        "commit": _commit(),
        "seed": seed,
        "cpu": cpu_name(),
        "native_bfloat16": has_bfloat16_instructions() is True,
        "amx": asks_for_amx(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS", "one per core"),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def machine_lines(machine: dict[str, object]) -> list[str]:
    """Return a description of :func:`describe_machine` as lines of text."""
    versions = machine["versions"]
    assert isinstance(versions, dict)
    native = "runs bfloat16 natively" if machine["native_bfloat16"] else "has NO native bfloat16"
    amx = [f"          AMX in use ({'='.join(AMX_SETTING)})"] if machine["amx"] else []
    seed = "" if machine["seed"] is None else f", seed {machine['seed']}"
    lines = [
        f"CPU       {machine['cpu']}, {machine['cores']} cores, {native}",
        *amx,
        f"Threads   {machine['threads']} (load of the machine at the start: {machine['load_average']})",
        f"Versions  Python {machine['python']}, "
        + ", ".join(f"{name} {version}" for name, version in versions.items()),
        f"Commit    {machine['commit']}{seed}",
    ]
    if not machine["native_bfloat16"]:
        lines.append(
            "          Without avx512_bf16 MXNet imitates bfloat16 in software, and needs AVX-512 for it:\n"
            "          the times and ratios below say nothing about a CPU that has it. Sizes, casts,\n"
            "          fidelity and accuracy hold."
        )
    return lines


def _version(package: str) -> str:
    try:
        # gluoncv.__version__ of 0.10.5.post0 says "0.11.0"; its metadata is right.
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        if package != "mxamp":
            return "none"
        from mxamp.version import __version__

        return __version__


def _commit() -> str:
    """Return the commit of the working tree, marked where it was edited since."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=-edited", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
