"""The process that measures one model: ``python -m tools.benchmark_models.child JOB.json RESULT.json``."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any, Callable, Mapping

from model_zoo_eval.child import main

__all__ = ["measure"]


def measure(values: Mapping[str, Any], publish: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Do a job.

    Parameters
    ----------
    values
        :meth:`tools.benchmark_models.job.Job.to_mapping`.
    publish
        Called with what is known so far, as the work proceeds.
    """
    # Imported here: what is wrong with an installation is a result too.
    from tools.benchmark_models.job import Job
    from tools.benchmark_models.measure import measure_conversions, measure_variants

    job = Job.from_mapping(values)
    # What profiling knows of such a model from before must not count; what it learns here may be used again.
    with tempfile.TemporaryDirectory(prefix="mxamp-benchmark-cache-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        return measure_variants(job, publish) if job.batch else measure_conversions(job, publish)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], measure))
