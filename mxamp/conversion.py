"""Convert a graph with its parameters: the whole pipeline, without MXNet."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

import numpy as np

from mxamp.decisions import (
    DecisionInputs,
    IoDtype,
    LowPrecision,
    Plan,
    already_low,
    decide,
    decide_interface,
    why_nothing_is_low,
)
from mxamp.dtypes import DType
from mxamp.errors import MxampWarning, PolicyError, TargetError
from mxamp.garbage import paused_collection
from mxamp.graph.control_flow import graphs_within, is_control_flow
from mxamp.graph.graph import VARIABLE, Graph, Node
from mxamp.graph.infer import variable_dtypes
from mxamp.model import Model
from mxamp.ops import FACTS
from mxamp.ops.casts import AMP_CAST, AMP_MULTICAST, CAST_OPERATORS
from mxamp.ops.facts import operator_label
from mxamp.params.check import check_params
from mxamp.params.not_finite import not_finite, not_finite_warning
from mxamp.params.offline import OfflineCasts
from mxamp.params.parameter import Parameter
from mxamp.params.saturate import Saturation, saturate_parameters
from mxamp.params.unmeasured import unmeasured_parameters
from mxamp.passes import (
    PREPARATIONS,
    ConvolveBatchNorm,
    DropNoOps,
    FoldBatchNorm,
    InsertCasts,
    KeepBranches,
    Pipeline,
    Preparation,
    RewriteMasks,
    RewrittenMask,
    check_prepare,
    offline_dtypes,
    prepare_graph,
)
from mxamp.passes.needless_casts import needless_casts
from mxamp.policy.coloring import check_rules_fit
from mxamp.policy.policy import Policy
from mxamp.postponed import PostponedModel
from mxamp.report.build import ParameterForm, Rewrites, Shapes, build_report
from mxamp.report.guard import GuardReport
from mxamp.targets import Mismatch, Target

if TYPE_CHECKING:
    from mxamp.decisions.placing import Placing

__all__ = ["check_flag", "convert_graph"]


@paused_collection()
def convert_graph(
    graph: Graph,
    arg_params: Mapping[str, Parameter],
    aux_params: Mapping[str, Parameter],
    *,
    policy: Policy,
    target: Target | None = None,
    io_dtype: IoDtype = None,
    cast_op: str = AMP_CAST,
    cast_offline: bool = True,
    fold_batch_norm: bool = True,
    shapes: Shapes | None = None,
    inputs: Sequence[str] | None = None,
    build_symbol: bool = False,
    saturate: bool = False,
    rewrite_masks: bool = True,
    prepare: Sequence[str] = PREPARATIONS,
    low_precision: LowPrecision | None = None,
    kept: Mapping[str, str] | None = None,
    fold_float32: bool = False,
    guard: GuardReport | None = None,
    warn: bool = True,
    placing: Placing | None = None,
    observe: Callable[[Rewrites], None] | None = None,
    mismatch: Mismatch | None = None,
) -> Model:
    """Convert a graph with its parameters: the whole pipeline, without MXNet.

    Parameters
    ----------
    graph
        The FP32 graph; never changed.
    arg_params, aux_params
        Its parameters and auxiliary states; never changed.
    policy
        What may run in low precision.
    target
        What can; by default the built-in target for the policy's dtype.
    io_dtype
        See :func:`convert_model`.
    cast_op
        ``"amp_cast"`` or ``"Cast"``.
    cast_offline
        Whether parameters are cast now (the default), or at every forward pass.
    fold_batch_norm
        Whether a BatchNorm is folded into the layer before it, where that loses nothing.
    shapes
        For every node the shape of each output, where known; the report then counts multiply-adds and bytes.
    inputs
        The variables that are inputs; by default those without a parameter.
    build_symbol
        Whether the model's Symbol is wanted, too (with MXNet): it is built while parameters are being cast.
    saturate, rewrite_masks, prepare, low_precision
        See :func:`convert_model`.
    kept
        Node -> reason, for nodes that stay FP32 because of what was measured.
    fold_float32
        Whether a BatchNorm is folded into a layer where both are FP32, too.
    guard
        What the guard measured, for the report.
    warn
        Whether what the user should know is a warning, too; it is in the report in any case.
    placing
        How the nodes that have a choice are placed; by default at the least cost.
    observe
        Called with what was done to the graph, once it is done.
    mismatch
        How this machine contradicts the target; nothing is said of it where the model was measured here.

    Returns
    -------
    Model
        The converted model with its report.
    """
    if not isinstance(cast_op, str) or cast_op not in CAST_OPERATORS:
        raise PolicyError(f"cast_op must be {' or '.join(CAST_OPERATORS)}, not {cast_op!r}.")
    if policy.target_dtype.is_emulated_only:
        # No operator of MXNet's casts to such a format; emulation replaces every cast by a rounding.
        cast_op = AMP_CAST
    check_flag(cast_offline, "cast_optional_params")
    check_flag(fold_batch_norm, "fold_batch_norm")
    check_flag(saturate, "saturate")
    check_flag(rewrite_masks, "rewrite_masks")
    steps = check_prepare(prepare)
    if saturate and not cast_offline:
        raise PolicyError(
            "saturate=True clamps parameters when they are cast now; with cast_optional_params=False they "
            "are cast at every forward pass, where MXNet's casts overflow. Give one of the two."
        )
    if target is None:
        target = Target.for_dtype(policy.target_dtype)
    elif not isinstance(target, Target):
        raise TargetError(
            f"target must be the name of a built-in target or a Target, not {type(target).__name__}."
        )
    if target.dtype is not policy.target_dtype:
        raise PolicyError(
            f"The policy is for {policy.target_dtype} and the target {target.name} for {target.dtype}; "
            "they must be for the same dtype."
        )
    params: dict[str, Parameter] = {**arg_params, **aux_params}
    if inputs is None:
        check_params(graph, params)
        inputs = [name for name in graph.variables if name not in params]
    unused_rules = check_rules_fit(policy, graph)
    stored = {name: value.dtype for name, value in params.items()}
    interface = decide_interface(io_dtype, policy.target_dtype, graph, inputs, stored)
    notes = [*unused_rules, *_notes(graph, policy, cast_op)]
    dubious = not_finite(params)
    if dubious:
        notes.append(not_finite_warning(dubious))
    if target.warning:
        notes.append(f"The target {target.name}: {target.warning}")
    if placing is not None:
        notes.extend(placing.notes)
    if guard is not None and guard.warning is not None:
        notes.append(guard.warning)
    is_measured = placing is not None or (guard is not None and guard.result is not None)
    notes.extend(interface.notes)

    # A pure policy asks what low precision does to the user's own nodes.
    steps = () if policy.is_pure else steps
    forms = {name: ParameterForm(value.shape, value.dtype) for name, value in params.items()}
    preparation = prepare_graph(
        graph, params, policy, steps, target=target, shapes=shapes, low_inputs=interface.inputs
    )
    graph, shapes = preparation.graph, preparation.shapes
    arg_params = {name: value for name, value in preparation.params.items() if name not in aux_params}
    aux_params = {name: value for name, value in preparation.params.items() if name in aux_params}
    notes.extend(_lost_branches(preparation))
    origins = preparation.positions
    masks = RewriteMasks(arg_params, aux_params, policy)
    if rewrite_masks and not policy.is_pure:
        graph = Pipeline([masks]).run(graph)
        arg_params = masks.arg_params
        origins = [origins[position] for position in masks.positions]
        shapes = [shapes[origin] for origin in masks.positions] if shapes is not None else None
    conversion = _Conversion(
        graph=graph,
        arg_params=arg_params,
        aux_params=aux_params,
        policy=policy,
        target=target,
        cast_op=cast_op,
        cast_offline=cast_offline,
        fold_batch_norm=fold_batch_norm,
        shapes=shapes,
        inputs=inputs,
        build_symbol=build_symbol,
        low_inputs=interface.inputs,
        low_heads=interface.heads,
        notes=notes,
        saturate=saturate,
        masks=masks.masks,
        forms=forms,
        preparation=replace(preparation, params={}),  # the report must keep no parameter alive
        origins=origins,
        low_precision=low_precision,
        kept=kept or {},
        fold_float32=fold_float32,
        guard=guard,
        placing=placing,
        observe=observe,
        drops_no_ops=DropNoOps.step in steps,
        mismatch=None if is_measured else mismatch,
    )
    # What the casts lose is seen for dtypes of MXNet's alone.
    watched = cast_offline and not saturate and not policy.target_dtype.is_emulated_only
    unmeasured = unmeasured_parameters(graph, arg_params) if watched else {}

    def measured() -> Model:
        # A cast has shown infinities or NaN, or all is read anyway: now it is worth looking who has them.
        on_disk = {name: parameter for name, parameter in params.items() if parameter.is_on_disk}
        found = [] if dubious else not_finite(on_disk, read_all=True)
        if found:
            notes.append(not_finite_warning(found))
        return conversion.run_measured()

    def measured_late() -> Model:
        before = len(notes)
        model = measured()
        for note in notes[before:] if warn else ():
            warnings.warn(note, MxampWarning, stacklevel=2)
        return model

    model = conversion.run({**arg_params, **unmeasured}) if unmeasured else None
    model = measured() if model is None else PostponedModel.postponing(model, measured_late)
    for note in conversion.said if warn else ():
        warnings.warn(note, MxampWarning, stacklevel=4)  # past the pause, at whoever called the front door
    return model


@dataclass(frozen=True)
class _Conversion:
    """What :func:`convert_graph` was given, checked and completed."""

    graph: Graph
    arg_params: Mapping[str, Parameter]
    aux_params: Mapping[str, Parameter]
    policy: Policy
    target: Target
    cast_op: str
    cast_offline: bool
    fold_batch_norm: bool
    shapes: Shapes | None
    inputs: Sequence[str]
    build_symbol: bool
    low_inputs: Mapping[str, DType]
    low_heads: frozenset[int]
    notes: Sequence[str]
    saturate: bool
    masks: Sequence[RewrittenMask]
    forms: Mapping[str, ParameterForm]
    """The user's parameters."""
    preparation: Preparation
    origins: Sequence[int]
    """For every node of ``graph`` the node of the user's graph that it is."""
    low_precision: LowPrecision | None
    kept: Mapping[str, str]
    fold_float32: bool
    guard: GuardReport | None
    placing: Placing | None
    observe: Callable[[Rewrites], None] | None
    drops_no_ops: bool
    mismatch: Mismatch | None
    said: list[str] = field(default_factory=list)
    """The notes, and what follows from the plan of the last run."""

    def run_measured(self) -> Model:
        """Do it with every parameter measured."""
        model = self.run(self.arg_params)
        assert model is not None  # nothing was left unmeasured
        return model

    def run(self, arg_params: Mapping[str, Parameter]) -> Model | None:
        """Decide, rewrite, cast; None where ``arg_params`` were unmeasured and some are out of range."""
        graph = self.graph
        params = {**arg_params, **self.aux_params}
        plan = decide(
            DecisionInputs(
                graph=graph,
                variables=variable_dtypes(graph, {name: value.dtype for name, value in params.items()}),
                params=params,
                policy=self.policy,
                target=self.target,
                shapes=self.shapes,
                low_inputs=self.low_inputs,
                low_heads=self.low_heads,
                castable=frozenset(name for name, value in arg_params.items() if not value.is_sparse)
                if self.cast_offline
                else frozenset(),
                saturate=self.saturate,
                low_precision=self.low_precision,
                kept=self.kept,
                placing=self.placing,
            )
        )
        nothing = why_nothing_is_low(plan, self.policy.target_dtype)
        mismatch = self.mismatch if nothing is None else None
        self.said[:] = [*self.notes, *self._said_of_plan(plan, nothing)]
        fold = FoldBatchNorm(
            plan,
            arg_params,
            self.aux_params,
            self.policy.target_dtype,
            layers=self.target.fold_into,
            float32=self.fold_float32,
        )
        preparation = [fold] if self.fold_batch_norm else []
        prepared = Pipeline(preparation).run(graph)
        convolve = ConvolveBatchNorm(fold.plan, fold.arg_params, fold.aux_params, self.policy.target_dtype)
        if self.fold_batch_norm and self.target.convolves_batch_norm and not self.policy.is_pure:
            prepared = Pipeline([convolve], finished=[step.name for step in preparation]).run(prepared)
        plan_after = convolve.plan
        to_cast, dtypes = convolve.arg_params, offline_dtypes(prepared, plan_after)
        saturations: Mapping[str, Saturation] = {}
        if self.saturate:
            to_cast, saturations = saturate_parameters(to_cast, dtypes)
        # From here on there are several things to do that do not wait for each other: the casts and MXNet's
        # parser need no Python.
        with OfflineCasts(to_cast, dtypes) as casts:
            rewrite = InsertCasts(
                plan_after,
                cast_op=self.cast_op,
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
            rewrites = Rewrites(graph, prepared, after, plan, folded, rewrite, self.shapes)
            if self.observe is not None:
                self.observe(rewrites)
            # Built when it is read; until then it must keep no parameter alive.
            report = partial(
                build_report,
                rewrites,
                {name: ParameterForm(value.shape, value.dtype) for name, value in params.items()},
                target_dtype=self.policy.target_dtype,
                target=self.target.name,
                inputs=self.inputs,
                shapes=self.shapes,
                warnings=tuple(self.said),
                saturations=saturations,
                masks=self.masks,
                users=self.forms,
                preparation=self.preparation,
                origins=self.origins,
                guard=self.guard,
                machine="" if self.target.cost is None else self.target.cost.machine,
                here=None if mismatch is None else mismatch.here,
                nothing_low=nothing,
                race=() if self.placing is None else self.placing.race,
            )
            stored = _stored(convolve.arg_params, rewrite, casts)
        # Leaving the block helped with the casts; now there is nothing left to do but wait for MXNet.
        built = {"sym": building[0]()} if building else {}
        if casts.may_have_lost_range and arg_params is not self.arg_params:
            return None
        return Model(after, stored, dict(convolve.aux_params), report, built)

    def _said_of_plan(self, plan: Plan, nothing: str | None) -> Sequence[str]:
        """Return what the user should know of what was decided."""
        if nothing is None:
            return () if self.mismatch is None else (self.mismatch.warning,)
        low = self.policy.target_dtype
        is_told = self.guard is not None and self.guard.warning is not None
        return () if is_told or already_low(plan) is low else (f"Nothing was converted to {low}: {nothing}.",)


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


def _is_unknown(node: Node) -> bool:
    return not (
        FACTS.of(node.op, node.attrs) is not None
        or node.op in (AMP_CAST, AMP_MULTICAST)
        or is_control_flow(node)
    )


def _notes(graph: Graph, policy: Policy, cast_op: str) -> tuple[str, ...]:
    """Return what the user should be warned about."""
    notes = []
    unknown: dict[str, str] = {}
    for top in graphs_within(graph):
        for node in top.nodes:
            if node.op != VARIABLE and _is_unknown(node):
                unknown.setdefault(operator_label(node.op, node.attrs), node.name)
    for op, name in unknown.items():
        notes.append(
            f"mxamp knows nothing about the operator {op} (node {name!r}): it computes in float32, and what "
            "it returns is cast to float32. mxamp.register_operator tells mxamp what it is."
        )
    if cast_op == "Cast" and policy.target_dtype.label == "bfloat16":
        notes.append(
            "cast_op='Cast': MXNet's Cast truncates to bfloat16 instead of rounding to nearest even, so "
            "every cast at run time is biased by half an ulp. Use amp_cast wherever the consumer knows it."
        )
    return tuple(notes)


def _lost_branches(preparation: Preparation) -> list[str]:
    """Return a warning for what MXNet's fusion computes wrongly, at the least before conversion."""
    if not preparation.lost:
        return []
    first, nodes = preparation.lost[0], preparation.before.nodes
    if first.fault:
        what = f"although {first.fault}, and that comes out wrong"
    elif first.reader is None:
        what = "although that is an output of the model, so that one of the two results is lost"
    elif first.reader == first.fused:
        what = "which reads it twice, and fails"
    else:
        what = (
            f"although {nodes[first.reader].name!r} reads it as well, so that one of the two results is lost"
        )
    more = f" There are {len(preparation.lost)} such places." if len(preparation.lost) > 1 else ""
    kept = any(change.step == KeepBranches.step for change in preparation.changes)
    which = "that model is bound; this one is guarded" if kept else "that model or this one is bound"
    return [
        "MXNet's oneDNN fusion computes the float32 model wrongly on CPUs: it fuses "
        f"{nodes[first.value].name!r} with {nodes[first.fused].name!r}, {what}.{more} Set "
        f"MXNET_SUBGRAPH_BACKEND=NONE in the environment before {which}."
    ]


def check_flag(given: Any, label: str) -> None:
    """Check that an option that is either on or off is one or the other.

    Raises
    ------
    PolicyError
        When it is anything but a bool.
    """
    if not isinstance(given, (bool, np.bool_)):
        raise PolicyError(f"{label} must be True or False, not {given!r}.")
