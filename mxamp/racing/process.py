"""A competitor's process, as the one that started it sees it."""

from __future__ import annotations

import sys
from typing import Any, Mapping

from mxamp.errors import OperatorError
from mxamp.measuring.process import Dialogue, process_environment


class CompetitorProcess(Dialogue):
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
        python = python or sys.executable
        try:
            super().__init__(
                [python, "-W", "ignore", "-m", "mxamp.racing.competitor"], process_environment(environment)
            )
        except OSError as error:
            raise OperatorError(
                f"{label} cannot run: the interpreter {python!r} cannot be started "
                f"({error.strerror or error})."
            ) from None

    def do(self, job: str, **details: Any) -> Mapping[str, Any]:
        """Let it do a job, and return its answer.

        Raises
        ------
        OperatorError
            When it cannot, takes too long, or ends.
        """
        self.send({"do": job, **details})
        try:
            answer = self.receive(self._timeout)
        except TimeoutError:
            self.close()
            raise OperatorError(f"{self.label} took longer than {self._timeout:g} s.") from None
        if answer is None:
            raise OperatorError(self._why_it_ended())
        if "error" in answer:
            raise OperatorError(str(answer["error"]))
        return answer

    def _why_it_ended(self) -> str:
        status, last = self.how_it_ended() or (0, "")
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"The process of {self.label} {how}{': ' if last else ''}{last[:400]}."
