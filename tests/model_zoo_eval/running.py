"""Runs of an evaluation that evaluates nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Sequence

from model_zoo_eval.job import Job
from model_zoo_eval.journal import Results
from model_zoo_eval.process import Limits
from model_zoo_eval.registry import Case
from model_zoo_eval.rows import without_timings
from model_zoo_eval.runner import LocalScheduler, run_cases

# One result a name: what a name is, decides how it ends.
FAKE = """
import json, os, sys, time
job = json.load(open(sys.argv[1]))
with open(os.environ["ZOO_TEST_LOG"], "a") as log:
    log.write(job["name"] + "\\n")
if job["name"].startswith("resnet50"):
    os.abort()
if job["name"].startswith("vgg"):
    time.sleep(60)
found = {"casts": len(job["name"]), "heads": [], "conversion_seconds": time.time()}
row = {"stage": "done", "results": {"bfloat16": found}}
json.dump(row, open(sys.argv[2], "w"))
"""


NAMES = ("resnet18_v1", "resnet34_v1", "resnet50_v1", "alexnet")


def run(path: Path, names: Sequence[str], *, workers: int = 2, **more: Any) -> tuple[Results, list[str]]:
    said: list[str] = []
    results = run_cases(
        [Case(name) for name in names],
        more.pop("job", Job("")),
        path=path,
        scheduler=LocalScheduler(workers, [sys.executable, "-c", FAKE]),
        limits=Limits(seconds=60.0),
        say=said.append,
        **more,
    )
    return results, said


def timeless(results: Results) -> dict[str, Any]:
    return {key: without_timings(row) for key, row in results.rows.items()}
