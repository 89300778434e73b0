"""A calibration: what a model's values are on samples of its data, as one value that can be kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Mapping

from mxamp.calibration.file import read_calibration, write_calibration
from mxamp.calibration.moments import Moments
from mxamp.calibration.prices import Prices
from mxamp.calibration.record import EntryName, ModelRecord
from mxamp.calibration.samples import DataDescription
from mxamp.calibration.statistics import EntryStatistics
from mxamp.calibration.text import calibration_text
from mxamp.errors import DataError
from mxamp.version import __version__


@dataclass(frozen=True)
class Calibration:
    """What a model's values were, on samples.

    Entries and layers are those of the graph that was calibrated, the user's own, by the names of its nodes:
    so one calibration serves conversions to either dtype, for any target, with any options.

    Attributes
    ----------
    model
        The model.
    data
        The samples, of every calibration that was merged into this one.
    entries
        The statistics of each entry: of every output of a node that is read, and of the inputs.
    layers
        Node -> the moments of what the layer reads.
    unseen
        Node -> why nothing is known of it.
    positions
        The most columns that were taken of a sample, for each layer.
    prices
        What roundings cost in accuracy; None where that was not asked for, or cannot be told.
    why_unpriced
        Why it cannot be told.
    version
        The version of mxamp that made it.
    """

    model: ModelRecord
    data: tuple[DataDescription, ...]
    entries: Mapping[EntryName, EntryStatistics]
    layers: Mapping[str, Moments]
    unseen: Mapping[str, str] = field(default_factory=dict)
    positions: int = 0
    prices: Prices | None = None
    why_unpriced: str = ""
    version: str = __version__

    @property
    def samples(self) -> int:
        """How many samples it was made with."""
        return sum(description.samples for description in self.data)

    @property
    def moment_bytes(self) -> int:
        """What the second moments take in memory."""
        return sum(moments.nbytes for moments in self.layers.values())

    def merge(self, *others: Calibration) -> Calibration:
        """Return the calibration over the samples of all.

        Raises
        ------
        DataError
            When they are of different models, or were made with other bounds.
        """
        merged = self
        for other in others:
            merged = merged._merged(other)
        return merged

    def _merged(self, other: Calibration) -> Calibration:
        if not isinstance(other, Calibration):
            raise DataError(f"A calibration is merged with calibrations, not with {type(other).__name__}.")
        if self.model != other.model:
            what = "graphs" if self.model.graph != other.model.graph else "parameters"
            raise DataError(
                f"The calibrations are of models with different {what}, so they cannot be merged. Calibrate "
                "one model on all data, or on one part of them after another."
            )
        if self.positions != other.positions:
            raise DataError(
                f"One calibration took at most {self.positions} positions of a sample and the other "
                f"{other.positions}, so they weigh samples otherwise and cannot be merged."
            )
        for description in other.data:
            if any(description.digest == own.digest for own in self.data):
                raise DataError(
                    f"Both calibrations were made with the same {description.samples} samples "
                    f"({description.source}), which would count twice."
                )
        samples = self.samples
        entries = dict(self.entries)
        for name, statistics in other.entries.items():
            own = entries.get(name)
            entries[name] = statistics if own is None else own.merged(statistics, samples=samples)
        layers = {
            name: moments.merged(other.layers[name]) if name in other.layers else moments
            for name, moments in self.layers.items()
        }
        both = self.prices is not None and other.prices is not None
        return replace(
            self,
            # What one of both does not know is known by fewer samples.
            prices=self.prices.merged(other.prices) if both else self.prices or other.prices,  # type: ignore
            data=(*self.data, *other.data),
            entries=entries,
            layers={**other.layers, **layers},
            unseen={**other.unseen, **self.unseen},
        )

    def save(self, path: str | Path) -> None:
        """Write it as one file; whole or not at all.

        Parameters
        ----------
        path
            The file, replaced where it exists. It is an ``.npz`` archive, whatever it is called.

        Raises
        ------
        ExportError
            When it cannot be written.
        """
        write_calibration(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read one that :meth:`save` wrote.

        Raises
        ------
        DataError
            When there is no such file, or it is none.
        """
        return cls(*read_calibration(path))

    def __str__(self) -> str:
        return calibration_text(self)
