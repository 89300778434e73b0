"""The process that evaluates one model: ``python -m model_zoo_eval.child JOB.json RESULT.json``.

A model may crash MXNet, or take all memory, so each has a process of its own. What is known is written to the
result file after every stage; an error that Python sees is written there too, and the exit status is then 1.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from model_zoo_eval.process import FOLDER_PREFIX

__all__ = ["main"]

Publish = Callable[[Mapping[str, Any]], None]


def main(
    argv: Sequence[str], work: Callable[[Mapping[str, Any], Publish], Mapping[str, Any]] | None = None
) -> int:
    """Do the job of a file, and return the exit status.

    Parameters
    ----------
    argv
        The paths of the job and of the result.
    work
        Does the job and returns the result, publishing what is known on the way; by default it evaluates.
    """
    job_path, result_path = argv

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
        # Imported here: what is wrong with an installation is a result too.
        from mxamp.measuring.child import end_with_parent

        folder = Path(result_path).resolve().parent
        end_with_parent(lambda: _remove(folder))
        with open(job_path, encoding="utf-8") as file:
            values = json.load(file)
        remember((work or _evaluate)(values, remember))
    except Exception as error:
        traceback.print_exc()
        text = " ".join(str(error).split())
        publish({**known, "error": f"{type(error).__name__}: {text[:600]}"})
        return 1
    return 0


def _evaluate(values: Mapping[str, Any], publish: Publish) -> Mapping[str, Any]:
    from model_zoo_eval.evaluate import evaluate
    from model_zoo_eval.job import Job

    return evaluate(Job.from_mapping(values), publish)


def _remove(folder: Path) -> None:
    """Remove what the killed parent made for this process, and nothing else."""
    if folder.name.startswith(FOLDER_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
