"""Run plans of a model by turns; a program, for a plan that crashes takes its process with it."""

from __future__ import annotations

import random
import sys
from typing import Any, Mapping

import numpy as np

from mxamp.compare.race import race, timed
from mxamp.measuring.child import do_job
from mxamp.measuring.race import TimedRun
from mxamp.model import Model, load


def main(path: str) -> None:
    """Do what a job's file asks for, and write the result beside it."""
    do_job(race_plans, path)


def race_plans(job: Mapping[str, Any]) -> dict[str, Any]:
    """Race the models of a job's files.

    Parameters
    ----------
    job
        ``models`` (prefixes) and their ``labels``; ``data``, an ``.npz`` of their inputs; ``ctx``, the
        device; ``rounds``, ``seconds`` and ``at_least``, as for :func:`mxamp.compare.race.race`; and
        ``bindings``, how often all are bound, in another order each time, for a share of the rounds: once by
        default.

    Returns
    -------
    dict
        ``seconds``: the times of each model, round by round; ``rounds``: how many of them are of each
        binding.
    """
    with np.load(job["data"]) as arrays:
        data = dict(arrays)

    def bind(model: Model, label: str) -> TimedRun:
        from mxamp.runtime.executor import BoundModel

        return timed(BoundModel(model, ctx=job["ctx"], label=label), data)

    models: list[Any] = [load(prefix) for prefix in job["models"]]
    bindings = job.get("bindings", 1)
    taken: list[list[float]] = [[] for _ in models]
    rounds: list[int] = []
    order = list(range(len(models)))
    for seed in range(bindings):
        found = race(
            [models[number] for number in order],
            rounds=-(-job["rounds"] // bindings),
            seconds=job["seconds"] / bindings,
            at_least=-(-job.get("at_least", 1) // bindings),
            labels=[job["labels"][number] for number in order],
            seed=seed,
            bind=bind,
        )
        for number, seconds in zip(order, found.seconds):
            taken[number] += seconds
        rounds.append(found.rounds)
        random.Random(seed).shuffle(order)  # what is bound in another order comes to lie elsewhere
    return {"seconds": taken, "rounds": rounds}


if __name__ == "__main__":
    main(sys.argv[1])
