"""The front door: convert a Symbol with its parameters, or a Symbol alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Mapping, Sequence, TypeVar, Union, cast

from mxamp.calibration import Calibration, Compensation
from mxamp.calibration.ranges import HEADROOM
from mxamp.conversion import (
    PREPARATIONS,
    KnownShapes,
    Options,
    Source,
    check_prepare,
    convert_graph,
    known_shapes,
)
from mxamp.conversion.emulation import emulate_model, emulation_target
from mxamp.conversion.notes import unfused_notes
from mxamp.decisions import IoDtype, LowPrecision, as_low_precision
from mxamp.dtypes import GivenDType
from mxamp.errors import PolicyError, UnknownNameError, nearest_names
from mxamp.graph.graph import Graph
from mxamp.graph.shapes import InputShapes, named_input_shapes
from mxamp.graph.unfused import unfused
from mxamp.guard import Guard
from mxamp.messages.arguments import check_flag, one_of, settings_of
from mxamp.model import Model, graph_of
from mxamp.model.accepted import GivenSymbol, Module, Params, SymbolGenerator
from mxamp.ops.casts import AMP_CAST
from mxamp.params.check import check_params, declared_inputs
from mxamp.passes import Emulation
from mxamp.policy.mxnet_lists import ConditionalOperators
from mxamp.policy.parts import ColorFunction
from mxamp.policy.policy import Policy
from mxamp.policy.resolve import names_given, resolve_policy
from mxamp.profile import Profiling
from mxamp.targets import AUTO, GivenTarget, Target, machine_dtype, machine_mismatch, resolve_target

SomeSymbol = TypeVar("SomeSymbol", bound=Union[GivenSymbol, SymbolGenerator])


def convert_model(
    sym: GivenSymbol | Module,
    arg_params: Params | None = None,
    aux_params: Params | None = None,
    target_dtype: GivenDType = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: ConditionalOperators | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    cast_optional_params: bool = True,
    *,
    args: Params | None = None,
    auxs: Params | None = None,
    policy: Policy | str | Path | None = None,
    target: GivenTarget = None,
    exclude: Sequence[str] = (),
    color: ColorFunction | None = None,
    io_dtype: IoDtype = None,
    input_shapes: InputShapes | None = None,
    inputs: Sequence[str] | None = None,
    cast_op: str = AMP_CAST,
    fold_batch_norm: bool = True,
    saturate: bool = False,
    rewrite_masks: bool = True,
    prepare: Sequence[str] = PREPARATIONS,
    low_precision: str | LowPrecision | None = None,
    profile: bool | Profiling = False,
    calibration: Calibration | None = None,
    compensate: str | Compensation | None = None,
    headroom: float = HEADROOM,
    time_budget: float | None = None,
    widest_dtype_ops: Sequence[str] | None = None,
    guard: bool | Guard = False,
    emulate: bool | Emulation = False,
) -> Model:
    """Convert an FP32 model to mixed precision for inference.

    A drop-in for ``mx.contrib.amp.convert_model``, with its names and its order of arguments:
    ``sym, args, auxs = convert_model(...)`` unpacks. The caller's symbol, dicts and arrays are never changed.

    Parameters
    ----------
    sym
        ``mx.sym.Symbol``, an :class:`mxamp.graph.Graph`, or an ``mx.mod.Module``, which has its parameters.
    arg_params, aux_params
        Parameters and auxiliary states by name: ``mx.nd.NDArray`` or NumPy arrays, FP32. Also ``args`` and
        ``auxs``.
    target_dtype
        ``"float16"`` (GPUs) or ``"bfloat16"`` (CPUs).
    target_dtype_ops, fp32_ops, widest_dtype_ops, conditional_fp32_ops, excluded_sym_names
        MXNet's lists, with MXNet's meanings: see :func:`mxamp.policy.mxnet_lists.apply_mxnet_lists`.
    cast_optional_params
        Whether parameters are cast now (the default) or, with False, at every forward pass, which makes
        most models slower than FP32; MXNet's own default is False.
    args, auxs
        Other names of ``arg_params`` and ``aux_params``.
    policy
        What may run in low precision: a :class:`Policy`, the path of a TOML file, or ``"pure"`` for
        :meth:`Policy.pure`. By default the built-in policy of ``target_dtype``.
    target
        What the machine can do and what it costs: a :class:`Target`, the name of a built-in one, the path of
        a JSON file, or ``"auto"`` for this machine's. By default ``cpu-bf16`` for bfloat16 and ``cuda-fp16``
        for float16.
    exclude
        Names or shell patterns of nodes that stay FP32.
    color
        ``color(node) -> Color | None`` over :class:`mxamp.policy.NodeView`; None leaves it to the policy.
    io_dtype
        The dtype of the model's inputs and outputs: None for FP32, ``"low"`` for the target dtype, or a
        mapping from input and output names to either.
    input_shapes
        Input name -> shape, or the shape of the only input. With it the report counts multiply-adds and bytes
        of casts, and where the target knows costs, every node computes in what is estimated to make the model
        fastest.
    inputs
        Names of variables that are inputs, as are those in ``input_shapes``. Only needed for an input that
        looks like a parameter whose value is missing: one that stands where a layer has its weight, or that
        has an initialiser. Every other variable without a value is an input anyway.
    cast_op
        ``"amp_cast"``, or ``"Cast"`` for consumers that strip or do not know the amp operators.
    fold_batch_norm
        Whether a BatchNorm that computes low is folded into the low layer before it, and every one into its
        layer where nothing is low: its node and parameters go, the layer's weight changes and it may gain a
        bias. MXNet's fused BF16 Convolution+BatchNorm truncates instead of rounding; folding removes that
        error. Never done where a name would be lost.
    saturate
        What becomes of parameters beyond the dtype's range (65504 in float16). By default the nodes that read
        them stay FP32. With True they are clamped to the largest finite value and the nodes may compute low;
        the report counts the values and names the largest. Scalar attributes are not clamped: such nodes stay
        FP32 in any case. Values that are infinite already stay so.
    rewrite_masks
        Whether masks beyond the dtype's range, such as -1e18 added before a softmax, get a value that it
        holds, where the result stays the same: see :class:`mxamp.passes.RewriteMasks`. With False they keep
        what reads them in FP32.
    prepare
        The passes that prepare the graph before anything is decided, each of which keeps every value (in
        FP32, some of them up to rounding), by their names: :data:`mxamp.conversion.PREPARATIONS` lists them.
        By default all; ``()`` for none. Some run only where the target gains by them. A color function sees
        the prepared graph. Not run for a pure policy. See :mod:`mxamp.passes`, and ``report.preparations``
        for what they did.
    low_precision
        ``"required"``: GREEN nodes are low wherever that is possible, though parameters that others share may
        then be stored twice and the model grow, as it never does otherwise. ``"profitable"``: where the model
        is then faster, as the target's costs say. ``"none"``: nowhere; the model stays float32, its graph
        prepared and BatchNorms folded, with ``target="auto"`` for this machine, whatever the dtype. By
        default ``"profitable"`` where ``input_shapes`` and the target tell costs. Without ``input_shapes`` it
        is so for the shapes that are usual for such a model (``report.assumed_shapes``); where nothing tells
        them, or so short a forward pass that they would not say what is faster, it is ``"required"``.
    profile
        Whether to measure this very model, on this machine, instead of estimating from the target's costs:
        its nodes and casts are timed while the whole model runs, they are placed by these times, and the plan
        runs against others as a whole. ``report.race`` says how. Needs ``input_shapes`` and takes some ten
        seconds; a :class:`mxamp.profile.Profiling` says how long it may take.
    calibration
        What the model's values are, as :func:`mxamp.calibrate` found them on samples. With it their ranges
        decide, too: see ``headroom``.
    compensate
        What is done, with a calibration, about the rounding of weights. None: each is rounded to nearest.
        ``"full"``: those of each layer are rounded so that what the layer computes changes least on the
        samples, together with its bias. ``"mean"``: only the bias is moved, by what rounding changes in the
        mean. The graph is the same. A :class:`mxamp.calibration.Compensation` says more about it.
    headroom
        With a calibration: how many times larger than its samples show values may be, and still fit the
        dtype. Where they would not, powers of two move between layers, which changes no bit, and where that
        cannot be, nodes stay FP32, with the value and the sample in their reason.
    time_budget
        With a calibration that has prices of roundings, and shapes: how much longer than the fastest
        placement the model may take, as a share and by the target's estimates. For that the roundings are
        avoided that err most, and the file may become as large as FP32's. None: 0.02, as much as is given up
        without a calibration, and a file larger by a quarter at most. ``profile`` places by times alone.
    guard
        Whether to measure the result against the FP32 model on this machine, for ``input_shapes``, and to
        give up low precision where it makes the model no faster; ``report.guard`` tells. A
        :class:`mxamp.guard.Guard` says more about it, such as how long that may take.
    emulate
        Whether to return the FP32 model that emulates the converted one: see :func:`mxamp.emulate`, which
        is also how to say more about it.

    Returns
    -------
    Model
        Unpacks as ``sym, args, auxs``; ``.report`` explains every node and cast, ``.save`` writes the files.

    Raises
    ------
    PolicyError, UnknownNameError
        When the policy contradicts itself or names what the model does not have, as ``inputs`` may; for
        ``profile=True`` without ``input_shapes``.
    ParamsError
        When a parameter is missing or has the wrong shape.
    GraphError, OperatorError
        When the graph is broken.
    TargetError
        When there is no such target; for ``profile=True`` when its device is not here.

    Examples
    --------
    >>> model = mxamp.convert_model(sym, args, auxs, target_dtype="bfloat16")  # doctest: +SKIP
    >>> model.save("resnet50-bf16")  # doctest: +SKIP
    """
    arg_params = one_of("convert_model", arg_params=arg_params, args=args)
    aux_params = one_of("convert_model", aux_params=aux_params, auxs=auxs)
    *triple, fed = _parts(sym, arg_params, aux_params)
    model = Model.of(*triple)
    graph, fused = unfused(model.graph)
    emulation = settings_of(Emulation, emulate, "emulate")
    chosen = resolve_policy(
        policy,
        target_dtype,
        graph,
        emulated=emulation is not None,
        exclude=exclude,
        color=color,
        target_dtype_ops=target_dtype_ops,
        fp32_ops=fp32_ops,
        widest_dtype_ops=widest_dtype_ops,
        conditional_fp32_ops=conditional_fp32_ops,
        excluded_sym_names=excluded_sym_names,
    )
    params = {**model.arg_params, **model.aux_params}
    declared = [*fed, *declared_inputs(graph, params, inputs)]
    known = KnownShapes(None)
    input_shapes = named_input_shapes(graph, input_shapes, params)
    if input_shapes is not None:
        whole = None if fused or isinstance(sym, Graph) else sym
        known = known_shapes(graph, input_shapes, params, sym=whole)
        declared += input_shapes
    check_params(graph, params, inputs=declared)
    names = [name for name in graph.variables if name not in params]
    converted = convert_source(
        Source(
            graph,
            model.arg_params,
            model.aux_params,
            names,
            known.entries,
            (*known.notes, *unfused_notes(fused)),
        ),
        chosen,
        target=target,
        profile=profile,
        guard=guard,
        emulation=emulation,
        input_shapes=input_shapes,
        build_symbol=emulation is None and not isinstance(sym, Graph),
        io_dtype=io_dtype,
        cast_op=cast_op,
        cast_offline=cast_optional_params,
        fold_batch_norm=fold_batch_norm,
        saturate=saturate,
        rewrite_masks=rewrite_masks,
        prepare=prepare,
        low_precision=low_precision,
        calibration=calibration,
        compensate=compensate,
        headroom=headroom,
        time_budget=time_budget,
    )
    return converted._made_from(model._history, chosen)


def convert_symbol(
    sym: SomeSymbol,
    target_dtype: GivenDType = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: ConditionalOperators | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    data_names: Sequence[str] | None = None,
    cast_optional_params: bool = False,
    *,
    policy: Policy | str | Path | None = None,
    exclude: Sequence[str] = (),
    color: ColorFunction | None = None,
    cast_op: str = AMP_CAST,
    saturate: bool = False,
    rewrite_masks: bool = True,
    prepare: Sequence[str] = PREPARATIONS,
    widest_dtype_ops: Sequence[str] | None = None,
) -> SomeSymbol:
    """Convert a Symbol alone, so that it runs in mixed precision with the FP32 parameters it had.

    The parameters are cast at every forward pass, because their values are not here to be cast once;
    :func:`convert_model` is faster and checks their ranges too.

    Parameters
    ----------
    sym
        ``mx.sym.Symbol``, or an :class:`mxamp.graph.Graph`. Or the ``sym_gen`` of a ``BucketingModule``: the
        result is one whose Symbols are converted, for a new ``BucketingModule`` with the same parameters.
    data_names
        The variables that are inputs; accepted for compatibility, since without values every variable is
        treated alike.
    cast_optional_params, saturate
        Must be False: use :func:`convert_model`.
    target_dtype, policy, exclude, color, cast_op, rewrite_masks, prepare
        See :func:`convert_model`.
    target_dtype_ops, fp32_ops, widest_dtype_ops, conditional_fp32_ops, excluded_sym_names
        See :func:`convert_model`.

    Returns
    -------
    mx.sym.Symbol, Graph or callable
        Whichever was given.

    Raises
    ------
    UnknownNameError
        When ``data_names`` holds a name that is no variable of the symbol.
    PolicyError
        When ``cast_optional_params`` or ``saturate`` is true, and as in :func:`convert_model`.
    """
    options = {name: value for name, value in locals().items() if name != "sym"}
    if _is_symbol_generator(sym):
        from mxamp.runtime.module import wrapped_generator

        wrapped = wrapped_generator(
            cast("SymbolGenerator", sym),
            partial(convert_symbol, **options),
        )
        return cast("SomeSymbol", wrapped)
    check_flag(cast_optional_params, "cast_optional_params")
    if cast_optional_params:
        raise PolicyError(
            "convert_symbol has no parameter values to cast. Use convert_model(sym, args, auxs, ...), which "
            "casts them once and stores a parameter in both dtypes where its readers disagree."
        )
    check_flag(saturate, "saturate")
    if saturate:
        raise PolicyError(
            "convert_symbol has no parameter values to clamp. Use convert_model(sym, args, auxs, ..., "
            "saturate=True)."
        )
    graph, fused = unfused(graph_of(sym))
    for name in names_given(data_names, "data_names"):
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
    source = Source(graph, {}, {}, list(graph.variables), notes=unfused_notes(fused))
    model = convert_source(source, chosen, cast_op=cast_op, rewrite_masks=rewrite_masks, prepare=prepare)
    return cast("SomeSymbol", model.graph if isinstance(sym, Graph) else model.sym)


def convert_source(
    source: Source,
    policy: Policy,
    *,
    target: GivenTarget = None,
    prepare: Any = PREPARATIONS,
    profile: Any = False,
    guard: Any = False,
    emulation: Emulation | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    ctx: Any = None,
    build_symbol: bool = False,
    **options: Any,
) -> Model:
    """Convert what a front door was given; the one place where options are made of its arguments.

    ``target``, ``prepare``, ``profile`` and ``guard`` are as the user gave them, and ``**options`` what else
    was asked for, as fields of :class:`mxamp.conversion.Options`. To be profiled and guarded the model is fed
    ``input_shapes``, and profiled on ``ctx``, or else the target's device.
    """
    guarding = settings_of(Guard, guard, "guard")
    profiling = None if profile is None else settings_of(Profiling, profile, "profile")
    is_emulated = emulation is not None
    stays_float32 = as_low_precision(options.get("low_precision")) is LowPrecision.NONE
    if stays_float32 and target == AUTO and not is_emulated:
        # Nothing is to be low, so that it is the machine alone that counts.
        policy = replace(policy, target_dtype=machine_dtype())
    machine = None if target is None else resolve_target(target, policy.target_dtype)
    if is_emulated:
        machine = emulation_target(policy, machine)
    machine = machine or Target.for_dtype(policy.target_dtype)
    mismatch = None if is_emulated else machine_mismatch(machine)
    asked = Options(policy, machine, prepare=check_prepare(prepare), mismatch=mismatch, **options)
    if profiling is not None or guarding is not None:
        from mxamp.guard.measured import measured_options

        asked = measured_options(source, asked, profiling, guarding, input_shapes, is_emulated, ctx)
    model = convert_graph(source, asked, build_symbol=build_symbol)
    return model if emulation is None else emulate_model(model, machine, emulation)


def _parts(sym: Any, arg_params: Any, aux_params: Any) -> tuple[Any, Any, Any, Sequence[str]]:
    """Return symbol, parameters, and what is known to be an input."""
    if isinstance(sym, Graph):
        return sym, arg_params, aux_params, ()
    from mxamp.runtime.module import module_parts

    return module_parts(sym, arg_params, aux_params)


def _is_symbol_generator(sym: Any) -> bool:
    if isinstance(sym, Graph):
        return False
    from mxamp.runtime.module import is_symbol_generator

    return is_symbol_generator(sym)
