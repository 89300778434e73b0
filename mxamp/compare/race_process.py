"""Run plans of a model by turns; a program, for a plan that crashes takes its process with it."""

from __future__ import annotations

import sys
from typing import Any, Mapping

import numpy as np

from mxamp.compare.race import race, timed
from mxamp.measuring.child import do_job
from mxamp.measuring.race import TimedRun
from mxamp.model import Model, load


def main(path: str) -> None:
    """Do what a job's file asks for, and write the result beside it."""
    do_job(_race_plans, path)


def _race_plans(job: Mapping[str, Any]) -> Any:
    with np.load(job["data"]) as arrays:
        data = dict(arrays)

    def bind(model: Model, label: str) -> TimedRun:
        from mxamp.runtime.executor import BoundModel

        return timed(BoundModel(model, ctx=job["ctx"], label=label), data)

    models: list[Any] = [load(prefix) for prefix in job["models"]]
    found = race(
        models,
        rounds=job["rounds"],
        seconds=job["seconds"],
        at_least=job.get("at_least", 1),
        labels=job["labels"],
        bind=bind,
    )
    return {"seconds": found.seconds}


if __name__ == "__main__":
    main(sys.argv[1])
