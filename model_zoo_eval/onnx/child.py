"""The process that compares one model: ``python -m model_zoo_eval.onnx.child JOB.json RESULT.json``."""

from __future__ import annotations

import sys
from typing import Any, Callable, Mapping

from model_zoo_eval import child

__all__ = ["command", "work"]

Publish = Callable[[Mapping[str, Any]], None]


def command() -> list[str]:
    """Return the command that does a job; the paths of job and result are added to it."""
    return [sys.executable, "-W", "ignore", "-m", "model_zoo_eval.onnx.child"]


def work(values: Mapping[str, Any], publish: Publish) -> Mapping[str, Any]:
    """Export and compare what a job names, and return the row."""
    from model_zoo_eval.onnx.evaluate import evaluate_onnx
    from model_zoo_eval.onnx.job import OnnxJob

    return evaluate_onnx(OnnxJob.from_mapping(values), publish)


if __name__ == "__main__":
    sys.exit(child.main(sys.argv[1:], work))
