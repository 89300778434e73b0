"""The front door: convert a graph, a Symbol with parameters, files, or a Gluon block."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np

from mxamp.decisions import DecisionInputs, IoDtype, decide, resolve_io_dtype
from mxamp.dtypes import DType
from mxamp.errors import MxampWarning, PolicyError, TargetError, UnknownNameError, nearest_names
from mxamp.garbage import paused_collection
from mxamp.graph.control_flow import graphs_within, is_control_flow
from mxamp.graph.graph import Graph, Node
from mxamp.graph.infer import variable_dtypes
from mxamp.graph.output_names import output_names
from mxamp.model import Model, graph_of
from mxamp.ops import FACTS
from mxamp.ops.casts import AMP_CAST, AMP_MULTICAST, CAST_OPERATORS
from mxamp.params.check import check_params
from mxamp.params.parameter import Parameter
from mxamp.passes import FoldBatchNorm, InsertCasts, Pipeline
from mxamp.policy.coloring import check_rules_fit
from mxamp.policy.mxnet_lists import ConditionalOperators, apply_mxnet_lists
from mxamp.policy.policy import ColorFunction, Policy
from mxamp.report.build import Rewrites, Shapes, build_report
from mxamp.targets import Target

__all__ = ["convert_graph", "convert_model", "convert_symbol", "resolve_policy"]


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

    Returns
    -------
    Model
        The converted model with its report.
    """
    if not isinstance(cast_op, str) or cast_op not in CAST_OPERATORS:
        raise PolicyError(f"cast_op must be {' or '.join(CAST_OPERATORS)}, not {cast_op!r}.")
    _check_flag(cast_offline, "cast_optional_params")
    _check_flag(fold_batch_norm, "fold_batch_norm")
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
    check_rules_fit(policy, graph)
    names = output_names(graph)
    low_inputs, low_outputs = resolve_io_dtype(io_dtype, policy.target_dtype, inputs, names)
    notes = [*_notes(graph, policy, cast_op)]
    for name in _outputs_that_stay(graph, names, low_inputs):
        if name not in low_outputs:
            continue
        reason = (
            f"the output {name!r} cannot be {policy.target_dtype}, for a cast would have to change its name"
        )
        if isinstance(io_dtype, Mapping):
            raise PolicyError(f"io_dtype: {reason}. Leave it float32.")
        notes.append(f"io_dtype: {reason}; it stays float32.")
        del low_outputs[name]

    dtypes = variable_dtypes(graph, {name: parameter.dtype for name, parameter in params.items()})
    plan = decide(
        DecisionInputs(
            graph=graph,
            variables=dtypes,
            params=params,
            policy=policy,
            target=target,
            shapes=shapes,
            low_inputs=low_inputs,
            low_heads=frozenset(n for n, name in enumerate(names) if name in low_outputs),
            castable=frozenset(arg_params) if cast_offline else frozenset(),
        )
    )
    fold = FoldBatchNorm(plan, arg_params, aux_params, policy.target_dtype, layers=target.fold_into)
    preparation = [fold] if fold_batch_norm else []
    prepared = Pipeline(preparation).run(graph)
    rewrite = InsertCasts(fold.plan, cast_op=cast_op, reserved_names=[*fold.arg_params, *fold.aux_params])
    after = Pipeline([rewrite], finished=[step.name for step in preparation]).run(prepared)
    for note in notes:
        warnings.warn(note, MxampWarning, stacklevel=4)  # past the pause, at whoever called the front door
    return Model(
        graph=after,
        arg_params=_store(fold.arg_params, rewrite),
        aux_params=dict(fold.aux_params),
        report=build_report(
            Rewrites(graph, prepared, after, plan, fold, rewrite),
            params,
            target_dtype=policy.target_dtype,
            target=target.name,
            inputs=inputs,
            shapes=shapes,
            warnings=notes,
        ),
    )


