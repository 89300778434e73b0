"""A competitor's process, as the one that started it sees it."""

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
from types import TracebackType
from typing import Any, Mapping

import mxamp
from mxamp.errors import OperatorError

__all__ = ["CompetitorProcess"]

_LAST_LINES = 4000


class CompetitorProcess:
    """A process that runs :mod:`mxamp.racing.competitor`.

    Parameters
    ----------
    label
        What messages call the competitor.
    python
        The interpreter; this process's own for None. mxamp itself is this one, its dependencies are what that
        interpreter has.
    environment
        Variables to set for it.
    timeout
        Seconds after which a job is given up.
    """

    def __init__(
        self,
        label: str,
        *,
        python: str | None = None,
        environment: Mapping[str, str] | None = None,
        timeout: float = 600.0,
    ) -> None:
        self.label = label
        self._timeout = timeout
        package = str(Path(mxamp.__file__).resolve().parent.parent)
        inherited = os.environ.get("PYTHONPATH", "")
        variables = {
            **os.environ,
            **(environment or {}),
            # The same mxamp, also where it is not installed but lies in the current folder.
            "PYTHONPATH": os.pathsep.join(filter(None, (package, inherited))),
        }
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = subprocess.Popen(
                [python or sys.executable, "-W", "ignore", "-m", "mxamp.racing.competitor"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=variables,
                text=True,
                encoding="utf-8",
            )
        except OSError as error:
            self._errors.close()
            raise OperatorError(
                f"{label} cannot run: the interpreter {python or sys.executable!r} cannot be started "
                f"({error.strerror or error})."
            ) from None
        self._answers: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")  # it ended

    def do(self, job: str, **details: Any) -> Mapping[str, Any]:
        """Let it do a job, and return its answer.

        Raises
        ------
        OperatorError
            When it cannot, takes too long, or ends.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": job, **details}) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=self._timeout)
        except OSError:
            line = ""
        except queue.Empty:
            self.close()
            raise OperatorError(f"{self.label} took longer than {self._timeout:g} s.") from None
        if not line:
            raise OperatorError(self._why_it_ended())
        answer: Mapping[str, Any] = json.loads(line)
        if "error" in answer:
            raise OperatorError(str(answer["error"]))
        return answer

    def _why_it_ended(self) -> str:
        code = self._process.wait(timeout=self._timeout)
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _LAST_LINES))
        said = [line.strip() for line in self._errors.read().decode("utf-8", "replace").splitlines()]
        last = next((line for line in reversed(said) if line), "")
        how = f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"
        return f"The process of {self.label} {how}{': ' if last else ''}{last[:400]}."

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None and not stream.closed:
                with contextlib.suppress(OSError):  # a line that it never read
                    stream.close()

    def __enter__(self) -> CompetitorProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
