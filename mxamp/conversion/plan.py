"""The step of a conversion that decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping

import numpy as np

from mxamp.calibration.placing import left_of_weights, placing_by_prices
from mxamp.calibration.ranges import knows_some_of, observed, out_of_range
from mxamp.calibration.statistics import EntryStatistics
from mxamp.conversion.assumed_shapes import AssumedShapes, assumed_again, assumed_for
from mxamp.conversion.options import Options
from mxamp.decisions import DecisionInputs, LowPrecision, decide
from mxamp.decisions.placing import Placing
from mxamp.graph.graph import Entry
from mxamp.passes import Done, Pass, RescaledEntries, RewrittenMask, State


class Decide(Pass):
    """Make the plan: one immutable decision a node (:func:`mxamp.decisions.decide`).

    Parameters
    ----------
    options
        How to convert.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    def run(self, state: State) -> Done | None:
        """Return the decisions for the graph, which stays as it is."""
        options = self._options
        castable = [name for name, value in state.arg_params.items() if not value.is_sparse]
        assumed = _assumed(options, state) if state.shapes is None else None
        plan = decide(
            DecisionInputs(
                graph=state.graph,
                variables=state.variables,
                params=state.params,
                policy=state.policy,
                target=state.target,
                shapes=state.shapes if assumed is None else assumed.entries,
                are_shapes_assumed=assumed is not None,
                low_inputs=state.low_inputs,
                low_heads=state.low_heads,
                castable=frozenset(castable if options.cast_offline else ()),
                saturate=options.saturate,
                low_precision=options.low_precision,
                kept={**_beyond_range(options, state), **options.kept},
                placing=_placing(options, state),
            )
        )
        if options.leaves_parameters:
            # Behind the decisions, for which a parameter in any dtype costs nothing.
            plan = replace(plan, cast_offline=frozenset())
        return Done(None, () if assumed is None else (assumed,), plan=plan)


def _assumed(options: Options, state: State) -> AssumedShapes | None:
    """Return the shapes to weigh costs by: those that the graph was prepared by."""
    prepared_by = state.record(AssumedShapes)
    if not prepared_by:  # a layer may read a parameter as it is now that it did not before
        return assumed_for(options, state.graph, state.params)
    # Passes follow shapes as far as they ask for them, which few do where axes are not certain.
    if state.assumed_shapes is not None and state.are_axes_certain:
        return replace(prepared_by[0], entries=state.assumed_shapes)
    return assumed_again(prepared_by[0], state.graph, state.params)


def _placing(options: Options, state: State) -> Placing | None:
    """Return what places nodes, if not the least time alone: what was measured, or prices of roundings."""
    calibration = options.calibration
    if options.placing is not None or calibration is None or calibration.prices is None:
        return options.placing
    if options.policy.is_pure or options.low_precision is LowPrecision.REQUIRED:
        return None
    if not knows_some_of(state.graph, calibration):
        return None
    return placing_by_prices(
        calibration.prices,
        options.policy.target_dtype,
        state.params,
        fold_into=options.target.fold_into,
        time_budget=options.time_budget,
        weights=left_of_weights(options.compensate),
    )


def largest_values(options: Options, state: State) -> Mapping[Entry, float]:
    """Return the largest magnitude of each entry that the calibration knows."""
    return {entry: statistics.largest for entry, statistics in _observed(options, state).items()}


def rescaled_exponents(state: State) -> Mapping[Entry, int]:
    """Return, for the entries that are what the calibration saw times 2^-k, their k."""
    rescaled = state.record(RescaledEntries)
    return rescaled[0].exponents if rescaled else {}


def _observed(options: Options, state: State) -> Mapping[Entry, EntryStatistics]:
    assert options.calibration is not None  # asked for with one only
    masks = [abs(mask.before) for mask in state.record(RewrittenMask) if mask.after is not None]
    return observed(state.graph, options.calibration, below=min(masks, default=np.inf) / 2)


def _beyond_range(options: Options, state: State) -> Mapping[str, str]:
    """Return the nodes that compute with values that the dtype may not hold, and why."""
    if options.calibration is None or options.policy.is_pure:
        return {}
    known, low = _observed(options, state), options.policy.target_dtype
    return out_of_range(state.graph, known, low, options.headroom, rescaled_exponents(state))
