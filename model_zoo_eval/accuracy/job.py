"""What to measure the accuracy of, and how: all that a process elsewhere needs to know."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Mapping

__all__ = ["ACCURACY", "AccuracyCase", "AccuracyJob"]

ACCURACY = "accuracy"
"""The kind of a result, told from those of fidelity, which have none."""


@dataclass(frozen=True, order=True)
class AccuracyCase:
    """A network on a data set.

    Attributes
    ----------
    name
        The network: one that was trained here, or one of the zoo.
    data
        The data set; empty for what is measured offline.
    """

    name: str
    data: str = ""

    @property
    def key(self) -> str:
        """What results call it."""
        return f"{self.name} on {self.data}" if self.data else self.name


@dataclass(frozen=True)
class AccuracyJob:
    """What to measure, and how.

    Attributes
    ----------
    name, data
        The case.
    folder
        Where the data set is; None for what is measured offline.
    params
        A folder with files of weights, for networks of the zoo.
    samples
        How many samples; None for all.
    seed
        Of the bootstrap.
    """

    name: str
    data: str = ""
    folder: str | None = None
    params: str | None = None
    samples: int | None = None
    seed: int = 0

    @property
    def case(self) -> AccuracyCase:
        """The case."""
        return AccuracyCase(self.name, self.data)

    def to_mapping(self) -> dict[str, Any]:
        """Return the job as plain data for JSON."""
        return {"kind": ACCURACY, **asdict(self)}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> AccuracyJob:
        """Return the job of :meth:`to_mapping`."""
        return cls(**{key: value for key, value in values.items() if key != "kind"})
