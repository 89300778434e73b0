"""Programs whose parent is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

_PATIENCE = 30.0
"""Seconds to wait for what takes one or two."""


def assert_ends_with_parent(program: str, until: Callable[[], bool]) -> None:
    """Start a program from a process, kill that process, and see the program end.

    Parameters
    ----------
    program
        Python code that would go on for longer than anybody waits.
    until
        When it is true, the process is killed.
    """
    parent = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {program!r}], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    with process.stdout as output:
        pid = int(output.readline())
    try:
        wait_until(until)
        assert is_running(pid)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not is_running(pid))


def wait_until(until: Callable[[], bool]) -> None:
    """Wait for what takes a second or two."""
    deadline = time.monotonic() + _PATIENCE
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_running(pid: int) -> bool:
    """Whether a process goes on."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that has ended stays in the table until its new parent looks.
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")
