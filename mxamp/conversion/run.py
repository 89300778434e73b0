"""Convert a graph with its parameters: the whole pipeline, without MXNet."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Callable, Mapping, Sequence

from mxamp.conversion import pipeline
from mxamp.conversion.assumed_shapes import AssumedShapes, assumed_for
from mxamp.conversion.notes import (
    calibration_notes,
    graph_notes,
    kept_weight_notes,
    lost_branch_notes,
    misread_order_notes,
)
from mxamp.conversion.options import Options
from mxamp.conversion.parameters import Casting, run_unmeasured
from mxamp.conversion.pipeline import run_steps
from mxamp.decisions import Plan, already_low, decide_interface, why_nothing_is_low
from mxamp.graph.garbage import paused_collection
from mxamp.graph.graph import Graph
from mxamp.messages.warn import warn_user
from mxamp.model import Model
from mxamp.params.check import check_params
from mxamp.params.not_finite import not_finite, not_finite_warning
from mxamp.params.one_dtype import in_one_dtype
from mxamp.params.parameter import Parameter
from mxamp.passes import State
from mxamp.policy.coloring import check_rules_fit
from mxamp.report.build import Rewrites, build_report
from mxamp.targets import Mismatch
from mxamp.targets.work import Shapes


@dataclass(frozen=True)
class Source:
    """What is converted; never changed.

    Attributes
    ----------
    graph
        The FP32 graph.
    arg_params, aux_params
        Its parameters and auxiliary states.
    inputs
        The variables that are inputs; None for those without a parameter.
    shapes
        For every node the shape of each output, where known; the report then counts multiply-adds and bytes.
    notes
        What the user should know of that.
    """

    graph: Graph
    arg_params: Mapping[str, Parameter]
    aux_params: Mapping[str, Parameter]
    inputs: Sequence[str] | None = None
    shapes: Shapes | None = None
    notes: tuple[str, ...] = ()

    @property
    def params(self) -> dict[str, Parameter]:
        """Parameters and auxiliary states."""
        return {**self.arg_params, **self.aux_params}

    @cached_property
    def not_finite(self) -> Sequence[str]:
        """The parameters that hold NaN or infinity, of those that are looked at before they are needed.

        Found once, however often the model is converted to be measured.
        """
        return not_finite(self.params)


_LOG = logging.getLogger("mxamp")


@paused_collection()
def convert_graph(
    source: Source,
    options: Options,
    *,
    build_symbol: bool = False,
    warn: bool = True,
    observe: Callable[[Rewrites], None] | None = None,
) -> Model:
    """Convert a graph with its parameters: the whole pipeline, without MXNet.

    Parameters
    ----------
    source
        What to convert.
    options
        How.
    build_symbol
        Whether the model's Symbol is wanted, too (with MXNet): it is built while parameters are being cast.
    warn
        Whether what the user should know is a warning, too; it is in the report in any case.
    observe
        Called with the states of the conversion, once it is done.

    Returns
    -------
    Model
        The converted model with its report.
    """
    user, inputs, notes = _start(source, options)
    prepared = run_steps(pipeline.PREPARING, user, options)
    notes.extend(lost_branch_notes(user, prepared))
    notes.extend(misread_order_notes(user))
    notes.extend(kept_weight_notes(prepared))
    conversion = _Conversion(options, user, inputs, notes, build_symbol, observe)

    def tell(note: str) -> None:
        if warn:
            warn_user(note)

    model = run_unmeasured(conversion.run, user, prepared, options, notes=notes, tell=tell)
    for note in conversion.said:
        tell(note)
    return model


def _start(source: Source, options: Options) -> tuple[State, Sequence[str], list[str]]:
    """Check what was given.

    Returns
    -------
    state
        Where the conversion begins.
    inputs
        The variables that are no parameters.
    notes
        What is to be said.
    """
    graph, policy, target = source.graph, options.policy, options.target
    params: Mapping[str, Parameter] = source.params
    inputs = source.inputs
    if inputs is None:
        check_params(graph, params)
        inputs = [name for name in graph.variables if name not in params]
    _LOG.info(
        "converting %d operator nodes to %s for %s", graph.operator_count, policy.target_dtype, target.name
    )
    unused_rules = check_rules_fit(policy, graph)
    params, notes_of_dtypes = in_one_dtype(graph, params)
    stored = {name: value.dtype for name, value in params.items()}
    interface = decide_interface(options.io_dtype, policy.target_dtype, graph, inputs, stored)
    notes = [*source.notes, *notes_of_dtypes, *unused_rules]
    notes.extend(graph_notes(graph, policy, options.cast_op))
    if source.not_finite:
        notes.append(not_finite_warning(list(source.not_finite)))
    if target.warning:
        notes.append(f"The target {target.name}: {target.warning}")
    if options.placing is not None:
        notes.extend(options.placing.notes)
    if options.guard is not None and options.guard.warning is not None:
        notes.append(options.guard.warning)
    if options.calibration is not None:
        notes.extend(calibration_notes(options.calibration, graph, params))
    notes.extend(interface.notes)
    assumed = assumed_for(options, graph, params) if source.shapes is None else None
    state = State.of(
        graph,
        params,
        policy,
        target,
        auxiliary=frozenset(source.aux_params),
        shapes=source.shapes,
        assumed_shapes=None if assumed is None else assumed.entries,
        are_axes_certain=assumed is None or assumed.have_certain_axes,
        low_inputs=interface.inputs,
        low_heads=interface.heads,
        records=() if assumed is None else (assumed,),
    )
    return state, inputs, notes


def _put_in(user: State, decided: State) -> frozenset[int]:
    """Return the nodes that passes put in before anything was decided, or made others of."""
    return frozenset(
        place
        for place, node in enumerate(decided.graph.nodes)
        for origin in [decided.nodes.first(place)]
        if origin is None or user.graph.nodes[origin].op != node.op
    )


@dataclass(frozen=True)
class _Conversion:
    """What is left to do once the graph is prepared."""

    options: Options
    user: State
    inputs: Sequence[str]
    notes: Sequence[str]
    build_symbol: bool
    observe: Callable[[Rewrites], None] | None
    said: list[str] = field(default_factory=list)
    """The notes, and what follows from the plan of the last run."""

    def run(self, prepared: State, casting: Casting) -> Model:
        """Decide, rewrite, cast."""
        options = self.options
        planned = run_steps(pipeline.PLANNING, prepared, options)
        decided = planned.decided
        assert decided is not None  # that is what planning is
        assert decided.plan is not None
        decisions = decided.plan
        nothing = why_nothing_is_low(
            decisions, options.policy.target_dtype, partial(_put_in, self.user, decided)
        )
        mismatch = None if nothing is not None or options.is_measured else options.mismatch
        self.said[:] = [*self.notes, *self._said_of_plan(decisions, nothing, mismatch)]
        # The casts, and MXNet's parser after them, need no Python.
        with casting(planned) as casts:
            converted = run_steps(pipeline.CASTING, planned, options)
            building = self._building(converted.graph) if self.build_symbol else None
            rewrites = Rewrites.of(self.user, planned, converted)
            if self.observe is not None:
                self.observe(rewrites)
            assumed = [
                one
                for one in planned.record(AssumedShapes)
                if one.have_certain_axes or decisions.rests_on_assumed
            ]
            # Built when it is read; until then it must keep no parameter alive.
            report = casts.reporting(
                partial(
                    build_report,
                    rewrites,
                    inputs=self.inputs,
                    warnings=tuple(self.said),
                    saturations=casts.saturations,
                    guard=options.guard,
                    assumed_shapes=assumed[-1].inputs if assumed else {},
                    here=None if mismatch is None or mismatch.here.runs_nothing_low else mismatch.here,
                    nothing_low=nothing,
                    race=() if options.placing is None else options.placing.race,
                )
            )
            stored = casts.stored(rewrites.casts)
        # Leaving the block helped with the casts; now there is nothing left to do but wait for MXNet.
        built = {} if building is None else {"sym": building()}
        return Model(converted.graph, stored, dict(planned.aux_params), report, built)

    def _building(self, graph: Graph) -> Callable[[], Any]:
        from mxamp.runtime.symbol import building_symbol

        return building_symbol(graph, trusted=True, beside=True)

    def _said_of_plan(self, plan: Plan, nothing: str | None, mismatch: Mismatch | None) -> Sequence[str]:
        """Return what the user should know of what was decided."""
        low, guard, before = self.options.policy.target_dtype, self.options.guard, already_low(plan)
        if nothing is None:
            said = [] if mismatch is None else [mismatch.warning]
            if before is not None and before is not low:
                said.append(
                    f"The model is {before} already, and what it had in float32 becomes {low} now: no device "
                    "runs both. Convert the float32 model."
                )
            return said
        is_known = self.options.stays_float32 or (guard is not None and guard.warning is not None)
        return () if is_known or before is low else (f"Nothing was converted to {low}: {nothing}.",)
