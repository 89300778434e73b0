"""Convert a Gluon block."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Sequence

from mxamp.calibration import Calibration, Compensation
from mxamp.calibration.ranges import HEADROOM
from mxamp.conversion import PREPARATIONS, KnownShapes, Source, known_shapes
from mxamp.conversion.notes import unfused_notes
from mxamp.convert import convert_source
from mxamp.decisions import IoDtype, LowPrecision
from mxamp.dtypes import GivenDType
from mxamp.graph.unfused import unfused
from mxamp.guard import Guard
from mxamp.messages.arguments import one_of
from mxamp.messages.warn import warn_user
from mxamp.model.accepted import Array, Block, BlockInputs, BlockShapes, Device
from mxamp.model.provenance import History
from mxamp.ops.casts import AMP_CAST
from mxamp.policy.mxnet_lists import ConditionalOperators
from mxamp.policy.parts import ColorFunction
from mxamp.policy.policy import Policy
from mxamp.policy.resolve import resolve_policy
from mxamp.profile import Profiling
from mxamp.targets import GivenTarget

if TYPE_CHECKING:
    from mxamp.runtime.block import MixedPrecisionBlock


def convert_block(
    block: Block | None = None,
    target_dtype: GivenDType = "float16",
    target_dtype_ops: Sequence[str] | None = None,
    fp32_ops: Sequence[str] | None = None,
    conditional_fp32_ops: ConditionalOperators | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    ctx: Device | Sequence[Device] = None,
    cast_optional_params: bool = True,
    *,
    net: Block | None = None,
    input_shapes: BlockShapes | None = None,
    inputs: Array | BlockInputs | None = None,
    policy: Policy | str | Path | None = None,
    target: GivenTarget = None,
    exclude: Sequence[str] = (),
    color: ColorFunction | None = None,
    io_dtype: IoDtype = None,
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
) -> MixedPrecisionBlock:
    """Convert a Gluon block to mixed precision for inference.

    Also called ``convert_hybrid_block``, its name in ``mx.contrib.amp``, with the same order of arguments.

    Parameters
    ----------
    block
        An initialised ``HybridBlock``, hybridized or not, with or without a previous forward pass; or a
        ``SymbolBlock``. Neither it nor its parameters are changed, with one exception: parameters that still
        wait for the shapes of the inputs (deferred initialisation) are initialised when ``inputs`` or
        ``input_shapes`` are given, as its first forward pass would have done.
    target_dtype
        ``"float16"`` (GPUs) or ``"bfloat16"`` (CPUs).
    ctx
        The device, or list of devices, that the new block's parameters lie on: ``mx.Context`` or its name.
        By default a CPU for bfloat16, and where the block is for float16.
    input_shapes
        The shapes of the inputs: one tuple for one input, a list of tuples in the order in which the block
        takes them (nested as the inputs are), or a dict by input name (Gluon calls one input ``data``,
        several ``data0``, ``data1`` ...). Needed for several inputs and for deferred initialisation where the
        block has not run yet. With shapes the report also counts multiply-adds and bytes, and
        ``low_precision`` may be weighed.
    inputs
        Sample inputs instead of shapes: one NDArray, or the list of the block's arguments, each an NDArray,
        None or a nested list, as in ``net(*inputs)``. Only their shapes and nesting are used.
    policy, target, exclude, color, io_dtype, cast_op, fold_batch_norm, saturate, rewrite_masks, prepare
        See :func:`mxamp.convert_model`.
    low_precision, profile, cast_optional_params, guard, calibration, compensate, headroom,
    time_budget
        See :func:`mxamp.convert_model`. Nodes have the names that ``net.export`` writes.
    target_dtype_ops, fp32_ops, widest_dtype_ops, conditional_fp32_ops, excluded_sym_names
        MXNet's lists; see :func:`mxamp.convert_model`.
    net
        Another name of ``block``.

    Returns
    -------
    MixedPrecisionBlock
        A ``SymbolBlock`` with the same inputs and outputs, nested alike. ``.report`` explains every node,
        ``.model`` is the model, ``.export`` keeps the casts, and ``hybridize`` works as for any block.

    Raises
    ------
    TracingError
        When the block is no ``HybridBlock``, is not initialised, or cannot be turned into a graph.
    DataError, UnknownNameError
        When ``inputs`` or ``input_shapes`` do not fit the block.
    DeviceError
        When a device of ``ctx`` is not there, or is a GPU and the dtype bfloat16.
    PolicyError, ParamsError, GraphError, TargetError
        See :func:`mxamp.convert_model`.

    Warns
    -----
    MxampWarning
        For float16 on a CPU, where MXNet cannot run the result; it can be saved and run on a GPU.

    Examples
    --------
    >>> net16 = mxamp.convert_block(net, target_dtype="bfloat16")  # doctest: +SKIP
    >>> net16(images)  # doctest: +SKIP
    """
    from mxamp.runtime.block import MixedPrecisionBlock
    from mxamp.runtime.device import cpu_float16_note, resolve_contexts
    from mxamp.runtime.parameter import parameters_from_ndarrays
    from mxamp.runtime.trace import block_contexts, check_block, trace_block

    net = one_of("convert_block", block=block, net=net)
    check_block(net)
    dtype = Policy.default(target_dtype).target_dtype
    contexts = resolve_contexts(ctx, dtype, default=block_contexts(net))
    traced = trace_block(net, inputs=inputs, input_shapes=input_shapes)
    graph, fused = unfused(traced.graph)
    args = parameters_from_ndarrays(traced.args)
    auxs = parameters_from_ndarrays(traced.auxs)
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
    # The block says what its inputs are, so one may stand where a weight usually does; and one that nothing
    # reads is no part of the graph.
    input_names = [name for name in graph.variables if name in traced.inputs]
    known = KnownShapes(None)
    if traced.input_shapes is not None:
        read = {name: shape for name, shape in traced.input_shapes.items() if name in input_names}
        known = known_shapes(graph, read, {**args, **auxs}, sym=None if fused else traced.sym)
    model = convert_source(
        Source(graph, args, auxs, input_names, known.entries, (*known.notes, *unfused_notes(fused))),
        chosen,
        target=target,
        profile=profile,
        guard=guard,
        input_shapes=traced.input_shapes,
        ctx=contexts[0] if contexts[0].device_type == "gpu" else None,
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
    )._made_from(History(), chosen)
    note = cpu_float16_note(contexts, dtype)
    if note is not None:
        warn_user(note)
        if model.report is not None:
            report = dataclasses.replace(model.report, warnings=(*model.report.warnings, note))
            model = dataclasses.replace(model, report=report)
    return MixedPrecisionBlock.from_traced(model, traced, contexts)
