"""A process that mxamp started for one job: it reads the job, writes the result, and ends with its parent."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Callable, Mapping

RESULT_SUFFIX = ".result"
"""A result is called like its job, but for this."""

_LOOK_EVERY = 1.0
"""Seconds between looks whether the parent lives."""


def do_job(work: Callable[[Mapping[str, Any]], Any], path: str) -> None:
    """Do what a file asks for, and write the result beside it.

    Parameters
    ----------
    work
        Takes the job and returns the result, both plain data for JSON.
    path
        The job's file. The result appears whole or not at all.
    """
    end_with_parent()
    job_path = Path(path)
    found = work(json.loads(job_path.read_text("utf-8")))
    result = job_path.with_suffix(RESULT_SUFFIX)
    staged = result.with_suffix(".part")
    staged.write_text(json.dumps(found), "utf-8")
    os.replace(staged, result)


def end_with_parent(clean_up: Callable[[], None] = lambda: None) -> None:
    """Let this process end soon after the one that started it was killed, which could not end it.

    Parameters
    ----------
    clean_up
        Called before, in a thread.

    Notes
    -----
    An orphan gets another parent on Linux and macOS. Elsewhere it goes on.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY)
        clean_up()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
