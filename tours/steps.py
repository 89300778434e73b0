"""What the tours share: saying what comes next, and running mxamp's command line."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from mxamp.cli.main import main

__all__ = ["ROOT", "TourError", "mxamp", "run", "say"]

ROOT = Path(__file__).resolve().parent.parent
"""The checkout, where the models are."""


class TourError(Exception):
    """A step of a tour did not do what the tour says."""


def say(text: str) -> None:
    """Say what the next step does."""
    print(f"\n# {text}", flush=True)


def mxamp(*words: object) -> None:
    """Run a command of mxamp, as a shell would, and show it.

    Raises
    ------
    TourError
        When its exit status is not 0.
    """
    arguments = [str(word) for word in words]
    print(f"$ {shlex.join(['mxamp', *arguments])}", flush=True)
    status = main(arguments)
    if status:
        raise TourError(f"mxamp {arguments[0]} ended with status {status}")


def run(program: str, *words: object) -> str:
    """Run a Python program where mxamp cannot be imported, and return what it prints.

    Raises
    ------
    TourError
        When it fails.
    """
    blocked = "import sys; sys.modules['mxamp'] = None\n"
    command = [sys.executable, "-I", "-W", "ignore", "-c", blocked + program, *map(str, words)]
    completed = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if completed.returncode:
        raise TourError(f"the program ended with status {completed.returncode}")
    return completed.stdout
