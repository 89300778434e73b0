"""Ctrl-C while ``python -m mxamp`` imports the package: one line, as afterwards, and no traceback."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

INTERRUPTED = 130
"""The exit status: 128 + SIGINT, as shells report it."""

INTERRUPTED_TEXT = "mxamp: interrupted; nothing half-written is left behind."


def quiet_while_importing() -> None:
    """Let Ctrl-C end the process quietly where this is ``python -m mxamp``, and its imports have just begun.

    The program ``mxamp`` imports the package within a ``try``; here Python does it, before any line of ours.
    While it looks for a module to run, ``sys.argv[0]`` is ``-m``. Before Python 3.10 nothing says which one.
    """
    given = getattr(sys, "orig_argv", [])
    if sys.argv[:1] == ["-m"] and ("-m", "mxamp") in zip(given, given[1:]):
        signal.signal(signal.SIGINT, _end)


def usual_from_here() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again: there may be something to clean up now."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: Any) -> None:
    # No exception: whatever is being imported might handle it, or print it as ignored.
    os.write(2, f"{INTERRUPTED_TEXT}\n".encode())
    os._exit(INTERRUPTED)
