"""Fidelity: the distance between FP32 and converted outputs on the same weights, as a value."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Sequence

from mxamp.compare.checked import checked_number
from mxamp.compare.latency import Latency
from mxamp.compare.metrics import Distance
from mxamp.compare.rounding_losses import RoundingLoss
from mxamp.compare.text import format_fidelity
from mxamp.errors import AccuracyError

FORMAT_VERSION = 1


@dataclass(frozen=True)
class OutputFidelity:
    """How far one output is from the FP32 model's.

    Attributes
    ----------
    name
        The output's name.
    shape
        Its shape over all samples.
    distance
        Its distance over all samples; the converted model runs as deployed, with fusion.
    top1_agreement
        The share of rows whose largest value is in the same column, 0 to 1; None for outputs that are not
        (samples, classes).
    unfused_relative_l2
        The relative L2 error of the converted model with fusion off, on the samples the layers were measured
        on; None where they were not.
    relative_l2_low, relative_l2_high
        The bounds between which the relative L2 error over many samples like these lies with 95 % confidence
        (bootstrap over samples); None for outputs that are not one slice a sample, and fewer than 5 samples.
    top1_low, top1_high
        The same for ``top1_agreement`` (Wilson's score interval).
    """

    name: str
    shape: tuple[int, ...]
    distance: Distance
    top1_agreement: float | None = None
    unfused_relative_l2: float | None = None
    relative_l2_low: float | None = None
    relative_l2_high: float | None = None
    top1_low: float | None = None
    top1_high: float | None = None


@dataclass(frozen=True)
class LayerFidelity:
    """How far one intermediate entry is from the FP32 model's, both with fusion off.

    Attributes
    ----------
    name
        The entry in the FP32 model: ``conv0``, or ``split0[1]``.
    op
        The operator there.
    converted_name
        The entry of the converted model that was read.
    dtype
        The dtype its value was computed in; None where that is not known.
    shape
        Its shape.
    distance
        Its distance.
    jump
        By what factor the relative L2 error grew over that of the entry's inputs; 1 where it did not.
    """

    name: str
    op: str
    converted_name: str
    dtype: str | None
    shape: tuple[int, ...]
    distance: Distance
    jump: float = 1.0


@dataclass(frozen=True)
class Fidelity:
    """The distance between a model and its conversion on some data.

    Fidelity says how much conversion changed what the model computes. How well the model does its task is
    its accuracy, which needs labelled data and is another question.

    Attributes
    ----------
    outputs
        One record an output, in order.
    layers
        One record for each entry that both models have, in topological order; None where they were not asked
        for, or could not be read (``notes`` say why).
    unmatched
        Entries of the FP32 model that the converted one does not have.
    samples
        How many samples the outputs were measured on.
    batch_size
        Samples a forward pass.
    layer_samples
        How many samples the layers were measured on, the first ones.
    ctx
        The device.
    low_dtype
        The low dtype found in the converted model; None where there is none.
    threshold
        The relative L2 error from which an entry counts as different.
    fusion
        Whether the converted model's outputs were measured with fusion on, as deployed. The FP32 outputs and
        all layers are always measured with fusion off.
    notes
        What the reader should know.
    emulated
        The formats that the converted model emulates in float32; empty for a model that computes in them.
    losses
        What the roundings of an emulated model lost for want of range, on the samples the layers are measured
        on; None for other models.
    latency
        How long both models take; None where they were not timed (``notes`` say why, if that was asked for).
    """

    outputs: tuple[OutputFidelity, ...]
    layers: tuple[LayerFidelity, ...] | None
    unmatched: tuple[str, ...]
    samples: int
    batch_size: int
    layer_samples: int
    ctx: str
    low_dtype: str | None
    threshold: float
    fusion: bool
    notes: tuple[str, ...] = ()
    emulated: tuple[str, ...] = ()
    losses: tuple[RoundingLoss, ...] | None = None
    latency: Latency | None = None

    # ------------------------------------------------------------------ questions

    @property
    def worst_output(self) -> OutputFidelity:
        """The output with the largest relative L2 error; the first of several."""
        return max(self.outputs, key=lambda output: output.distance.relative_l2)

    @property
    def first_difference(self) -> LayerFidelity | None:
        """The first entry that is not exactly equal."""
        return next((layer for layer in self.layers or () if layer.distance.relative_l2 > 0), None)

    @property
    def first_above_threshold(self) -> LayerFidelity | None:
        """The first entry whose relative L2 error is larger than ``threshold``."""
        return next(
            (layer for layer in self.layers or () if layer.distance.relative_l2 > self.threshold), None
        )

    def largest_jumps(self, count: int = 3) -> tuple[LayerFidelity, ...]:
        """Return the entries where the error grows most over that of their inputs, largest first.

        Parameters
        ----------
        count
            The most to return; entries where it does not grow to at least twice are left out.
        """
        growing = [layer for layer in self.layers or () if layer.jump >= 2.0]
        return tuple(sorted(growing, key=lambda layer: -layer.jump)[:count])

    def check(self, tolerance: float) -> None:
        """Check every output against a tolerance.

        Parameters
        ----------
        tolerance
            The largest relative L2 error to accept.

        Raises
        ------
        AccuracyError
            When an output is further away; says which, and where the error comes from.
        """
        tolerance = checked_number(tolerance, "The tolerance")
        beyond = [output for output in self.outputs if output.distance.relative_l2 > tolerance]
        if not beyond:
            return
        worst = self.worst_output
        more = f" ({len(beyond)} of {len(self.outputs)} outputs are)" if len(beyond) > 1 else ""
        where = ""
        suspect = next(iter(self.largest_jumps(1)), None) or self.first_above_threshold
        if self.fusion and worst.unfused_relative_l2 is not None and worst.unfused_relative_l2 <= tolerance:
            where = (
                f" With fusion off it is {worst.unfused_relative_l2:.3g}, so MXNet's fused operators lose "
                "the rest: run with MXNET_SUBGRAPH_BACKEND=NONE to have it back, at some cost in speed."
            )
        elif suspect is not None:
            node = suspect.converted_name.partition("[")[0]
            where = (
                f" The error grows most at {suspect.name!r} ({suspect.op}), to "
                f"{suspect.distance.relative_l2:.3g}: try --exclude {node}."
            )
        raise AccuracyError(
            f"The output {worst.name!r} is further from FP32 than the tolerance{more}: its relative L2 error "
            f"is {worst.distance.relative_l2:.3g}, the tolerance {tolerance:g}.{where}"
        )

    # ------------------------------------------------------------------ JSON

    def to_mapping(self) -> dict[str, Any]:
        """Return the comparison as plain data for JSON.

        JSON has no infinity and no NaN: such numbers are the strings ``"inf"``, ``"-inf"`` and ``"nan"``.
        """
        mapping = {"format": FORMAT_VERSION, **asdict(self)}
        records: tuple[OutputFidelity | LayerFidelity, ...] = (*self.outputs, *(self.layers or ()))
        for plain, record in zip([*mapping["outputs"], *(mapping["layers"] or ())], records):
            plain["distance"]["sqnr_db"] = record.distance.sqnr_db
        for key, found in (
            ("first_difference", self.first_difference),
            ("first_above_threshold", self.first_above_threshold),
        ):
            mapping[key] = None if found is None else found.name
        mapping["largest_jumps"] = [layer.name for layer in self.largest_jumps()]
        plain_mapping: dict[str, Any] = _plain(mapping)
        return plain_mapping

    def to_json(self, *, indent: int | None = 1) -> str:
        """Return the comparison as JSON."""
        return json.dumps(self.to_mapping(), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        return format_fidelity(self)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
