"""Convert a graph with its parameters: the whole pipeline, without MXNet."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Callable, Mapping, Sequence

import numpy as np

from mxamp.calibration.compensate import Compensator
from mxamp.calibration.ranges import observed, out_of_range
from mxamp.conversion.assumed_shapes import AssumedShapes, assumed_for
from mxamp.conversion.notes import calibration_notes, graph_notes, lost_branch_notes
from mxamp.conversion.options import Options
from mxamp.decisions import (
    DecisionInputs,
    Interface,
    Plan,
    already_low,
    decide,
    decide_interface,
    why_nothing_is_low,
)
from mxamp.errors import MxampWarning
from mxamp.garbage import paused_collection
from mxamp.graph.graph import Graph
from mxamp.graph.infer import variable_dtypes
from mxamp.graph.parameters import auxiliary_names
from mxamp.model import Model
from mxamp.params.check import check_params
from mxamp.params.not_finite import is_looked_at, not_finite, not_finite_warning
from mxamp.params.offline import OfflineCasts
from mxamp.params.parameter import Parameter
from mxamp.params.saturate import Saturation, saturate_parameters
from mxamp.params.unmeasured import unmeasured_parameters
from mxamp.passes import (
    ConvolveBatchNorm,
    DropNoOps,
    FoldBatchNorm,
    InsertCasts,
    Pipeline,
    Preparation,
    RewriteMasks,
    RewrittenMask,
    offline_dtypes,
    prepare_graph,
)
from mxamp.passes.needless_casts import needless_casts
from mxamp.passes.rescale import RescaleOverflows
from mxamp.policy.coloring import check_rules_fit
from mxamp.postponed import PostponedModel
from mxamp.report.build import ParameterForm, Rewrites, Shapes, build_report
from mxamp.report.compensation import CompensationReport
from mxamp.report.model import Report
from mxamp.targets import Mismatch

__all__ = ["Source", "convert_graph"]


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
    assumed
        Shapes to weigh costs by, where nobody gave any; nothing else rests on them.
    """

    graph: Graph
    arg_params: Mapping[str, Parameter]
    aux_params: Mapping[str, Parameter]
    inputs: Sequence[str] | None = None
    shapes: Shapes | None = None
    notes: tuple[str, ...] = ()
    assumed: AssumedShapes | None = None

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
        Called with what was done to the graph, once it is done.

    Returns
    -------
    Model
        The converted model with its report.
    """
    policy, target = options.policy, options.target
    graph, params = source.graph, source.params
    inputs = source.inputs
    if inputs is None:
        check_params(graph, params)
        inputs = [name for name in graph.variables if name not in params]
    _LOG.info(
        "converting %d operator nodes to %s for %s", graph.operator_count, policy.target_dtype, target.name
    )
    unused_rules = check_rules_fit(policy, graph)
    stored = {name: value.dtype for name, value in params.items()}
    interface = decide_interface(options.io_dtype, policy.target_dtype, graph, inputs, stored)
    notes = [*source.notes, *unused_rules, *graph_notes(graph, policy, options.cast_op)]
    dubious = source.not_finite
    if dubious:
        notes.append(not_finite_warning(list(dubious)))
    if target.warning:
        notes.append(f"The target {target.name}: {target.warning}")
    if options.placing is not None:
        notes.extend(options.placing.notes)
    if options.guard is not None and options.guard.warning is not None:
        notes.append(options.guard.warning)
    if options.calibration is not None:
        notes.extend(calibration_notes(options.calibration, graph, params))
    notes.extend(interface.notes)

    # A pure policy asks what low precision does to the user's own nodes.
    steps = () if policy.is_pure else options.prepare
    preparation = prepare_graph(
        graph, params, policy, steps, target=target, shapes=source.shapes, low_inputs=interface.inputs
    )
    graph, shapes = preparation.graph, preparation.shapes
    prepared = preparation.params
    states = {*source.aux_params, *(auxiliary_names(graph) - params.keys())}
    arg_params = {name: value for name, value in prepared.items() if name not in states}
    aux_params = {name: value for name, value in prepared.items() if name in states}
    notes.extend(lost_branch_notes(preparation))
    origins = preparation.nodes.origins
    masks = RewriteMasks(arg_params, aux_params, policy)
    if options.rewrite_masks and not policy.is_pure:
        graph = Pipeline([masks]).run(graph)
        arg_params = dict(masks.arg_params)
        origins = [origins[position] for position in masks.positions]
        shapes = [shapes[origin] for origin in masks.positions] if shapes is not None else None
    if options.calibration is not None and not policy.is_pure:
        rewritten = [abs(mask.before) for mask in masks.masks if mask.after is not None]
        known = observed(graph, options.calibration, below=min(rewritten, default=np.inf) / 2)
        largest = {entry: statistics.largest for entry, statistics in known.items()}
        low, headroom = policy.target_dtype, options.headroom
        rescale = RescaleOverflows(arg_params, aux_params, largest, low, headroom=headroom)
        graph = Pipeline([rescale]).run(graph)
        arg_params, aux_params = rescale.arg_params, rescale.aux_params
        preparation = replace(preparation, changes=preparation.changes + rescale.changes)
        beyond = out_of_range(graph, known, low, headroom, rescale.exponents)
        options = replace(options, kept={**beyond, **options.kept})
    assumed = None
    if shapes is None:
        assumed = assumed_for(options, graph, {**arg_params, **aux_params}, inputs)
    conversion = _Conversion(
        source=Source(graph, arg_params, aux_params, shapes=shapes, assumed=assumed),
        inputs=inputs,
        options=options,
        build_symbol=build_symbol,
        interface=interface,
        notes=notes,
        masks=masks.masks,
        forms={name: ParameterForm(value.shape, value.dtype) for name, value in params.items()},
        preparation=replace(preparation, params={}),  # the report must keep no parameter alive
        origins=origins,
        observe=observe,
        drops_no_ops=DropNoOps.step in steps,
    )
    # What the casts lose is seen for dtypes of MXNet's alone.
    watched = options.cast_offline and not options.saturate and not policy.target_dtype.is_emulated_only
    unmeasured = unmeasured_parameters(graph, arg_params) if watched else {}

    def measured() -> Model:
        # A cast has shown infinities or NaN, or all is read anyway: now it is worth looking who has them.
        unseen = {name: parameter for name, parameter in params.items() if not is_looked_at(parameter)}
        found = not_finite(unseen, read_all=True)
        if found:
            notes.append(not_finite_warning(found))
        return conversion.run_measured()

    def measured_late() -> Model:
        before = len(notes)
        model = measured()
        for note in notes[before:]:
            tell(note)
        return model

    def tell(note: str) -> None:
        if warn:
            warnings.warn(note, MxampWarning, stacklevel=2)

    model = conversion.run({**arg_params, **unmeasured}) if unmeasured else None
    if model is None:
        model = measured()
    else:
        made_from = preparation.made_from
        model = PostponedModel.postponing(model, measured_late, warn=tell, made_from=made_from)
    for note in conversion.said if warn else ():
        warnings.warn(note, MxampWarning, stacklevel=4)  # past the pause, at whoever called the front door
    return model


@dataclass(frozen=True)
class _Conversion:
    """What is left to do once the graph is prepared."""

    source: Source
    """The prepared graph, with its parameters and shapes."""
    inputs: Sequence[str]
    options: Options
    build_symbol: bool
    interface: Interface
    notes: Sequence[str]
    masks: Sequence[RewrittenMask]
    forms: Mapping[str, ParameterForm]
    """The user's parameters."""
    preparation: Preparation
    origins: Sequence[int]
    """For every node of the prepared graph the node of the user's graph that it is."""
    observe: Callable[[Rewrites], None] | None
    drops_no_ops: bool
    said: list[str] = field(default_factory=list)
    """The notes, and what follows from the plan of the last run."""

    def run_measured(self) -> Model:
        """Do it with every parameter measured."""
        model = self.run(self.source.arg_params)
        assert model is not None  # nothing was left unmeasured
        return model

    def run(self, arg_params: Mapping[str, Parameter]) -> Model | None:
        """Decide, rewrite, cast; None where ``arg_params`` were unmeasured and some are out of range."""
        graph, options = self.source.graph, self.options
        aux_params, shapes, assumed = self.source.aux_params, self.source.shapes, self.source.assumed
        low, target = options.policy.target_dtype, options.target
        params = {**arg_params, **aux_params}
        plan = decide(
            DecisionInputs(
                graph=graph,
                variables=variable_dtypes(graph, {name: value.dtype for name, value in params.items()}),
                params=params,
                policy=options.policy,
                target=target,
                shapes=shapes if assumed is None else assumed.entries,
                are_shapes_assumed=assumed is not None,
                low_inputs=self.interface.inputs,
                low_heads=self.interface.heads,
                castable=frozenset(name for name, value in arg_params.items() if not value.is_sparse)
                if options.cast_offline
                else frozenset(),
                saturate=options.saturate,
                low_precision=options.low_precision,
                kept=options.kept,
                placing=options.placing,
            )
        )
        nothing = why_nothing_is_low(plan, low)
        mismatch = None if nothing is not None or options.is_measured else options.mismatch
        self.said[:] = [*self.notes, *self._said_of_plan(plan, nothing, mismatch)]
        fold = FoldBatchNorm(
            plan,
            arg_params,
            aux_params,
            low,
            layers=target.fold_into,
            float32=options.fold_float32,
        )
        preparation = [fold] if options.fold_batch_norm else []
        prepared = Pipeline(preparation).run(graph)
        convolve = ConvolveBatchNorm(fold.plan, fold.arg_params, fold.aux_params, low)
        if options.fold_batch_norm and target.convolves_batch_norm and not options.policy.is_pure:
            prepared = Pipeline([convolve], finished=[step.name for step in preparation]).run(prepared)
        plan_after = convolve.plan
        to_cast, dtypes = convolve.arg_params, offline_dtypes(prepared, plan_after)
        saturations: Mapping[str, Saturation] = {}
        if options.saturate:
            to_cast, saturations = saturate_parameters(to_cast, dtypes)
        compensator = None
        if options.compensate is not None and options.calibration is not None:
            compensator = Compensator(prepared, to_cast, dtypes, options.calibration, options.compensate)
            to_cast = compensator.params
        # From here on there are several things to do that do not wait for each other: the casts and MXNet's
        # parser need no Python.
        with OfflineCasts(to_cast, dtypes) as casts:
            rewrite = InsertCasts(
                plan_after,
                cast_op=options.cast_op,
                reserved_names=[*convolve.arg_params, *convolve.aux_params],
                needless=needless_casts(prepared, plan_after) if self.drops_no_ops else frozenset(),
            )
            finished = [step.name for step in preparation]
            # MXNet parses the symbol while it is being checked here, and parameters are being cast.
            building: list[Callable[[], Any]] = []

            def build(graph: Graph) -> None:
                from mxamp.runtime.symbol import building_symbol

                building.append(building_symbol(graph, trusted=True, beside=True))

            after = Pipeline([rewrite], finished=finished).run(
                prepared, when_valid=build if self.build_symbol else None
            )
            folded = convolve.merged_into(fold.folded_norms())
            rewrites = Rewrites(graph, prepared, after, plan, folded, rewrite, shapes)
            if self.observe is not None:
                self.observe(rewrites)
            # Built when it is read; until then it must keep no parameter alive.
            report: Callable[[], Report] = partial(
                build_report,
                rewrites,
                {name: ParameterForm(value.shape, value.dtype) for name, value in params.items()},
                target_dtype=low,
                target=target.name,
                inputs=self.inputs,
                shapes=shapes,
                assumed_shapes={} if assumed is None or not plan.rests_on_assumed else assumed.inputs,
                warnings=tuple(self.said),
                saturations=saturations,
                masks=self.masks,
                users=self.forms,
                preparation=self.preparation,
                origins=self.origins,
                guard=options.guard,
                machine="" if target.cost is None else target.cost.machine,
                here=None if mismatch is None else mismatch.here,
                nothing_low=nothing,
                race=() if options.placing is None else options.placing.race,
            )
            if compensator is not None:
                report = partial(_with_compensation, report, compensator.reporting())
            stored = _stored(convolve.arg_params, rewrite, casts)
        # Leaving the block helped with the casts; now there is nothing left to do but wait for MXNet.
        built = {"sym": building[0]()} if building else {}
        if casts.may_have_lost_range and arg_params is not self.source.arg_params:
            return None
        return Model(after, stored, dict(convolve.aux_params), report, built)

    def _said_of_plan(self, plan: Plan, nothing: str | None, mismatch: Mismatch | None) -> Sequence[str]:
        """Return what the user should know of what was decided."""
        if nothing is None:
            return () if mismatch is None else (mismatch.warning,)
        low, guard = self.options.policy.target_dtype, self.options.guard
        is_told = guard is not None and guard.warning is not None
        return () if is_told or already_low(plan) is low else (f"Nothing was converted to {low}: {nothing}.",)


def _with_compensation(build: Callable[[], Report], compensation: Callable[[], CompensationReport]) -> Report:
    return replace(build(), compensation=compensation())


def _stored(
    params: Mapping[str, Parameter], rewrite: InsertCasts, casts: OfflineCasts
) -> dict[str, Parameter]:
    """Return the converted model's parameters in the order of the originals, second copies after them."""
    stored: dict[str, Parameter] = {}
    twins: dict[str, list[str]] = {}
    for name, form in rewrite.parameters.items():
        if name != form.source:
            twins.setdefault(form.source, []).append(name)
    for name, parameter in params.items():
        own = rewrite.parameters.get(name)
        stored[name] = parameter.cast(parameter.dtype) if own is None else casts.results[name, own.dtype]
        for twin in twins.get(name, ()):
            stored[twin] = casts.results[name, rewrite.parameters[twin].dtype]
    return stored