def _outputs_that_stay(graph: Graph, names: Sequence[str], low_inputs: Mapping[str, DType]) -> list[str]:
    """Return the outputs whose name MXNet does not derive as it would a cast's (``node_output``)."""
    stay = []
    for head, name in zip(graph.heads, names):
        node = graph.nodes[head.node]
        if node.is_variable:
            if node.name not in low_inputs:
                stay.append(name)
        elif name != f"{node.name}_output":
            stay.append(name)
    return stay


def _store(arg_params: Mapping[str, Parameter], rewrite: InsertCasts) -> dict[str, Parameter]:
    """Cast the parameters that are stored in another dtype, and add second copies after their originals."""
    stored: dict[str, Parameter] = {}
    twins: dict[str, list[str]] = {}
    for name, kept in rewrite.parameters.items():
        if name != kept.source:
            twins.setdefault(kept.source, []).append(name)
    for name, parameter in arg_params.items():
        form = rewrite.parameters.get(name)
        stored[name] = parameter.cast(form.dtype if form is not None else parameter.dtype)
        for twin in twins.get(name, ()):
            stored[twin] = parameter.cast(rewrite.parameters[twin].dtype)
    return stored


def _is_unknown(node: Node) -> bool:
    return not (
        node.is_variable
        or FACTS.get(node.op) is not None
        or node.op in (AMP_CAST, AMP_MULTICAST)
        or is_control_flow(node)
    )


def _notes(graph: Graph, policy: Policy, cast_op: str) -> tuple[str, ...]:
    """Return what the user should be warned about."""
    notes = []
    unknown: dict[str, str] = {}
    for top in graphs_within(graph):
        for node in top.nodes:
            if _is_unknown(node):
                unknown.setdefault(node.op, node.name)
    for op, name in unknown.items():
        notes.append(
            f"mxamp knows nothing about the operator {op} (node {name!r}): it computes in float32, and what "
            "it returns is cast to float32."
        )
    if cast_op == "Cast" and policy.target_dtype.label == "bfloat16":
        notes.append(
            "cast_op='Cast': MXNet's Cast truncates to bfloat16 instead of rounding to nearest even, so "
            "every cast at run time is biased by half an ulp. Use amp_cast wherever the consumer knows it."
        )
    return tuple(notes)


