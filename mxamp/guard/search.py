"""The guard's search: which low regions cost time, found by leaving them out and measuring."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Mapping, NamedTuple, Sequence

from mxamp.conversion import Options, Source, convert_graph
from mxamp.decisions import LowPrecision
from mxamp.errors import MxampError
from mxamp.guard.agenda import Agenda
from mxamp.guard.machine import describe_machine, why_not_here
from mxamp.guard.measuring import measuring_here
from mxamp.guard.options import Guard, Measure
from mxamp.guard.regions import Region, low_regions, names_of_operators
from mxamp.measuring.race import Race, Ratio
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.passes import KeepBranches
from mxamp.report.build import Rewrites
from mxamp.report.guard import (
    CONVERTED,
    FAILED,
    NOT_RUN,
    ORIGINAL,
    PREPARED,
    SHRUNK,
    DroppedRegion,
    GuardReport,
    MeasuredRatio,
)

_FIRST_SHARE = 0.25
"""The share of the time for the first race, and again for the last one."""

_RACE_SHARE = 0.1
"""The share for each race between."""

_LATE_SHARE = 0.05
"""The share for a race when the time is over."""


def guard_conversion(
    guard: Guard, source: Source, options: Options, input_shapes: Mapping[str, Sequence[int]] | None
) -> Options:
    """Measure a conversion against the FP32 model, and find what makes it no slower.

    Parameters
    ----------
    guard
        How to measure.
    source, options
        The user's FP32 model, and how it is to be converted. Where low precision is required, or the policy
        pure, the guard only reports.
    input_shapes
        Input name -> shape, as far as known.

    Returns
    -------
    Options
        How to convert: what stays FP32, and the guard's report.

    Raises
    ------
    DataError
        When data were given that do not fit the model.

    Notes
    -----
    *Faster* means: the 95 % interval of the median ratio lies above 1. Where the conversion is faster than
    the FP32 model, nothing else is done. Otherwise maximal regions are left out, each in a model of its own,
    those with the least to gain first; what makes the model faster is dropped, or rather the half of it, or
    the half of that half, whose loss is larger. Where no whole region is left to try, pieces are. In the end
    the FP32 model, the prepared one and the best of these run against each other.
    """
    model = Model(source.graph, source.arg_params, source.aux_params)
    why = why_not_here(guard, model, options.target, input_shapes)
    if why is not None:
        return replace(options, guard=GuardReport(NOT_RUN, why))
    started = time.monotonic()
    loaded = _in_memory(model)
    is_only_reported = options.low_precision is LowPrecision.REQUIRED or options.policy.is_pure
    with contextlib.ExitStack() as stack:
        measure = guard.measure or stack.enter_context(
            measuring_here(guard, loaded, options.target, input_shapes or {})
        )
        search = _Search(guard, source, options, loaded, measure, started)
        try:
            found = search.run(is_only_reported=is_only_reported)
        except _CannotRunError as error:
            reason = f"the converted model was not measured: {error}"
            return replace(options, guard=GuardReport(FAILED, reason))
    report = GuardReport(
        **found.report,
        dropped=tuple(search.dropped),
        regions_tried=search.regions_tried,
        seconds=round(time.monotonic() - started, 1),
        data="random" if guard.data is None else "given",
        machine=describe_machine(options.target, is_measured_here=guard.measure is None),
    )
    return replace(options, **found.changes, guard=report)


class _CannotRunError(Exception):
    """A model cannot run here, so there is nothing to measure."""


@dataclass(frozen=True)
class _Found:
    """What the search ends with: the options that change, and the report's first fields."""

    changes: Mapping[str, Any]
    report: Mapping[str, Any]


@dataclass(frozen=True)
class _Candidate:
    """A conversion that may be raced.

    Attributes
    ----------
    model
        The model.
    kept
        Node -> why it stays FP32.
    regions
        Its maximal low regions.
    """

    model: Model
    kept: Mapping[str, str]
    regions: Sequence[Region]


