"""What the subcommands print, and where: results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import warnings
from typing import Any, Iterator, TextIO

from mxamp.errors import MxampWarning

__all__ = ["Steps", "print_json", "show_warnings", "supports_progress"]

_PROGRESS_EVERY = 0.2
"""Seconds between two looks at the clock."""


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
        self._terminal = sys.stderr if terminal is None else terminal

    @contextlib.contextmanager
    def step(self, doing: str) -> Iterator[None]:
        """Show that something is being done."""
        if self._quiet or not supports_progress(self._terminal):
            yield
            return
        with _clock(doing, self._terminal):
            yield

    def done(self, what: str, detail: str) -> None:
        """Print what was done."""
        if not self._quiet:
            print(f"{what + ':':<12}{detail}", flush=True)


def supports_progress(stream: TextIO) -> bool:
    """Whether a line on ``stream`` can be overwritten."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


@contextlib.contextmanager
def _clock(doing: str, stream: TextIO) -> Iterator[None]:
    finished = threading.Event()
    start = time.perf_counter()

    def run() -> None:
        # Nothing is shown for what takes no time.
        while not finished.wait(_PROGRESS_EVERY):
            stream.write(f"\r{doing} ... {time.perf_counter() - start:.0f} s")
            stream.flush()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
        stream.write("\r\x1b[K")
        stream.flush()


def print_json(document: Any) -> None:
    """Print a document as JSON."""
    print(json.dumps(document, indent=1))


@contextlib.contextmanager
def show_warnings() -> Iterator[None]:
    """Print mxamp's warnings as one line each, without the place in the code that a user cannot act on."""
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
                print(f"mxamp: warning: {message}", file=sys.stderr)
            else:
                others(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