def convert_model(
    sym: Any,
    args: Mapping[str, Any],
    auxs: Mapping[str, Any],
    target_dtype: Any = "float16",
    *,
    policy: Policy | str | Path | None = None,
    target: Target | str | None = None,
    exclude: Sequence[str] = (),
    color: ColorFunction | None = None,
    io_dtype: IoDtype = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    cast_op: str = AMP_CAST,
    fold_batch_norm: bool = True,
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    widest_dtype_ops: Sequence[str] | None = None,
    conditional_fp32_ops: ConditionalOperators | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    cast_optional_params: bool = True,
) -> Model:
    """Convert an FP32 model to mixed precision for inference.

    A drop-in for ``mx.contrib.amp.convert_model``: ``sym, args, auxs = convert_model(...)`` unpacks. The
    caller's symbol, dicts and arrays are never changed.

    Parameters
    ----------
    sym
        ``mx.sym.Symbol``, or an :class:`mxamp.graph.Graph`.
    args, auxs
        Parameters and auxiliary states by name: ``mx.nd.NDArray`` or NumPy arrays, FP32.
    target_dtype
        ``"float16"`` (GPUs) or ``"bfloat16"`` (CPUs).
    policy
        What may run in low precision: a :class:`Policy` or the path of a TOML file. By default the
        built-in policy of ``target_dtype``.
    target
        What the machine can do: a :class:`Target` or the name of a built-in one. By default ``cpu-bf16`` for
        bfloat16 and ``cuda-fp16`` for float16.
    exclude
        Names or shell patterns of nodes that stay FP32.
    color
        ``color(node) -> Color | None`` over :class:`mxamp.policy.NodeView`; None leaves it to the policy.
    io_dtype
        The dtype of the model's inputs and outputs: None for FP32, ``"low"`` for the target dtype, or a
        mapping from input and output names to either.
    input_shapes
        Input name -> shape. With it (and MXNet) the report counts multiply-adds and bytes of casts.
    cast_op
        ``"amp_cast"``, or ``"Cast"`` for consumers that strip or do not know the amp operators.
    fold_batch_norm
        Whether a BatchNorm that computes low is folded into the low layer before it: its node and parameters
        go, the layer's weight changes and it may gain a bias. MXNet's fused BF16 Convolution+BatchNorm
        truncates instead of rounding; folding removes that error. Never done where a name would be lost.
    target_dtype_ops, fp32_ops, widest_dtype_ops, conditional_fp32_ops, excluded_sym_names
        MXNet's lists, with MXNet's meanings: see :func:`mxamp.policy.mxnet_lists.apply_mxnet_lists`.
    cast_optional_params
        Whether parameters are cast now (the default) or, with False, at every forward pass, which makes
        most models slower than FP32; MXNet's own default is False.

    Returns
    -------
    Model
        Unpacks as ``sym, args, auxs``; ``.report`` explains every node and cast, ``.save`` writes the files.

    Raises
    ------
    PolicyError, UnknownNameError
        When the policy contradicts itself or names what the model does not have.
    ParamsError
        When a parameter is missing or has the wrong shape.
    GraphError, OperatorError
        When the graph is broken.
    TargetError
        When there is no such target.

    Examples
    --------
    >>> model = mxamp.convert_model(sym, args, auxs, target_dtype="bfloat16")  # doctest: +SKIP
    >>> model.save("resnet50-bf16")  # doctest: +SKIP
    """
    model = Model.of(sym, args, auxs)
    graph = model.graph
    chosen = resolve_policy(
        policy,
        target_dtype,
        graph,
        exclude=exclude,
        color=color,
        target_dtype_ops=target_dtype_ops,
        fp32_ops=fp32_ops,
        widest_dtype_ops=widest_dtype_ops,
        conditional_fp32_ops=conditional_fp32_ops,
        excluded_sym_names=excluded_sym_names,
    )
    shapes = None
    if input_shapes is not None:
        from mxamp.runtime.shapes import infer_shapes

        shapes = infer_shapes(graph, input_shapes, {**model.arg_params, **model.aux_params})
    return convert_graph(
        graph,
        model.arg_params,
        model.aux_params,
        policy=chosen,
        target=Target.builtin(target) if isinstance(target, str) else target,
        io_dtype=io_dtype,
        cast_op=cast_op,
        cast_offline=cast_optional_params,
        fold_batch_norm=fold_batch_norm,
        shapes=shapes,
    )


def convert_symbol(
    sym: Any,
    target_dtype: Any = "float16",
    *,
    policy: Policy | str | Path | None = None,
    data_names: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    color: ColorFunction | None = None,
    cast_op: str = AMP_CAST,
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    widest_dtype_ops: Sequence[str] | None = None,
    conditional_fp32_ops: ConditionalOperators | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    cast_optional_params: bool = False,
) -> Any:
    """Convert a Symbol alone, so that it runs in mixed precision with the FP32 parameters it had.

    The parameters are cast at every forward pass, because their values are not here to be cast once;
    :func:`convert_model` is faster and checks their ranges too.

    Parameters
    ----------
    sym
        ``mx.sym.Symbol``, or an :class:`mxamp.graph.Graph`.
    data_names
        The variables that are inputs; accepted for compatibility, since without values every variable is
        treated alike.
    cast_optional_params
        Must be False: use :func:`convert_model`.
    target_dtype, policy, exclude, color, cast_op
        See :func:`convert_model`.
    target_dtype_ops, fp32_ops, widest_dtype_ops, conditional_fp32_ops, excluded_sym_names
        See :func:`convert_model`.

    Returns
    -------
    mx.sym.Symbol or Graph
        Whichever was given.

    Raises
    ------
    UnknownNameError
        When ``data_names`` holds a name that is no variable of the symbol.
    PolicyError
        When ``cast_optional_params`` is true, and as in :func:`convert_model`.
    """
    _check_flag(cast_optional_params, "cast_optional_params")
    if cast_optional_params:
        raise PolicyError(
            "convert_symbol has no parameter values to cast. Use convert_model(sym, args, auxs, ...), which "
            "casts them once and stores a parameter in both dtypes where its readers disagree."
        )
    graph = graph_of(sym)
    for name in _names(data_names, "data_names"):
        if name not in graph.variables:
            raise UnknownNameError(
                f"data_names holds {name!r}, which is no variable of the symbol."
                f"{nearest_names(name, graph.variables)}"
            )
    chosen = resolve_policy(
        policy,
        target_dtype,
        graph,
        exclude=exclude,
        color=color,
        target_dtype_ops=target_dtype_ops,
        fp32_ops=fp32_ops,
        widest_dtype_ops=widest_dtype_ops,
        conditional_fp32_ops=conditional_fp32_ops,
        excluded_sym_names=excluded_sym_names,
    )
    model = convert_graph(graph, {}, {}, policy=chosen, cast_op=cast_op, inputs=list(graph.variables))
    return model.graph if isinstance(sym, Graph) else model.sym


