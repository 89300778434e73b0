"""What to evaluate, and how: all that a process elsewhere needs to know."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Mapping

from model_zoo_eval.registry import Case

__all__ = ["DTYPES", "FP32", "ON_GPU", "Job"]

FP32 = "float32"
"""What results call the FP32 model as deployed, against itself with fusion off: no conversion's loss."""

ON_GPU = "float16 on a GPU"
"""What results call float16 executed, beside float16 emulated."""

DTYPES = ("bfloat16", "float16")


@dataclass(frozen=True)
class Job:
    """What to evaluate, and how: all that a worker needs to know.

    Attributes
    ----------
    name, form
        The case.
    dtypes
        What to convert to.
    samples
        How many photographs; None for a number that suits the task.
    size
        Height and width of the input instead of the registry's; None for the registry's.
    rounds
        The most often to time a model; 0 for not at all.
    seed
        Seed of random weights.
    params
        A folder with files of weights.
    pretrained
        Whether to use trained weights where they can be had.
    """

    name: str
    form: str = ""
    dtypes: tuple[str, ...] = DTYPES
    samples: int | None = None
    size: int | None = None
    rounds: int = 10
    seed: int = 0
    params: str | None = None
    pretrained: bool = True

    @property
    def case(self) -> Case:
        """The case."""
        return Case(self.name, self.form)

    def to_mapping(self) -> dict[str, Any]:
        """Return the job as plain data for JSON."""
        return {**asdict(self), "dtypes": list(self.dtypes)}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Job:
        """Return the job of :meth:`to_mapping`."""
        return cls(**{**values, "dtypes": tuple(values["dtypes"])})
