"""What rich draws on a terminal: a running clock with a bar, and color."""

from __future__ import annotations

import sys
from typing import ContextManager, TextIO

import rich.console
import rich.progress
import rich.text

from mxamp.report.table import format_bytes, terminal_width


class Clock:
    """A line that shows how long something has taken, and how far it is, where the stream is a terminal."""

    def __init__(self, doing: str, stream: TextIO) -> None:
        self._console = console(stream)
        # What is written meanwhile (warnings) appears above the line.
        self._progress = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}", markup=False),
            rich.progress.BarColumn(24),
            _Size(),
            rich.progress.TimeElapsedColumn(),
            console=self._console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=stream is sys.stderr,
        )
        self._task = self._progress.add_task(self._short(doing), total=None)

    def say(self, doing: str) -> None:
        """Say what it has come to."""
        self._progress.update(self._task, description=self._short(doing))

    def note(self, done: int, total: int) -> None:
        """Note how far it is, in bytes."""
        self._progress.update(self._task, completed=done, total=max(total, 1))

    def running(self) -> ContextManager[object]:
        """Show the line meanwhile."""
        return self._progress

    def _short(self, text: str) -> str:
        # Too long a line would be wrapped, and stay.
        room = max(8, self._console.width - 56)
        return text if len(text) <= room else f"{text[: room - 3]}..."


class _Size(rich.progress.ProgressColumn):
    """``25 % of 4.00 GB``, where that is known."""

    def render(self, task: rich.progress.Task) -> rich.text.Text:
        """Return it for one task."""
        if task.total is None:
            return rich.text.Text("")
        return rich.text.Text(f"{task.percentage:.0f} % of {format_bytes(task.total)}")


def console(stream: TextIO) -> rich.console.Console:
    """Return what writes to a stream: in color where that is a terminal and NO_COLOR is not set."""
    return rich.console.Console(
        file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True, width=terminal_width()
    )


def print_styled(stream: TextIO, start: str, styled: str, rest: str, style: str) -> None:
    """Print a line, a part of it in a style where the stream is a terminal.

    Parameters
    ----------
    stream
        Where.
    start, styled, rest
        The line.
    style
        The style of the middle part, in rich's words.
    """
    text = rich.text.Text(start)
    text.append(styled, style=style)
    text.append(rest)
    console(stream).print(text)
