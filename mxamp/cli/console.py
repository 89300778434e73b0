"""What the subcommands print, and where: results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence, TextIO, TypeVar

from mxamp.errors import MxampError, MxampWarning
from mxamp.report.short import labelled
from mxamp.report.table import terminal_width

if TYPE_CHECKING:
    from mxamp.cli.terminal import Clock

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
        self._clock: Clock | None = None
        self._terminal = sys.stderr if terminal is None else terminal

    @contextlib.contextmanager
    def step(self, doing: str) -> Iterator[Callable[[int, int], None]]:
        """Show that something is being done.

        Yields
        ------
        callable
            To be called with the bytes done and the bytes to do, where that is known: shows a bar.
        """
        if self._quiet or not supports_progress(self._terminal):
            yield _note_nothing
            return
        from mxamp.cli.terminal import Clock

        clock = self._clock = Clock(doing, self._terminal)
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


def print_labelled(lines: Sequence[tuple[str, str]]) -> None:
    """Print lines with their labels in a column."""
    for label, sentence in lines:
        first, *others = labelled([(label, sentence)], terminal_width())
        size = len(label) + 1
        _print_styled(sys.stdout, "", first[:size], first[size:], "bold")
        for line in others:
            print(line)


def print_message(kind: str, message: object) -> None:
    """Print ``mxamp: warning: ...`` or the like on standard error.

    Parameters
    ----------
    kind
        ``"error"`` or ``"warning"``.
    message
        What is to be said.
    """
    style = "bold red" if kind == "error" else "bold yellow"
    _print_styled(sys.stderr, "mxamp: ", f"{kind}:", f" {message}", style)


def _print_styled(stream: TextIO, start: str, styled: str, rest: str, style: str) -> None:
    if stream.isatty():
        from mxamp.cli.terminal import print_styled

        print_styled(stream, start, styled, rest, style)
    else:
        print(f"{start}{styled}{rest}", file=stream)


def _note_nothing(done: int, total: int) -> None:
    """Take no notice of how far a step is."""


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
                if str(message) in shown.texts:
                    return  # what compares several models finds the same in their data each time
                shown.texts.append(str(message))
                print_message("warning", message)
            else:
                others(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield shown
