"""What things cost on a target: kernels with costs of their own, and a roofline for all others.

What networks spend their time in has costs that were fitted on random shapes
(:mod:`mxamp.targets.kernel_cost`). Any other operator does a number of floating-point operations and moves a
number of bytes. It takes at least as long as the slower of the two takes at the machine's best rates
(Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009). A factor says how many times longer the operator really takes; 1 where
nobody measured it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Mapping, NamedTuple, TypeVar

from mxamp.targets.image_layout import BLOCKS_OF, PLAIN, WIDEST_BLOCK
from mxamp.targets.kernel_correction import Correction, correction_from_document
from mxamp.targets.kernel_cost import KernelCost, cost_from_document, kernel_microseconds
from mxamp.targets.kernel_family import BROADER, family_of
from mxamp.targets.kernel_terms import amounts_and_traits
from mxamp.targets.work import Work

CAST_DOWN, CAST_UP = "cast down", "cast up"
"""The families of casts to the low dtype and to FP32."""


class Rates(NamedTuple):
    """One number for FP32 and one for the low dtype."""

    float32: float
    low: float


_ROOFLINE = Rates(1.0, 1.0)
"""The factors of an operator that takes no longer than it must."""


@dataclass(frozen=True)
class OperatorCost:
    """How many times longer than the roofline an operator takes, and when.

    Attributes
    ----------
    factors
        In FP32 and in the low dtype.
    depthwise
        Holds for depthwise convolutions only (True), for others only (False), or for both (None).
    bias
        The same for layers with a bias.
    channels_beside
        Holds only where the number of channels is no multiple of this; 0 for any. Kernels that work in blocks
        of channels are fast on whole blocks alone.
    channels_below
        Holds only where there are fewer channels than this; 0 for any number.
    rank
        Holds only for tensors of so many axes; 0 for any.
    attribute
        Holds only where an attribute has a value: ``act_type=relu``; empty for any.
    """

    factors: Rates
    depthwise: bool | None = None
    bias: bool | None = None
    channels_beside: int = 0
    channels_below: int = 0
    rank: int = 0
    attribute: str = ""

    def holds_for(self, work: Work) -> bool:
        """Return whether the factors are those of this work."""
        return (
            self.depthwise in (None, work.is_depthwise)
            and self.bias in (None, work.has_bias)
            and (not self.channels_beside or work.channels % self.channels_beside != 0)
            and (not self.channels_below or work.channels < self.channels_below)
            and self.rank in (0, work.rank)
            and (not self.attribute or self._has_attribute(work))
        )

    def _has_attribute(self, work: Work) -> bool:
        key, _, value = self.attribute.partition("=")
        return work.attributes.get(key, "") == value


@dataclass(frozen=True)
class CastCost:
    """What a cast costs.

    Attributes
    ----------
    bytes_per_us
        Bytes read and written in a microsecond.
    overhead_us
        Microseconds that even the smallest takes.
    """

    bytes_per_us: float
    overhead_us: float


_ACTIVATIONS = frozenset({"Activation", "LeakyReLU"})
_PIECEWISE = frozenset({"leaky", "prelu", "relu", "rrelu"})
"""Kinds of activation that compare and multiply."""


class KernelCosts(NamedTuple):
    """What the kernels of one family cost.

    Attributes
    ----------
    float32, low
        In FP32 and in the low dtype; None where that was not measured.
    """

    float32: KernelCost | None
    low: KernelCost | None


class Corrections(NamedTuple):
    """How many times longer kernels take than their rates say.

    Attributes
    ----------
    float32, low
        In FP32, casts included, and in the low dtype; None where rates are all that is known.
    """

    float32: Correction | None = None
    low: Correction | None = None


@dataclass(frozen=True)
class CostModel:
    """What operators and casts cost on a target, in microseconds.

    Attributes
    ----------
    flops_per_us
        Floating-point operations in a microsecond, at best; a multiply-add is two.
    bytes_per_us
        Bytes read and written in a microsecond, at best.
    overhead_us
        What every operator costs however small it is.
    cast
        What a cast costs.
    operators
        Canonical operator name -> factors over the roofline; the first that holds counts.
    default
        The factors of all other operators.
    low_over_float32
        Where low precision is only emulated by FP32 instructions: how many times longer everything takes in
        it. 0 where the low dtype has rates and factors of its own.
    is_measured
        Whether the numbers were measured, or computed from published ones.
    source
        Where they come from.
    machine
        The machine that they are of, in a few words, with the number of threads.
    kernels
        Family -> what its kernels cost (:func:`mxamp.targets.kernel_terms.family_of`).
    corrections
        What of a kernel's time its rates do not say.
    kernels_measured
        Where that comes from: on which machine it was measured, or that it was not.
    block
        The channels in the widest block in which the machine's library keeps images: as many values of
        float32 as a vector register holds.
    call_us
        What a forward pass takes besides its operators: calling MXNet, and waiting for it. It is the same in
        every dtype.
    """

    flops_per_us: Rates
    bytes_per_us: Rates
    overhead_us: Rates
    cast: CastCost
    operators: Mapping[str, tuple[OperatorCost, ...]] = field(default_factory=dict)
    default: Rates = _ROOFLINE
    low_over_float32: float = 0.0
    is_measured: bool = False
    source: str = ""
    machine: str = ""
    kernels: Mapping[str, KernelCosts] = field(default_factory=dict)
    corrections: Corrections = field(default_factory=Corrections)
    kernels_measured: str = ""
    block: int = WIDEST_BLOCK
    call_us: float = 0.0

    @property
    def gain_of_products(self) -> float:
        """How many times as fast as in FP32 a large sum of products is in the low dtype."""
        if self.low_over_float32:
            return 1 / self.low_over_float32
        return self.flops_per_us.low / self.flops_per_us.float32

    def microseconds(self, op: str, work: Work, *, low: bool) -> float:
        """Return what an operator costs, or a fused chain that begins with it.

        Parameters
        ----------
        op
            Its canonical name.
        work
            What it does.
        low
            Whether in the low dtype.
        """
        if low and self.low_over_float32:
            return self.low_over_float32 * self.microseconds(op, work, low=False)
        family = family_of(op, work) if work.inputs and self.kernels else ""
        if family not in self.kernels:
            family = BROADER.get(family, family)
        costs = self.kernels.get(family)
        if costs is None:
            return self._by_roofline(op, work, low=low)
        own = costs[low]
        if own is not None:
            return self._by_kernel(own, family, op, work, low=low)
        # In one of the dtypes alone it was not timed: it takes as many times longer as the table says.
        table = self._by_roofline(op, work, low=low)
        other = costs[not low]
        if other is None:
            return table
        known = self._by_kernel(other, family, op, work, low=not low)
        return known * table / max(self._by_roofline(op, work, low=not low), 1e-9)

    def curve_microseconds(self, op: str, work: Work, *, low: bool) -> float:
        """Return what an activation takes beyond a comparison; 0 for others, and for other operators.

        Fusing spares its memory, and nothing of exp and a division.

        Parameters
        ----------
        op
            Its canonical name.
        work
            What it does alone.
        low
            Whether in the low dtype.
        """
        if op not in _ACTIVATIONS or work.attributes.get("act_type", "leaky") in _PIECEWISE:
            return 0.0
        compared = work._replace(attributes={"act_type": "relu"})
        alone = self.microseconds(op, work, low=low)
        return max(0.0, alone - self.microseconds("Activation", compared, low=low))

    def _by_kernel(self, cost: KernelCost, family: str, op: str, work: Work, *, low: bool) -> float:
        amounts, traits = amounts_and_traits(op, work, low=low)
        correction = self.corrections[low]
        us = kernel_microseconds(cost, amounts, traits)
        return us if correction is None else us * correction.times(family, amounts, traits, us)

    def _by_roofline(self, op: str, work: Work, *, low: bool) -> float:
        factors = self.default
        for cost in self.operators.get(op, ()):
            if cost.holds_for(work):
                factors = cost.factors
                break
        return self.overhead_us[low] + factors[low] * self.roofline(work, low=low)

    def roofline(self, work: Work, *, low: bool) -> float:
        """Return how long the work takes at the machine's best rates."""
        itemsize = 2 if low else 4
        return max(
            2 * work.multiply_adds / self.flops_per_us[low], itemsize * work.elements / self.bytes_per_us[low]
        )

    def cast_microseconds(
        self,
        elements: int,
        *,
        shape: tuple[int, ...] = (),
        is_blocked: bool = False,
        arrives_in: int = PLAIN,
        around: int = 0,
        operators: int = 0,
        down: bool = False,
    ) -> float:
        """Return what a cast costs.

        Parameters
        ----------
        elements
            The values that are cast.
        shape
            Their shape; without it they cost what their number says.
        is_blocked
            Whether they come in the blocked layout that a convolution writes.
        arrives_in
            In which order (:mod:`mxamp.targets.image_layout`).
        around
            The values that the whole model reads and writes (:attr:`Work.around`).
        operators
            How many operators the model is made of (:attr:`Work.operators`).
        down
            Whether to the low dtype.
        """
        family = CAST_DOWN if down else CAST_UP
        costs = self.kernels.get(family) if shape and self.kernels else None
        if costs is None or costs.float32 is None:
            return self.cast.overhead_us + (4 + 2) * elements / self.cast.bytes_per_us
        work = Work(
            0,
            2 * elements,
            rank=len(shape),
            inputs=(shape,),
            output=shape,
            is_blocked=is_blocked,
            arrives_in=(arrives_in, arrives_in),
            around=around,
            model=around,
            operators=operators,
            block=self.block,
        )
        return self._by_kernel(costs.float32, family, "amp_cast", work, low=False)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> CostModel:
        """Build a cost model from the ``cost`` part of a target's JSON document.

        Raises
        ------
        KeyError, ValueError, TypeError, AttributeError
            When the document is none; :meth:`Target.from_document` says which.
        """
        cast = document["cast"]
        return cls(
            flops_per_us=_rates(document["flops_per_us"], "flops_per_us"),
            bytes_per_us=_rates(document["bytes_per_us"], "bytes_per_us"),
            overhead_us=_rates(document["overhead_us"], "overhead_us", least=0.0),
            cast=CastCost(
                _number(cast["bytes_per_us"], "cast: bytes_per_us"),
                _number(cast["overhead_us"], "cast: overhead_us", least=0.0),
            ),
            operators={
                op: tuple(_operator_cost(entry, op) for entry in entries)
                for op, entries in document.get("operators", {}).items()
            },
            default=_rates(document.get("default", {"float32": 1, "low": 1}), "default", least=0.0),
            low_over_float32=_number(document.get("low_over_float32", 0.0), "low_over_float32", least=0.0),
            is_measured=bool(document["measured"]),
            source=str(document["source"]),
            machine=str(document.get("machine", document["source"])),
            kernels={
                family: KernelCosts(*_of_dtypes(given, f"kernels: {family}", cost_from_document))
                for family, given in document.get("kernels", {}).items()
            },
            corrections=Corrections(
                *_of_dtypes(document.get("corrections", {}), "corrections", correction_from_document)
            ),
            kernels_measured=str(document.get("kernels_measured", "")),
            block=_block(document.get("block", WIDEST_BLOCK)),
            call_us=_number(document.get("call_us", 0.0), "call_us", least=0.0),
        )


