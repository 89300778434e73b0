"""Several models beside each other against one FP32 model: mixed precision and pure, or two conversions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from mxamp.compare.candidates_text import FP32, format_candidates
from mxamp.compare.fidelity import Fidelity
from mxamp.compare.inputs import as_model
from mxamp.compare.measure import Progress, compare_models
from mxamp.errors import DataError
from mxamp.messages.arguments import check_flag, items
from mxamp.model.accepted import Device, GivenData, ModelOrTriple

FORMAT_VERSION = 1


@dataclass(frozen=True)
class CandidateComparison:
    """The fidelity of several models, all to the same FP32 model on the same data.

    Attributes
    ----------
    fidelities
        What the user calls each model -> its fidelity. The first is :data:`FP32`: the FP32 model as deployed,
        against itself with fusion off. What it differs by is no loss of any conversion.
    notes
        What the reader should know about all of them.
    """

    fidelities: Mapping[str, Fidelity]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Fidelity:
        return self.fidelities[name]

    def check(self, tolerance: float) -> None:
        """Check every output of every candidate against a tolerance; see :meth:`Fidelity.check`."""
        for name, fidelity in self.fidelities.items():
            if name != FP32:
                fidelity.check(tolerance)

    def to_mapping(self) -> dict[str, Any]:
        """Return the comparison as plain data for JSON."""
        return {
            "format": FORMAT_VERSION,
            "candidates": {name: fidelity.to_mapping() for name, fidelity in self.fidelities.items()},
            "notes": list(self.notes),
        }

    def to_json(self, *, indent: int | None = 1) -> str:
        """Return the comparison as JSON."""
        return json.dumps(self.to_mapping(), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        return format_candidates(self)


def compare_candidates(
    fp32_model: ModelOrTriple,
    candidates: Mapping[str, ModelOrTriple],
    data: GivenData,
    *,
    ctx: Device = None,
    layers: bool = True,
    batch_size: int | None = None,
    max_samples: int | None = None,
    threshold: float | None = None,
    notes: Sequence[str] = (),
    progress: Progress | None = None,
    by_position: bool = False,
) -> CandidateComparison:
    """Compare several models with one FP32 model on the same data.

    Parameters
    ----------
    fp32_model
        :class:`mxamp.Model` or ``(sym, args, auxs)``; not changed.
    candidates
        What to call each model -> the model: conversions, or what :func:`mxamp.emulate` returned.
    data, ctx, layers, batch_size, max_samples, threshold, progress, by_position
        As for :func:`compare_models`.
    notes
        What the reader should know about all of them.

    Returns
    -------
    CandidateComparison
        Prints as a table; ``comparison["mixed"]`` is one candidate's :class:`Fidelity`.

    Raises
    ------
    DataError
        When there are no candidates, or one is called like the FP32 model; and as :func:`compare_models`.
    DeviceError, OperatorError, LibraryError, MxnetMissingError
        As :func:`compare_models`.

    Examples
    --------
    >>> models = {"mixed": mixed, "pure": pure}  # doctest: +SKIP
    >>> print(mxamp.compare_candidates((sym, args, auxs), models, images))  # doctest: +SKIP
    """
    if not isinstance(candidates, Mapping) or not candidates:
        raise DataError("candidates must map names to models, as in {'mixed': mixed, 'pure': pure}.")
    if FP32 in candidates:
        raise DataError(f"A candidate cannot be called {FP32!r}: so is the model they are compared with.")
    told = items(notes)
    if told is None or not all(isinstance(note, str) for note in told):
        raise DataError(f"notes must be a list of sentences, not {notes!r:.80}.")
    check_flag(layers, "layers", DataError)
    reference = as_model(fp32_model, "the FP32 model")
    found = {}
    for name, model in {FP32: reference, **candidates}.items():
        found[name] = compare_models(
            reference,
            model,
            data,
            ctx=ctx,
            layers=layers and name != FP32,
            batch_size=batch_size,
            max_samples=max_samples,
            threshold=threshold,
            progress=progress,
            by_position=by_position,
        )
    return CandidateComparison(found, tuple(told))
