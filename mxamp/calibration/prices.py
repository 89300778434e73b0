"""What every rounding of a model costs in accuracy, as a value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Mapping, TypeVar

from mxamp.calibration.record import EntryName

LABELS = ("bfloat16", "float16")
"""The dtypes that roundings are priced for."""


@dataclass(frozen=True)
class Prices:
    """What roundings add to the squared relative error of a model's outputs.

    Attributes
    ----------
    entries
        dtype -> entry -> its price: the mean over the outputs of the squared L2 error that rounding this
        entry alone causes, over the squared L2 norm of the output.
    parameters
        The same for the parameters that layers read. That of a BatchNorm's ``beta`` is what rounding the bias
        costs that folding makes of it; that of a weight is for the weight that folding makes.
    heads
        The entries whose error is priced: the outputs, or what is ranked or compared on the way to them.
    samples
        With how many samples.
    draws
        With how many cotangents each.
    unpriced
        Entry -> why it has no price.
    together
        dtype -> what rounding all parameters at once costs, as the model runs with them. Their errors are the
        same for every sample, so that they do not average out: it may be half the sum of the prices, or
        twice.
    """

    entries: Mapping[str, Mapping[EntryName, float]]
    parameters: Mapping[str, Mapping[str, float]]
    heads: tuple[EntryName, ...]
    samples: int
    draws: int
    unpriced: Mapping[EntryName, str] = field(default_factory=dict)
    together: Mapping[str, float] = field(default_factory=dict)

    def of_parameters(self, label: str) -> Mapping[str, float]:
        """Return the prices of parameters for a dtype, scaled to add up to what all of them cost at once."""
        own = self.parameters[label]
        total = sum(own.values())
        scale = self.together.get(label, total) / total if total > 0 else 1.0
        return {name: scale * price for name, price in own.items()}

    @property
    def _weight(self) -> int:
        return self.samples * self.draws

    def merged(self, other: Prices) -> Prices:
        """Return the prices over the samples of both, of the same model."""
        own, theirs = self._weight, other._weight
        return Prices(
            {label: _mean(self.entries[label], own, other.entries[label], theirs) for label in LABELS},
            {label: _mean(self.parameters[label], own, other.parameters[label], theirs) for label in LABELS},
            self.heads,
            self.samples + other.samples,
            max(1, round((own + theirs) / (self.samples + other.samples))),
            self.unpriced,
            _mean(self.together, own, other.together, theirs),
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return them as plain data for JSON."""
        return {
            "samples": self.samples,
            "draws": self.draws,
            "heads": [list(head) for head in self.heads],
            "entries": [
                [name.node, name.output, *(self.entries[label][name] for label in LABELS)]
                for name in self.entries[LABELS[0]]
            ],
            "parameters": {
                name: [self.parameters[label][name] for label in LABELS]
                for name in self.parameters[LABELS[0]]
            },
            "together": dict(self.together),
            "unpriced": [[name.node, name.output, why] for name, why in self.unpriced.items()],
        }

    @classmethod
    def of_mapping(cls, found: Mapping[str, Any]) -> Prices:
        """Return what :meth:`to_mapping` made plain.

        Raises
        ------
        ValueError, TypeError, KeyError
            When it is something else.
        """
        entries = {EntryName(str(node), int(output)): prices for node, output, *prices in found["entries"]}
        parameters = {str(name): prices for name, prices in found["parameters"].items()}
        for prices in [*entries.values(), *parameters.values()]:
            if len(prices) != len(LABELS) or not all(0 <= float(price) < math.inf for price in prices):
                raise ValueError(f"{prices} are no prices")
        return cls(
            {label: {name: float(own[i]) for name, own in entries.items()} for i, label in enumerate(LABELS)},
            {
                label: {name: float(own[i]) for name, own in parameters.items()}
                for i, label in enumerate(LABELS)
            },
            tuple(EntryName(str(node), int(output)) for node, output in found["heads"]),
            int(found["samples"]),
            int(found["draws"]),
            {EntryName(str(node), int(output)): str(why) for node, output, why in found["unpriced"]},
            {label: float(value) for label, value in found["together"].items()},
        )


_Name = TypeVar("_Name")


def _mean(
    first: Mapping[_Name, float], weight: int, second: Mapping[_Name, float], other: int
) -> dict[_Name, float]:
    """Return the weighted mean of what both know, and what one alone knows as it is."""
    both = {
        name: (weight * price + other * second[name]) / (weight + other) if name in second else price
        for name, price in first.items()
    }
    return {**second, **both}