_Read = TypeVar("_Read")


def _of_dtypes(
    given: Mapping[str, Any], what: str, read: Callable[[Any, str], _Read]
) -> Iterator[_Read | None]:
    """Yield what is said of FP32, and of the low dtype; None for one of which nothing is said."""
    for label in ("float32", "low"):
        found = given.get(label)
        yield None if found is None else read(found, f"{what}, {label}")


_CONDITIONS: Mapping[str, type] = {
    "depthwise": bool,
    "bias": bool,
    "channels_beside": int,
    "channels_below": int,
    "rank": int,
    "attribute": str,
}


def _operator_cost(entry: Mapping[str, Any], op: str) -> OperatorCost:
    conditions = {name: value for name, value in entry.items() if name not in ("float32", "low")}
    for name, value in conditions.items():
        if type(value) is not _CONDITIONS.get(name):
            raise ValueError(f"cost of {op}: {name}={value!r} is no condition")
    return OperatorCost(_rates(entry, f"cost of {op}", least=0.0), **conditions)


def _rates(given: Any, what: str, least: float | None = None) -> Rates:
    return Rates(_number(given["float32"], what, least), _number(given["low"], what, least))


def _block(given: Any) -> int:
    if given not in BLOCKS_OF:
        raise ValueError(f"block must be {' or '.join(map(str, BLOCKS_OF))}, not {given!r:.80}")
    return int(given)


def _number(given: Any, what: str, least: float | None = None) -> float:
    """Return a number above zero, or from ``least`` on."""
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(f"{what} must be a number, not {given!r}")
    if not (given > 0 if least is None else given >= least) or given == float("inf"):
        raise ValueError(
            f"{what} must be {'above 0' if least is None else f'{least:g} or more'}, not {given}"
        )
    return float(given)
