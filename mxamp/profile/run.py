"""Profile a model: time its nodes in context, place by these times, and let whole plans compete.

A node that is timed alone pays for putting layouts in order that it need not inside the network. So nodes are
timed inside whole graphs: in FP32, with everything low that may be, and in two graphs in which every other
unit is low, which tell what casts cost where they would be. From these times the cut makes its plan. Since
times still do not add up exactly, that plan runs against a few others, as whole models and by turns, and the
fastest is taken.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from numpy.typing import NDArray

from mxamp.compare.inputs import prepare_inputs
from mxamp.compare.sample_inputs import sample_inputs
from mxamp.conversion import Options, Source
from mxamp.decisions import LowPrecision
from mxamp.decisions.estimates import Estimates
from mxamp.decisions.placing import MeasuredTimes, Placing
from mxamp.dtypes import DType
from mxamp.errors import DeviceError, PolicyError
from mxamp.messages.arguments import argument, setting
from mxamp.model import Model
from mxamp.placement import PlacementProblem
from mxamp.profile.cache import MeasurementCache, cache_folder, environment
from mxamp.profile.candidate import Candidate, Candidates
from mxamp.profile.choices import (
    alternating,
    as_estimated,
    cheapest,
    everything_low,
    fewest_casts,
    float32,
    these,
    without,
)
from mxamp.profile.contest import Contestant, needs_another_race, winner
from mxamp.profile.every import every_placement, seen_by
from mxamp.profile.measuring import Lap, Measuring
from mxamp.profile.observation import Observation, combine, refined
from mxamp.profile.settings import Profiling
from mxamp.report.model import PlanReport
from mxamp.targets import Target
from mxamp.targets.work import Shapes

_MOST_HALVES = 16
"""Runs in which nodes are looked for that make the model crash."""

_NAMES_SHOWN = 6


FLOAT32 = "float32"
MEASURED = "least time, as measured"
MEASURED_TWICE = "least time, as measured twice"
FEWEST_CASTS = "fewest casts"
BY_TABLE = "least time, by the target's table"


def placing_by_profile(settings: Profiling, source: Source, options: Options, *, ctx: Any = None) -> Placing:
    """Measure a model and return how its nodes are best placed.

    Parameters
    ----------
    settings
        How long that may take.
    source, options
        The user's model, and how it is converted.
    ctx
        The device to measure on; by default the target's.

    Raises
    ------
    PolicyError
        When the shapes of inputs are not known.
    DeviceError
        When the device is not there, or cannot run the dtype.

    Notes
    -----
    What fails while something is measured is noted in the placing, and something else takes its place: the
    target's table, where nothing can be measured at all.
    """
    from mxamp.runtime.mxnet import import_mxnet

    version = str(import_mxnet().__version__)  # before advice that would need it
    inputs = source.inputs
    if inputs is None:
        inputs = [name for name in source.graph.variables if name not in source.params]
    model = Model(source.graph, source.arg_params, source.aux_params)
    data = sample_data(model, inputs, source.shapes)
    dtype = options.policy.target_dtype
    device = _device(ctx, options.target, dtype)
    with tempfile.TemporaryDirectory(prefix="mxamp-profile-") as name:
        folder = Path(name)
        measuring = Measuring(
            folder,
            data,
            device=device,
            machine=environment(version, device),
            cache=MeasurementCache(cache_folder() if settings.use_cache else None),
            settings=settings,
        )
        return place_by_measuring(
            Candidates(source, options, folder),
            measuring,
            dtype=dtype,
            settings=settings,
            required=options.policy.is_pure or options.low_precision is LowPrecision.REQUIRED,
        )


def _device(ctx: Any, target: Target, dtype: DType) -> str:
    """Return the device to measure on.

    Raises
    ------
    DeviceError
        When it is not here, or cannot run the dtype.
    """
    from mxamp.runtime.device import check_device_runs, parse_context

    try:
        device = parse_context(ctx or target.backend.context)
        check_device_runs(device, dtype)
    except DeviceError as error:
        raise DeviceError(
            f"{setting('profile', True)} measures the model on the device of the target {target.name}. "
            f"{error} To convert for a machine that is not here, leave {argument('profile')} out: the "
            "target's table is used then."
        ) from error
    return str(device)


def sample_data(model: Model, inputs: Sequence[str], shapes: Shapes | None) -> Mapping[str, NDArray[Any]]:
    """Return values for the inputs of a model: times hardly depend on them, but indices must lie in range.

    Raises
    ------
    PolicyError
        When a shape is not known.
    """
    graph = model.graph
    unknown = [name for name in inputs if shapes is None or not all(shapes[graph.variables[name]][0] or (0,))]
    if shapes is None or unknown:
        raise PolicyError(
            f"{setting('profile', True)} runs the model to time it, and for that the shapes of its inputs "
            f"must be known{', which that of ' + repr(unknown[0]) + ' is not' if unknown else ''}. Give "
            f"{setting('input_shapes', {'data': (1, 3, 224, 224)})} with all inputs, batch size included."
        )
    known = {name: shape for name in inputs for shape in [shapes[graph.variables[name]][0]] if shape}
    return prepare_inputs(model, sample_inputs(model, known)).arrays


def place_by_measuring(
    candidates: Candidates, measuring: Measuring, *, dtype: DType, settings: Profiling, required: bool
) -> Placing:
    """Make candidates, measure them, and return how to place what the fastest of them places.

    Parameters
    ----------
    candidates
        Makes candidates of the model.
    measuring
        Measures them.
    dtype
        The low dtype.
    settings
        What to call while something is measured.
    required
        Whether GREEN nodes have to be low: then the FP32 plan is measured, but cannot win.
    """
    say = settings.progress or (lambda _: None)
    plans = _plans(candidates, measuring, dtype, say)
    laps = [Lap(None, None)]
    if len(plans.named) > 1:
        say(f"{len(plans.named)} plans against each other")
        expected_ms = 0.0 if plans.estimates is None else plans.base.expected_ms(plans.estimates)
        laps = measuring.race(plans.candidates, plans.names, expected_ms)
    contestants = _contestants(plans, laps, required)
    best = winner(contestants)
    kept = None if best is None else _kept_by_another_race(best, contestants, plans, measuring, say)
    notes = [f"profile: {problem}" for problem in measuring.problems]
    if best is not None and kept is not None:
        notes.append(
            f"profile: the plan {plans.names[best]!r} was faster than {plans.names[kept]!r} in one process "
            "and not in another, so it is not taken."
        )
        best = kept
    notes += [
        f"profile: the plan {name!r} could not be run: {lap.problem}"
        for name, lap in zip(plans.names, laps)
        if lap.problem
    ]
    if best is None and len(plans.named) > 1:
        notes.append(
            "profile: no plan could be timed, so the model is placed by "
            f"{'times of its nodes' if plans.times is not None else 'what the target knows'}."
        )
    race = _told(plans, laps, best)
    if best is None:
        reason = "takes the least time here, as " + ("estimated" if plans.times is None else "measured")
        return Placing(cheapest, reason, plans.times, race=race, notes=tuple(notes))
    fastest = plans.candidates[best]
    return Placing(
        these(fastest.low),
        "in the plan that ran fastest here",
        plans.times,
        in_bodies=fastest is plans.base,
        race=race,
        notes=tuple(notes),
    )


class _Plans(NamedTuple):
    """The plans that are run against each other, and what they were made from.

    Attributes
    ----------
    named
        What each plan is called, and the model that it makes; no two of these are the same.
    base
        The model in FP32.
    by_table
        What a conversion makes that measures nothing.
    times
        What nodes and casts took; None where that could not be measured, or need not be.
    estimates
        What a plan costs by these times.
    """

    named: Sequence[tuple[str, Candidate]]
    base: Candidate
    by_table: Candidate
    times: MeasuredTimes | None
    estimates: Estimates | None

    @property
    def names(self) -> Sequence[str]:
        """What the plans are called."""
        return [name for name, _ in self.named]

    @property
    def candidates(self) -> Sequence[Candidate]:
        """The models that they make."""
        return [candidate for _, candidate in self.named]

    def expected_ms(self, candidate: Candidate) -> float | None:
        """Return what a plan was expected to take, by what is known best."""
        estimates = self.estimates or self.by_table.estimates
        return None if estimates is None else round(candidate.expected_ms(estimates), 4)


def _plans(candidates: Candidates, measuring: Measuring, dtype: DType, say: Callable[[str], None]) -> _Plans:
    """Measure nodes and casts, where plans are not few enough to be run all, and return the plans."""
    all_low = f"all {dtype} that may be"
    problems: list[PlacementProblem] = []
    base, low = candidates.make(float32), candidates.make(seen_by(everything_low, problems))
    by_table = candidates.make(as_estimated)
    times: MeasuredTimes | None = None
    from_times: list[tuple[str, Candidate]] = []
    table = by_table.estimates
    every = every_placement(problems[-1], low.low, None if table is None else base.expected_ms(table))
    if not every:
        say(f"nodes, in float32 and with {all_low}")
        times, from_times = _measured_plans(candidates, measuring, base, low, all_low, say)
    plans = [(FLOAT32, base), *from_times]
    plans += [(all_low, low), (FEWEST_CASTS, candidates.make(fewest_casts))]
    plans += [(_named(candidate, dtype), candidate) for candidate in map(candidates.make, map(these, every))]
    if table is not None:
        plans.append((BY_TABLE, by_table))
    distinct: dict[str, tuple[Candidate, list[str]]] = {}
    for name, candidate in plans:
        distinct.setdefault(candidate.content, (candidate, []))[1].append(name)
    return _Plans(
        [(" = ".join(names), candidate) for candidate, names in distinct.values()],
        base,
        by_table,
        times,
        from_times[-1][1].estimates if from_times else None,
    )


def _contestants(plans: _Plans, laps: Sequence[Lap], required: bool) -> Sequence[Contestant]:
    """Return what the plans did in their race."""
    by_table = plans.by_table
    return [
        _after(
            Contestant(
                None,
                candidate.casts,
                len(candidate.low),
                expected_ms=None if plans.estimates is None else plans.expected_ms(candidate),
                may_win=not required or candidate is not plans.base,
                is_by_table=by_table.estimates is not None and candidate.content == by_table.content,
            ),
            lap,
        )
        for candidate, lap in zip(plans.candidates, laps)
    ]


def _told(plans: _Plans, laps: Sequence[Lap], best: int | None) -> tuple[PlanReport, ...]:
    """Return what the report says of a race; nothing where a single plan ran."""
    if len(plans.named) < 2:
        return ()
    return tuple(
        PlanReport(
            name=name,
            median_ms=lap.median_ms,
            ratio=None if lap.ratio is None else lap.ratio.median,
            ratio_low=None if lap.ratio is None else lap.ratio.low,
            ratio_high=None if lap.ratio is None else lap.ratio.high,
            rounds=0 if lap.ratio is None else lap.ratio.rounds,
            estimated_ms=plans.expected_ms(candidate),
            low_nodes=len(candidate.low),
            casts=candidate.casts,
            is_chosen=number == best,
            problem=lap.problem,
        )
        for number, ((name, candidate), lap) in enumerate(zip(plans.named, laps))
    )


def _kept_by_another_race(
    best: int,
    contestants: Sequence[Contestant],
    plans: _Plans,
    measuring: Measuring,
    say: Callable[[str], None],
) -> int | None:
    """Return the plan by the table if it beats the winner in another process; None where it does not."""
    by_table = next((number for number, one in enumerate(contestants) if one.is_by_table), None)
    if by_table is None or by_table == best:
        return None
    if not needs_another_race(contestants[best], contestants[by_table]):
        return None
    say("the fastest plan against the one by the table, in another process")
    pair = [by_table, best]
    laps = measuring.race(
        [plans.candidates[number] for number in pair], [plans.names[number] for number in pair]
    )
    won = winner([_after(contestants[number], lap) for number, lap in zip(pair, laps)])
    return by_table if won == 0 else None


def _after(contestant: Contestant, lap: Lap) -> Contestant:
    """Return a contestant with what it did in a race."""
    speed = None if lap.ratio is None else lap.ratio.median
    return replace(contestant, speed=speed, seconds=lap.seconds, rounds=lap.rounds)


def _named(candidate: Candidate, dtype: DType) -> str:
    """Return what a plan is called by what is low in it."""
    graph = candidate.rewrites.decided.graph
    names = [graph.nodes[position].name for position in sorted(candidate.low)]
    return f"{dtype} in {', '.join(names[:_NAMES_SHOWN])}{' ...' if len(names) > _NAMES_SHOWN else ''}"


def _measured_plans(
    candidates: Candidates, measuring: Measuring, base: Candidate, low: Candidate, all_low: str, say: Any
) -> tuple[MeasuredTimes | None, list[tuple[str, Candidate]]]:
    """Return the times of nodes and casts, as far as they can be measured, and the plans made from them."""
    if low.content == base.content:
        return None, []
    in_float32, in_low = measuring.observe([base, low], ["in float32", f"with {all_low}"])
    if in_float32 is None:
        return None, []
    say("casts, where they would be")
    shapes = base.rewrites.decided.shapes
    assert shapes is not None  # without them nothing could have run
    times = combine(in_float32, in_low, [], shapes)
    # Units are what really runs as one kernel, which is known now.
    mixed = [candidates.make(alternating(parity), times) for parity in (0, 1)]
    runs = [(run, one.low) for run, one in zip(measuring.observe(mixed), mixed) if run is not None]
    for one in mixed:
        candidates.discard(one)  # parameters take room on disk
    suspects: frozenset[int] = frozenset()
    if in_low is None:
        say("which nodes cannot run low")
        more, suspects = _suspects(candidates, measuring, low, [seen for _, seen in runs])
        runs += more
    times = combine(in_float32, in_low, runs, shapes)
    plan = candidates.make(without(suspects, cheapest), times)
    say("nodes, in the plan that was made")
    run = measuring.observe([plan], [f"in the plan {MEASURED!r}"])[0]
    if run is None:
        return times, [(MEASURED, plan)]
    times = refined(times, run, plan.low, in_float32, in_low)
    return times, [(MEASURED, plan), (MEASURED_TWICE, candidates.make(without(suspects, cheapest), times))]


def _suspects(
    candidates: Candidates, measuring: Measuring, low: Candidate, ran: Sequence[frozenset[int]]
) -> tuple[list[tuple[Observation, frozenset[int]]], frozenset[int]]:
    """Find the nodes with which the model cannot run low, by halves.

    Returns
    -------
    tuple
        The runs that this took, and the nodes that were low in none that ended well.
    """
    suspects = set(low.low).difference(*ran)
    runs = []
    waiting = [sorted(suspects)]
    for _ in range(_MOST_HALVES):
        if not waiting:
            break
        nodes = waiting.pop(0)
        half = candidates.make(these(frozenset(nodes)))
        (run,) = measuring.observe([half])
        candidates.discard(half)
        if run is not None:
            suspects -= half.low
            runs.append((run, half.low))
        elif len(nodes) > 1:
            waiting += [nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]]
    if suspects:
        names = [low.rewrites.decided.graph.nodes[position].name for position in sorted(suspects)]
        measuring.problems.append(
            f"the model did not run with these nodes low, so they stay float32 where it was measured: "
            f"{', '.join(names[:_NAMES_SHOWN])}{' ...' if len(names) > _NAMES_SHOWN else ''}"
        )
    return runs, frozenset(suspects)
