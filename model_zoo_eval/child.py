"""The process that evaluates one model: ``python -m model_zoo_eval.child JOB.json RESULT.json``.

A model may crash MXNet, or take all memory, so each has a process of its own. What is known is written to the
result file after every stage; an error that Python sees is written there too, and the exit status is then 1.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from typing import Any, Mapping, Sequence

__all__ = ["main"]

_LOOK_EVERY = 1.0
"""Seconds between looks whether the parent lives."""


def main(argv: Sequence[str]) -> int:
    """Evaluate the job of a file, and return the exit status."""
    job_path, result_path = argv
    _end_with_parent()

    def publish(row: Mapping[str, Any]) -> None:
        # Renamed into place: a process that is killed while it writes leaves the stage before.
        staged = f"{result_path}.new"
        with open(staged, "w", encoding="utf-8") as file:
            json.dump(row, file, allow_nan=False)
        os.replace(staged, result_path)

    known: dict[str, Any] = {"stage": "start"}

    def remember(row: Mapping[str, Any]) -> None:
        known.clear()
        known.update(row)
        publish(row)

    try:
        with open(job_path, encoding="utf-8") as file:
            values = json.load(file)
        # Imported here: what is wrong with an installation is a result too.
        from model_zoo_eval.evaluate import evaluate
        from model_zoo_eval.job import Job

        remember(evaluate(Job.from_mapping(values), remember))
    except Exception as error:
        traceback.print_exc()
        text = " ".join(str(error).split())
        publish({**known, "error": f"{type(error).__name__}: {text[:600]}"})
        return 1
    return 0


def _end_with_parent() -> None:
    """Let this process end when the one that started it does: killed, that one cannot stop it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
