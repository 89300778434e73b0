"""Run jobs in the environment of the peers, each in a process of its own, within limits."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path
from typing import Any, Sequence

from tools.machine import ROOT

__all__ = ["PEERS_PYTHON", "JobError", "run_job", "versions"]

PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
"""What ``make`` sets up for ``bench-peers`` and ``verify-onnx``."""

_SAID = 400


class JobError(Exception):
    """A job failed; the message is the last that it said."""


def run_job(
    *arguments: object, seconds: float = 900, memory: int = 6 << 30, threads: int = 2
) -> dict[str, Any]:
    """Do a job of ``tools.peers.inside`` and return what it said.

    Parameters
    ----------
    *arguments
        The job and its arguments.
    seconds
        How long it may take.
    memory
        How many bytes of memory it may have, as data of its own.
    threads
        Of the runtime.

    Raises
    ------
    JobError
        When it fails, takes too long or too much memory.
    """
    command = [str(PEERS_PYTHON), "-W", "ignore", "-m", "tools.peers.inside", *map(str, arguments)]
    environment = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "TVM_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads)),
    }

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            timeout=seconds,
            check=False,
            preexec_fn=limit,
        )
    except subprocess.TimeoutExpired:
        raise JobError(f"not done after {seconds:.0f} s") from None
    except FileNotFoundError:
        raise JobError(f"{PEERS_PYTHON} is not there; make bench-peers sets it up") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        raise JobError((lines or [f"it ended with status {done.returncode}"])[-1][:_SAID])
    found: dict[str, Any] = json.loads(done.stdout.decode("utf-8").splitlines()[-1])
    return found


def versions() -> dict[str, Any]:
    """Return the versions of all that the environment has."""
    return run_job("versions")


def arrays(path: Path) -> Sequence[Any]:
    """Return the outputs that a job saved, in order."""
    import numpy as np

    with np.load(path) as file:
        return [file[f"arr_{number}"] for number in range(len(file.files))]
