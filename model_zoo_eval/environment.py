"""The circumstances of a run: what a reader needs to judge its numbers, or to repeat it."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from mxamp.measuring.machine import asks_for_amx, cpu_flags, cpu_name
from mxamp.version import __version__

__all__ = ["describe_environment", "usable_cores"]

_PACKAGES = (
    *("mxnet", "gluoncv", "numpy", "scipy", "ml_dtypes", "scikit-learn", "opencv-python-headless"),
    *("onnx", "onnxruntime"),
)
_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def describe_environment(*, threads: int, seed: int) -> dict[str, Any]:
    """Return versions, processor, threads, seed and commit as plain data."""
    return {
        "mxamp": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES for found in [_version(name)] if found},
        "system": platform.platform(terse=True),
        "cpu": cpu_name(),
        "cpu_flags": _flags(),
        "cores": usable_cores(),
        "threads": threads,
        "seed": seed,
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _flags() -> list[str]:
    """Return the instruction sets that matter and that MXNet uses: AMX only where it was told to."""
    have = set(cpu_flags() or ()) - (set() if asks_for_amx() else {"amx_bf16"})
    return [flag for flag in _FLAGS if flag in have]


def _commit() -> str:
    """Return the commit of the code, with ``+`` where it was changed since; empty outside a repository."""
    folder = Path(__file__).resolve().parent
    try:
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=20, check=True
    )
    return done.stdout.strip()