def resolve_policy(
    policy: Policy | str | Path | None,
    target_dtype: Any,
    graph: Graph,
    *,
    exclude: Sequence[str] = (),
    color: ColorFunction | None = None,
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    widest_dtype_ops: Sequence[str] | None = None,
    conditional_fp32_ops: ConditionalOperators | None = None,
    excluded_sym_names: Sequence[str] | None = None,
) -> Policy:
    """Return the policy that the arguments of :func:`convert_model` amount to.

    Raises
    ------
    PolicyError
        When the policy is for another dtype than ``target_dtype``, or contradicts itself.
    """
    default = Policy.default(target_dtype)
    if policy is None:
        policy = default
    elif isinstance(policy, (str, os.PathLike)):
        policy = Policy.load(policy)
    elif not isinstance(policy, Policy):
        raise PolicyError(f"policy must be a Policy or the path of a TOML file, not {type(policy).__name__}.")
    if policy.target_dtype is not default.target_dtype:
        raise PolicyError(
            f"The policy is for {policy.target_dtype}, but target_dtype is {default.target_dtype}. "
            "Give the target_dtype that the policy is for."
        )
    excluded = _names(exclude, "exclude")
    present = {node.name for top in graphs_within(graph) for node in top.nodes}
    # A name may hold the signs of a pattern: then it is a name first.
    patterns = [name for name in excluded if name not in present and any(sign in name for sign in "*?[")]
    names = [name for name in excluded if name not in patterns]
    policy = apply_mxnet_lists(
        policy,
        target_dtype_ops=target_dtype_ops,
        fp32_ops=fp32_ops,
        widest_dtype_ops=widest_dtype_ops,
        conditional_fp32_ops=conditional_fp32_ops,
        excluded_sym_names=excluded_sym_names,
        known_operators=[node.op for top in graphs_within(graph) for node in top.nodes],
    )
    if names:
        policy = policy.excluding(names=names)
    for pattern in patterns:
        policy = policy.excluding(globs=[pattern])
    return policy.with_color_function(color) if color is not None else policy


def _check_flag(given: Any, label: str) -> None:
    if not isinstance(given, (bool, np.bool_)):
        raise PolicyError(f"{label} must be True or False, not {given!r}.")


def _names(given: Any, label: str) -> list[str]:
    """Return names given by the user as a list; a generator can be read once only."""
    if given is None:
        return []
    if isinstance(given, str):
        raise PolicyError(f"{label} must be a list of names, not the string {given!r}: write [{given!r}].")
    try:
        names = list(given)
    except TypeError:
        names = [None]
    if not all(isinstance(name, str) for name in names):
        raise PolicyError(f"{label} must be a list of names, which are strings, not {given!r}.")
    return names
