"""The process that measures one network: ``python -m model_zoo_eval.accuracy.child JOB.json RESULT.json``."""

from __future__ import annotations

import sys
from typing import Any, Callable, Mapping

from model_zoo_eval import child

__all__ = ["command", "work"]

Publish = Callable[[Mapping[str, Any]], None]


def command() -> list[str]:
    """Return the command that measures a job; the paths of job and result are added to it."""
    return [sys.executable, "-W", "ignore", "-m", "model_zoo_eval.accuracy.child"]


def work(values: Mapping[str, Any], publish: Publish) -> Mapping[str, Any]:
    """Measure the accuracy that a job asks for, and return the row."""
    from model_zoo_eval.accuracy.evaluate import measure
    from model_zoo_eval.accuracy.job import ACCURACY, AccuracyJob

    job = AccuracyJob.from_mapping(values)
    row: dict[str, Any] = {"kind": ACCURACY, "stage": "build"}
    publish(row)
    if job.folder is None:
        from model_zoo_eval.accuracy.offline import describe_data, offline_subject
        from model_zoo_eval.trained.networks import find_network

        network = find_network(job.name)
        subject = offline_subject(network, job.samples)
        row.update(
            task=network.task,
            data=describe_data(network),
            weights="trained here",
            weights_from=network.command,
            network=network.zoo,
            notes=[network.change] if network.change else [],
        )
    else:
        from model_zoo_eval.accuracy.datasets import dataset_subject

        subject, described = dataset_subject(job)
        row.update(described)

    def tell(stage: str, results: Mapping[str, Any]) -> None:
        row.update(stage=stage, results=dict(results))
        publish(row)

    results, samples = measure(subject, seed=job.seed, publish=tell)
    inputs = next(iter(subject.samples()))[0]
    row.update(
        inputs={name: list(value.shape) for name, value in inputs.items()},
        samples=samples,
        results=results,
        stage="done",
    )
    return row


if __name__ == "__main__":
    sys.exit(child.main(sys.argv[1:], work))
