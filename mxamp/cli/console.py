"""What the subcommands print, and where: results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import warnings
from typing import Any, Callable, Iterator, Sequence, TextIO, TypeVar

from mxamp.errors import MxampError, MxampWarning
from mxamp.report.table import format_bytes, terminal_width

__all__ = [
    "Mistakes",
    "SeveralMistakesError",
    "ShownWarnings",
    "Steps",
    "StrictError",
    "print_json",
    "show_comparison_progress",
    "show_warnings",
    "supports_progress",
]

_Checked = TypeVar("_Checked")

_PROGRESS_EVERY = 0.2
"""Seconds between two looks at the clock."""

_BAR = 24
"""Characters of a full bar."""


class Steps:
    """The steps of a long command: one line each on standard output when done, a running clock meanwhile.

    Parameters
    ----------
    quiet
        Print no lines; the clock too stays off.
    terminal
        Where the clock is shown, if that is a terminal; by default standard error.
    """

    def __init__(self, *, quiet: bool, terminal: TextIO | None = None) -> None:
        self._quiet = quiet
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
            self._clock.doing = doing

    def done(self, what: str, detail: str) -> None:
        """Print what was done."""
        if not self._quiet:
            print(f"{what + ':':<12}{detail}", flush=True)


def supports_progress(stream: TextIO) -> bool:
    """Whether a line on ``stream`` can be overwritten."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class _Clock:
    """A line that shows how long something has taken, and how far it is."""

    def __init__(self, doing: str, stream: TextIO) -> None:
        self.doing, self._stream = doing, stream
        self._start = time.perf_counter()
        self._done: tuple[int, int] | None = None

    def note(self, done: int, total: int) -> None:
        """Note how far it is."""
        self._done = done, total

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Show the line meanwhile, on a thread."""
        finished = threading.Event()

        def run() -> None:
            # Nothing is shown for what takes no time.
            while not finished.wait(_PROGRESS_EVERY):
                self._stream.write(f"\r{self._line()}\x1b[K")
                self._stream.flush()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            finished.set()
            thread.join()
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _line(self) -> str:
        seconds = f"{time.perf_counter() - self._start:.0f} s"
        if self._done is None:
            return f"{self.doing} ... {seconds}"
        done, total = self._done
        share = done / total if total else 1.0
        filled = round(share * _BAR)
        bar = "#" * filled + "." * (_BAR - filled)
        # Too long a line would be wrapped, and stay.
        room = max(8, terminal_width() - _BAR - 40)
        doing = self.doing if len(self.doing) <= room else f"{self.doing[: room - 3]}..."
        return f"{doing} [{bar}] {share:.0%} of {format_bytes(total)}, {seconds}"


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
                print(f"mxamp: warning: {message}", file=sys.stderr)
            else:
                others(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield shown