class _Loss(NamedTuple):
    """What the low precision of a region costs.

    Attributes
    ----------
    region
        The region.
    ratio
        How many times as fast the model is without it.
    milliseconds
        By how much a forward pass is shorter then.
    """

    region: Region
    ratio: Ratio
    milliseconds: float

    @classmethod
    def of(cls, region: Region, measured: Race, number: int, *, to: int = 0) -> _Loss:
        """Return it for a race in which one model has the region low, and another has not."""
        shorter = measured.median_ms[to] - measured.median_ms[number]
        return cls(region, measured.ratio(number, to=to), shorter)


class _Search:
    """One run of :func:`guard_conversion`."""

    def __init__(
        self,
        guard: Guard,
        source: Source,
        options: Options,
        user: Model,
        measure: Measure,
        started: float,
    ) -> None:
        self._seconds = guard.seconds
        self._source = replace(source, arg_params=user.arg_params, aux_params=user.aux_params)
        self._options = options
        self._user = user
        self._measure = measure
        self._low = options.policy.target_dtype
        self._started = started
        self._agenda = Agenda()
        self.dropped: list[DroppedRegion] = []
        """The regions that went back to FP32."""

    @property
    def regions_tried(self) -> int:
        """How many sets of nodes were left out and measured."""
        return len(self._agenda.struck)

    def run(self, *, is_only_reported: bool) -> _Found:
        """Measure; drop what costs time, unless it is only to be reported."""
        first = self._candidate({})
        if self._is_users(first.model):
            return _found(CONVERTED, "the conversion changes nothing in the graph")
        if not first.regions:
            return self._nothing_low(first.model, is_only_reported=is_only_reported)
        try:
            measured = self._measure(
                [self._user, first.model],
                ["the FP32 model", "the converted model"],
                self._share(_FIRST_SHARE),
            )
        except MxampError as error:
            raise _CannotRunError(str(error).rstrip(".")) from error
        ratio = measured.ratio(1)
        converted = MeasuredRatio.of(measured, 1)
        if ratio.is_faster or is_only_reported:
            return _found(CONVERTED, _verdict(ratio), result=converted, converted=converted)
        return self._final(self._shrunk(first), converted)

    def _nothing_low(self, prepared: Model, *, is_only_reported: bool) -> _Found:
        """Measure what preparation alone made of the model, unless that cannot change its speed."""
        without = self._candidate({}, prepare=["drop_no_ops"], fold_batch_norm=False).model
        if is_only_reported or prepared.graph.nodes == without.graph.nodes:
            return _found(CONVERTED, "nothing in it became low, so it is as fast as the FP32 model")
        measured = self._race([self._user, prepared], _FIRST_SHARE)
        if measured is None:
            raise _CannotRunError("the prepared float32 model cannot be run here")
        result = MeasuredRatio.of(measured, 1)
        if measured.ratio(1).is_slower:
            original = self._original()
            if self._candidate({}, **original).regions:  # without preparation something would become low
                original = self._in_float32(result, original)
            reason = f"nothing in the model became {self._low}, and its prepared graph was slower"
            unchanged = MeasuredRatio.of(measured, 0)
            return _found(ORIGINAL, reason, original, result=unchanged, prepared=result)
        if self._options.stays_float32:
            reason = "it is float32 with its graph prepared, as asked for, and no slower"
            return _found(CONVERTED, reason, result=result, prepared=result)
        reason = f"nothing in the model became {self._low}; it is float32 with its graph prepared"
        return _found(PREPARED, reason, result=result, prepared=result)

    # ------------------------------------------------------------------ leaving regions out

    def _shrunk(self, best: _Candidate) -> _Candidate:
        """Return the best model found by dropping regions."""
        is_faster = False
        while best.regions and not self._is_over():
            regions = self._agenda.next(best.regions, pieces=not is_faster)
            if not regions:
                break
            measured = self._trials(best, regions)
            if measured is None:
                continue
            is_faster = measured.ratio(1).is_faster
            costly = [
                loss
                for number, region in enumerate(regions, start=2)
                if measured.ratio(number, to=1).is_faster
                for loss in self._narrowed(best, _Loss.of(region, measured, number, to=1))
            ]
            for loss in costly:
                self.dropped.append(
                    DroppedRegion(loss.region.nodes, round(loss.ratio.median, 3), round(loss.milliseconds, 4))
                )
                best = self._without(best, loss.region, loss.ratio)
        return best

    def _trials(self, best: _Candidate, regions: Sequence[Region]) -> Race | None:
        """Race the FP32 model, the best one, and that without each of some regions."""
        trials = [self._without(best, region).model for region in regions]
        measured = self._race([self._user, best.model, *trials])
        if measured is None and len(regions) > 1:
            self._agenda.put_back(regions)
        else:
            self._agenda.strike(regions)
        return measured

    def _narrowed(self, best: _Candidate, loss: _Loss) -> Sequence[_Loss]:
        """Return the parts of a region whose low precision costs time, as far as they can be told apart."""
        region = loss.region
        halves = region.halves()
        if not halves or self._is_over():
            return [loss]
        self._agenda.strike(halves)
        costly = self._costly_halves(best, region)
        if len(costly) == 2 and region.parts:
            return [part for half, _ in costly for part in self._narrowed(best, half)]
        if len(costly) == 1 and not costly[0][1]:
            return self._narrowed(best, costly[0][0])
        return [loss]

    def _costly_halves(self, best: _Candidate, region: Region) -> Sequence[tuple[_Loss, bool]]:
        """Return those halves of a region that cost time, and whether the whole of it costs even more."""
        halves = region.halves()
        whole = self._without(best, region).model
        trials = [self._without(best, half).model for half in halves]
        found = []
        together = self._race([best.model, whole, *trials])
        for number, half in enumerate(halves):
            # One that cannot be run must not spoil the other.
            measured = together or self._race([best.model, whole, trials[number]])
            if measured is not None:
                own = 2 + number if together is not None else 2
                if measured.ratio(own).is_faster:
                    found.append((_Loss.of(half, measured, own), measured.ratio(1, to=own).is_faster))
        return found

    def _without(self, best: _Candidate, region: Region, ratio: Ratio | None = None) -> _Candidate:
        reason = "left out to measure it"
        if ratio is not None:
            reason = (
                f"measured: with its region in float32 the model is {ratio.median:.2f} times as fast "
                f"({ratio.low:.2f} to {ratio.high:.2f})"
            )
        return self._candidate({**best.kept, **dict.fromkeys(region.nodes, reason)})

    # ------------------------------------------------------------------ the end

    def _final(self, best: _Candidate, converted: MeasuredRatio) -> _Found:
        """Race the FP32 model, the prepared one and the best that was found, and choose."""
        in_float32 = self._in_float32(converted, self._prepared_float32())
        prepared = self._candidate(**in_float32).model
        is_changed = not self._is_users(prepared)
        models = [self._user]
        if is_changed:
            models.append(prepared)
        if best.regions:
            models.append(best.model)
        measured = self._race(models, _FIRST_SHARE)
        if measured is None:
            raise _CannotRunError("the prepared float32 model cannot be run here")
        rival, last = 1 if is_changed else 0, len(models) - 1
        of_prepared = MeasuredRatio.of(measured, rival) if is_changed else None
        found = partial(_found, converted=converted, prepared=of_prepared)
        is_best_fastest = measured.ratio(last).is_faster and not measured.ratio(rival, to=last).is_faster
        if best.regions and is_best_fastest:
            result = MeasuredRatio.of(measured, last)
            if not best.kept:
                return found(CONVERTED, _verdict(measured.ratio(last)), result=result)
            count = len(self.dropped)
            reason = (
                f"{_not_faster(converted)}, so {count} region{'' if count == 1 else 's'} of it, which cost "
                "time, went back to float32"
            )
            return found(SHRUNK, reason, {"kept": best.kept}, result=result)
        self.dropped.clear()
        if is_changed and not measured.ratio(rival).is_slower:
            reason = (
                f"{_not_faster(converted)}, nor was any smaller use of {self._low}, so the model is float32, "
                "with its graph prepared and its BatchNorms folded"
            )
            return found(PREPARED, reason, in_float32, result=of_prepared)
        why = (
            "and the float32 model with its graph prepared was slower than the original"
            if is_changed
            else f"nor was any smaller use of {self._low}"
        )
        reason = f"{_not_faster(converted)}, {why}, so this is the original graph"
        original = self._in_float32(converted, self._original())
        return found(ORIGINAL, reason, original, result=MeasuredRatio.of(measured, 0))

    def _in_float32(self, converted: MeasuredRatio, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return options with which nothing becomes low: no node of the user's, and none that was put in."""
        reason = (
            f"measured: the converted model was {converted.ratio:.2f} times as fast as float32 "
            f"({converted.low:.2f} to {converted.high:.2f})"
        )
        kept = dict.fromkeys(names_of_operators(self._user.graph), reason)
        # A Reshape that keeps a branch, say: alone it could still be estimated to gain.
        inserted = [name for region in self._candidate(kept, **changes).regions for name in region.nodes]
        return {"kept": {**kept, **dict.fromkeys(inserted, reason)}, **changes}

    def _prepared_float32(self) -> Mapping[str, Any]:
        """Return what makes the prepared FP32 model of a conversion in which everything is kept."""
        # A mask that float32 holds needs no other value. What was measured is of the graph with it.
        given = self._options.placing
        placing = None if given is None else replace(given, times=None)
        return {"rewrite_masks": False, "placing": placing}

    def _original(self) -> Mapping[str, Any]:
        # Without what MXNet's fusion is kept from losing the model would be fast, and wrong.
        prepare = [KeepBranches.step] if self._options.prepares(KeepBranches.step) else []
        return {**self._prepared_float32(), "prepare": prepare, "fold_batch_norm": False}

    # ------------------------------------------------------------------ models and time

    def _is_users(self, model: Model) -> bool:
        """Whether a model has the user's graph, and so its speed."""
        return model.graph.nodes == self._user.graph.nodes and model.graph.heads == self._user.graph.heads

    def _candidate(self, kept: Mapping[str, str], **changes: Any) -> _Candidate:
        seen: list[Rewrites] = []
        options = replace(self._options, kept=kept, **changes)
        model = convert_graph(self._source, options, warn=False, observe=seen.append)
        regions = low_regions(seen[-1].decided.graph, seen[-1].plan, self._low)
        return _Candidate(model, kept, regions)

    def _race(self, models: Sequence[Model], share: float = _RACE_SHARE) -> Race | None:
        """Race models; None where one of them cannot be run."""
        try:
            return self._measure(
                models, [f"model {number}" for number in range(len(models))], self._share(share)
            )
        except MxampError:
            return None

    def _share(self, share: float) -> float:
        # Converting and binding take time too. A race that comes late is short, but there is one.
        left = self._seconds - (time.monotonic() - self._started)
        return min(self._seconds * share, max(left, self._seconds * _LATE_SHARE))

    def _is_over(self) -> bool:
        return time.monotonic() - self._started > self._seconds * (1 - _FIRST_SHARE)


def _in_memory(model: Model) -> Model:
    """Return the model with the values of parameters that lie in a file, which are read once only."""

    def read(params: Mapping[str, Parameter]) -> dict[str, Parameter]:
        return {
            name: ArrayParameter(value.values()) if value.is_on_disk else value
            for name, value in params.items()
        }

    return Model(model.graph, read(model.arg_params), read(model.aux_params))


def _found(
    outcome: str, reason: str, changes: Mapping[str, Any] = MappingProxyType({}), **measured: Any
) -> _Found:
    return _Found(changes, {"outcome": outcome, "reason": reason, **measured})


def _verdict(ratio: Ratio) -> str:
    if ratio.is_faster:
        return "the converted model is faster than float32"
    if ratio.is_slower:
        return "the converted model is slower than float32, and low precision was required"
    return "the converted model is not clearly faster than float32, and low precision was required"


def _not_faster(converted: MeasuredRatio) -> str:
    return (
        f"the converted model was not faster than float32 ({converted.ratio:.2f} times as fast, "
        f"{converted.low:.2f} to {converted.high:.2f})"
    )
