"""Processes that die, and disks that fill up, at a chosen system call."""

from __future__ import annotations

import errno
import os
import signal
from typing import Any, Callable, Iterator

CALLS = ("mkdir", "open", "link", "symlink", "replace", "rename", "unlink", "rmdir", "fsync")
"""What changes a folder, or makes a change last."""

SPACE_TAKING = ("mkdir", "open", "link", "symlink", "fsync")
"""What fails on a full disk."""


class Breaking:
    """Counts system calls, and breaks one of them.

    Parameters
    ----------
    monkeypatch
        Puts the functions of ``os`` back.
    calls
        Their names.
    at
        The number of the first call to break; None for none.
    breaks
        What happens then.
    lasting
        Whether all later ones break too.
    """

    def __init__(self, monkeypatch: Any, calls: Any, at: int | None, breaks: Any, *, lasting: bool = False):
        self.count = 0
        for name in calls:
            monkeypatch.setattr(os, name, self._breaking(name, at, breaks, lasting))

    def _breaking(self, name: str, at: int | None, breaks: Any, lasting: bool) -> Any:
        call = getattr(os, name)

        def broken(*args: Any, **options: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return call(*args, **options)  # changes nothing
            self.count += 1
            if at is not None and (self.count == at or (lasting and self.count > at)):
                breaks()
            return call(*args, **options)

        return broken


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fill_up() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def dies_at_each_call(monkeypatch: Any, work: Callable[[], Any]) -> Iterator[int]:
    """Run ``work`` in processes that die at the first call, at the second, and so on until one survives.

    Yields
    ------
    int
        The number of the call, after the process has died there.
    """
    at = 0
    while True:
        at += 1
        child = os.fork()
        if not child:
            try:
                Breaking(monkeypatch, CALLS, at, die)
                work()
                os._exit(0)
            except BaseException:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, f"the work failed with call {at} intact"
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        yield at
