"""What the guard measured and did, as a value and as sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from mxamp.measuring.race import Race

CONVERTED, SHRUNK, PREPARED, ORIGINAL = "converted", "shrunk", "prepared", "original"
NOT_RUN, FAILED = "not run", "failed"
"""What may come of it; see :attr:`GuardReport.outcome`."""


@dataclass(frozen=True)
class MeasuredRatio:
    """How many times as fast as the user's model another one ran.

    Attributes
    ----------
    float32_ms, own_ms
        The median times of a forward pass of both, in milliseconds.
    ratio
        The median over rounds of the first divided by the second.
    low, high
        The 10th and the 90th percentile of that ratio.
    median_low, median_high
        The bounds between which its true median lies with 95 % confidence.
    rounds
        How often each ran.
    """

    float32_ms: float
    own_ms: float
    ratio: float
    low: float
    high: float
    median_low: float
    median_high: float
    rounds: int

    @classmethod
    def of(cls, measured: Race, number: int) -> MeasuredRatio:
        """Return it for one model of a race against the first."""
        milliseconds = measured.median_ms
        return cls(
            round(milliseconds[0], 4), round(milliseconds[number], 4), **measured.ratio(number).rounded()
        )

    def __str__(self) -> str:
        return (
            f"float32 {self.float32_ms:.2f} ms, this one {self.own_ms:.2f}: {self.ratio:.2f} times as fast "
            f"({self.low:.2f} to {self.high:.2f}, {self.rounds} rounds)"
        )


@dataclass(frozen=True)
class DroppedRegion:
    """Connected nodes that went back to float32, because the model was measured to be faster so.

    Attributes
    ----------
    nodes
        Their names in the user's model.
    ratio
        How many times as fast the model became.
    loss_ms
        By how much a forward pass was shorter without their low precision, in milliseconds.
    """

    nodes: tuple[str, ...]
    ratio: float
    loss_ms: float


@dataclass(frozen=True)
class GuardReport:
    """What the guard measured, and what it did.

    Attributes
    ----------
    outcome
        ``"converted"``: the conversion stayed as it was. ``"shrunk"``: some of its regions went back to
        float32. ``"prepared"``: all of them did, and this is the float32 model with its graph prepared and
        its BatchNorms folded. ``"original"``: it is the user's graph. ``"not run"``: nothing was measured.
        ``"failed"``: neither was anything, for a model could not be run.
    reason
        Why, in one sentence.
    result
        This model against the user's; None where nothing was measured.
    converted
        The conversion as it was first, against the user's model.
    prepared
        The prepared float32 model against the user's; None where it was not measured.
    dropped
        The regions that went back to float32, in the order in which they did.
    regions_tried
        How many sets of nodes were left out and measured: regions, several at once, and pieces of them.
    seconds
        How long all of it took.
    data
        What the models were fed: ``"random"`` or ``"given"``.
    machine
        Where: ``cpu``, ``threads``, ``device``, ``mxnet``; ``advice`` where something of the machine that
        would help was not used.
    """

    outcome: str
    reason: str
    result: MeasuredRatio | None = None
    converted: MeasuredRatio | None = None
    prepared: MeasuredRatio | None = None
    dropped: tuple[DroppedRegion, ...] = ()
    regions_tried: int = 0
    seconds: float = 0.0
    data: str = "random"
    machine: Mapping[str, str] | None = None

    @property
    def warning(self) -> str | None:
        """What the user must not miss: that the model is not, or not known to be, what was asked for."""
        is_slower = self.result is not None and self.result.median_high < 1
        if self.outcome in (CONVERTED, NOT_RUN) and not is_slower:
            return None
        return f"guard: {self.reason}."

    @classmethod
    def from_mapping(cls, document: Mapping[str, Any]) -> GuardReport:
        """Read it from plain data, as :func:`dataclasses.asdict` makes it."""
        ratios = {
            name: None if document[name] is None else MeasuredRatio(**document[name])
            for name in ("result", "converted", "prepared")
        }
        dropped = tuple(DroppedRegion(**region) for region in document["dropped"])
        return cls(**{**document, **ratios, "dropped": dropped})


def guard_lines(guard: GuardReport, *, with_warning: bool = True) -> list[str]:
    """Return what the guard found, as sentences for people.

    Parameters
    ----------
    guard
        What it found.
    with_warning
        Whether to say what :attr:`GuardReport.warning` says; a report has it among its warnings.
    """
    if guard.result is None:
        return [f"Not measured against float32: {guard.reason}."]
    machine = guard.machine or {}
    threads = machine.get("threads", "?")
    where = f"{machine.get('cpu', 'this machine')}, {threads} thread{'' if threads == '1' else 's'}"
    if machine.get("device", "cpu(0)") != "cpu(0)":
        where = machine["device"]
    lines = [f"Measured on {where}: {guard.result}."]
    if with_warning and guard.warning is not None:
        lines.append(f"Guard: {guard.reason}.")
    if guard.dropped:
        nodes = sum(len(region.nodes) for region in guard.dropped)
        regions = len(guard.dropped)
        lines.append(
            "Back in float32, because low precision cost time there: "
            f"{nodes} node{'' if nodes == 1 else 's'} in {regions} region{'' if regions == 1 else 's'} "
            f"({guard.regions_tried} sets of nodes tried)."
        )
    if "advice" in machine and (guard.dropped or guard.warning is not None):
        lines.append(machine["advice"])
    return lines
