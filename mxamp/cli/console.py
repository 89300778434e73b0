"""What the subcommands print, and where: results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from typing import Any, Callable, ContextManager, Iterator, Sequence, TextIO, TypeVar

import rich.console
import rich.progress
import rich.text

from mxamp.errors import MxampError, MxampWarning
from mxamp.report.short import labelled
from mxamp.report.table import format_bytes, terminal_width

__all__ = [
    "Mistakes",
    "SeveralMistakesError",
    "ShownWarnings",
    "Steps",
    "StrictError",
    "add_verbose_option",
    "console",
    "print_json",
    "print_labelled",
    "print_message",
    "show_comparison_progress",
    "show_warnings",
    "supports_progress",
]

_Checked = TypeVar("_Checked")


class Steps:
    """The steps of a long command: one line each on standard output when done, a running clock meanwhile.

    Parameters
    ----------
    quiet
        Print no lines; the clock too stays off.
    verbose
        Whether to print lines at all: what was done is told at the end otherwise.
    terminal
        Where the clock is shown, if that is a terminal; by default standard error.
    """

    def __init__(self, *, quiet: bool, verbose: bool = True, terminal: TextIO | None = None) -> None:
        self._quiet = quiet
        self._verbose = verbose
        self._clock: _Clock | None = None
        self._terminal = sys.stderr if terminal is None else terminal

    @contextlib.contextmanager
    def step(self, doing: str) -> Iterator[Callable[[int, int], None]]:
        """Show that something is being done.

        Yields
        ------
        callable
            To be called with the bytes done and the bytes to do, where that is known: shows a bar.
        """
        clock = self._clock = _Clock(doing, self._terminal)
        if self._quiet or not supports_progress(self._terminal):
            yield clock.note
            return
        with clock.running():
            yield clock.note

    def now(self, doing: str) -> None:
        """Say what the step that is under way has come to; its clock goes on."""
        if self._clock is not None:
            self._clock.say(doing)

    def done(self, what: str, detail: str) -> None:
        """Print what was done."""
        if not self._quiet and self._verbose:
            print(f"{what + ':':<12}{detail}", flush=True)


def supports_progress(stream: TextIO) -> bool:
    """Whether a line on ``stream`` can be overwritten."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class _Clock:
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


def print_labelled(lines: Sequence[tuple[str, str]]) -> None:
    """Print lines with their labels in a column."""
    out = console(sys.stdout)
    for label, sentence in lines:
        for number, line in enumerate(labelled([(label, sentence)], terminal_width())):
            text = rich.text.Text(line)
            if not number:
                text.stylize("bold", 0, len(label) + 1)
            out.print(text)


def print_message(kind: str, message: object) -> None:
    """Print ``mxamp: warning: ...`` or the like on standard error.

    Parameters
    ----------
    kind
        ``"error"`` or ``"warning"``.
    message
        What is to be said.
    """
    text = rich.text.Text("mxamp: ")
    text.append(f"{kind}:", style="bold red" if kind == "error" else "bold yellow")
    text.append(f" {message}")
    console(sys.stderr).print(text)


def add_verbose_option(parser: Any) -> None:
    """Add ``--verbose``."""
    parser.add_argument("-v", "--verbose", action="store_true", help="tell everything, and not in short")


def show_comparison_progress(stage: str, done: int, total: int) -> None:
    """Show how far a comparison is, on standard error."""
    end = "\n" if done == total else ""
    print(f"\r{stage}: {done} of {total}", end=end, file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    """Print a document as JSON."""
    print(json.dumps(document, indent=1))


class SeveralMistakesError(MxampError):
    """A command line has several mistakes.

    Parameters
    ----------
    errors
        What is wrong, one error each.
    """

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)


class Mistakes:
    """Checks of a command line that do not depend on each other: one run tells what all of them found."""

    def __init__(self) -> None:
        self._errors: list[Exception] = []

    def check(self, check: Callable[[], _Checked]) -> _Checked | None:
        """Return what a check returns; None where it found a mistake."""
        try:
            return check()
        except (MxampError, OSError) as error:
            self.note(error)
            return None

    def note(self, error: Exception) -> None:
        """Note a mistake."""
        self._errors.append(error)

    def tell(self) -> None:
        """Raise what was found.

        Raises
        ------
        MxampError, OSError
            The mistake, or a :class:`SeveralMistakesError`.
        """
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise SeveralMistakesError(self._errors)


class StrictError(MxampError):
    """There were warnings, and ``--strict`` was given."""


class ShownWarnings:
    """The warnings that a command showed.

    Parameters
    ----------
    strict
        Whether each of them is an error.
    """

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.texts: list[str] = []

    def refuse(self, what: str = "") -> None:
        """End the command where there were warnings that are errors.

        Parameters
        ----------
        what
            What has not been done because of them, as a sentence.

        Raises
        ------
        StrictError
            With ``--strict``, where there were any.
        """
        if not self.strict or not self.texts:
            return
        count = len(self.texts)
        which = "the warning above is an error" if count == 1 else f"the {count} warnings above are errors"
        raise StrictError(f"With --strict {which}.{' ' if what else ''}{what}")


@contextlib.contextmanager
def show_warnings(*, strict: bool = False) -> Iterator[ShownWarnings]:
    """Print mxamp's warnings as one line each, without the place in the code that a user cannot act on."""
    shown = ShownWarnings(strict=strict)
    with warnings.catch_warnings():
        # A warning is news each time, not once a place.
        warnings.simplefilter("always", MxampWarning)
        others = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, MxampWarning):
                shown.texts.append(str(message))
                print_message("warning", message)
            else:
                others(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield shown
