"""Run a program of mxamp's in a process of its own, where a crash or a hang does no harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Mapping

import mxamp
from mxamp.child import RESULT_SUFFIX

__all__ = ["ProcessError", "run_program"]

_LINES_READ = 4000


class ProcessError(Exception):
    """A process did not bring a result; says why in one line."""


def run_program(
    module: str,
    job: Mapping[str, Any],
    folder: Path,
    *,
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """Run a module as a program and return its result.

    Parameters
    ----------
    module
        The module, which gets the path of a job's file and writes its result beside it
        (:func:`mxamp.child.do_job`).
    job
        What it has to do, as plain data for JSON.
    folder
        Where job and result lie.
    timeout
        Seconds after which it is ended.
    environment
        Variables to set for it.

    Raises
    ------
    ProcessError
        When it crashes, takes too long, or writes nothing that can be read.
    """
    job_path = folder / f"{module.rpartition('.')[2]}-{len(list(folder.iterdir()))}.json"
    job_path.write_text(json.dumps(job), "utf-8")
    package = str(Path(mxamp.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    variables = {
        **os.environ,
        **(environment or {}),
        # The same mxamp, also where it is not installed but lies in the current folder.
        "PYTHONPATH": os.pathsep.join(filter(None, (package, inherited))),
    }
    error_path = job_path.with_suffix(".err")
    with error_path.open("wb") as errors:
        try:
            code = subprocess.run(
                [sys.executable, "-m", module, str(job_path)],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=variables,
                timeout=timeout,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise ProcessError(f"it took longer than {timeout:g} s") from None
        except OSError as error:
            raise ProcessError(f"no process could be started: {error}") from error
    if code < 0:
        raise ProcessError(f"the process was ended by signal {-code}")
    if code:
        raise ProcessError(_last_line(error_path) or f"the process ended with status {code}")
    try:
        return json.loads(job_path.with_suffix(RESULT_SUFFIX).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ProcessError(f"its result cannot be read: {error}") from error


def _last_line(path: Path) -> str:
    lines = [
        line.strip() for line in path.read_bytes()[-_LINES_READ:].decode("utf-8", "replace").splitlines()
    ]
    said = [line for line in lines if line]
    return said[-1] if said else ""
