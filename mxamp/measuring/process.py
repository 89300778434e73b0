"""Programs of mxamp's in processes of their own, where a crash or a hang does no harm."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Mapping, Sequence, TypeVar

from mxamp.measuring.child import RESULT_SUFFIX

_PACKAGE_FOLDER = str(Path(__file__).resolve().parents[2])
_LINES_READ = 4000
"""Bytes at the end of what a process said in which its last line is looked for."""

_Own = TypeVar("_Own", bound="Dialogue")


class ProcessError(Exception):
    """A process did not bring a result; says why in one line."""


def process_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment in which a program finds this very mxamp, also where it is not installed."""
    found = filter(None, (_PACKAGE_FOLDER, os.environ.get("PYTHONPATH")))
    return {**os.environ, **(changes or {}), "PYTHONPATH": os.pathsep.join(found)}


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
        (:func:`mxamp.measuring.child.do_job`).
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
    error_path = job_path.with_suffix(".err")
    with error_path.open("wb") as errors:
        try:
            code = subprocess.run(
                [sys.executable, "-m", module, str(job_path)],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=process_environment(environment),
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
        raise ProcessError(_last_line(error_path.read_bytes()) or f"the process ended with status {code}")
    try:
        return json.loads(job_path.with_suffix(RESULT_SUFFIX).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ProcessError(f"its result cannot be read: {error}") from error


def _last_line(said: bytes, unless: str | None = None) -> str:
    lines = [line.strip() for line in said[-_LINES_READ:].decode("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line and (unless is None or unless not in line)), "")


class Dialogue:
    """A process that is spoken to: messages are mappings, a line of JSON each, in both directions.

    Parameters
    ----------
    command
        The program and its arguments.
    environment
        All of its environment.

    Raises
    ------
    OSError
        When the program cannot be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                encoding="utf-8",
                errors="replace",
                env=dict(environment),
                start_new_session=True,  # the parent decides what an interrupt means
            )
        except OSError:
            self._errors.close()
            raise
        self._answers: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")  # it ended

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. A process that has died says so when its answer is waited for."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message; None where the process is gone.

        Raises
        ------
        TimeoutError
            When it says nothing for so long.
        """
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer in {seconds:g} s") from None
        try:
            message: dict[str, Any] | None = json.loads(line) if line else None
        except ValueError:  # it died in the middle of a line
            return None
        return message

    def how_it_ended(self, unless: str | None = None) -> tuple[int, str] | None:
        """Return the status with which the process ended, and the last line that it said.

        Parameters
        ----------
        unless
            What no line holds that tells anything.

        Returns
        -------
        tuple of str or None
            The status is a signal's negative number where one ended it. None where the process has not ended;
            its answers may end a moment before it does.
        """
        try:
            status = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return None
        self._errors.seek(0)
        return status, _last_line(self._errors.read(), unless)

    def kill(self) -> None:
        """End the process at once; whoever waits for its answer is told that it died."""
        self._process.kill()

    def close(self, grace: float = 0.0) -> None:
        """End the process, and let it end by itself for so many seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):  # a line that it never read
            self._process.stdin.close()
        try:
            self._process.wait(timeout=grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(timeout=1.0)
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self: _Own) -> _Own:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
