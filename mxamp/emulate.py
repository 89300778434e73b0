"""Emulate a conversion: measure what low precision does to a model, on any machine that runs float32."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from mxamp.conversion import PREPARATIONS
from mxamp.convert import convert_model
from mxamp.decisions import IoDtype
from mxamp.dtypes import GivenDType
from mxamp.graph.shapes import InputShapes
from mxamp.messages.arguments import one_of
from mxamp.model import Model
from mxamp.model.accepted import GivenSymbol, Module, Params
from mxamp.passes import Emulation
from mxamp.policy.parts import ColorFunction
from mxamp.policy.policy import Policy
from mxamp.targets import Target


def emulate(
    sym: GivenSymbol | Module,
    arg_params: Params | None = None,
    aux_params: Params | None = None,
    target_dtype: GivenDType = "float16",
    *,
    args: Params | None = None,
    auxs: Params | None = None,
    policy: Policy | str | Path | None = None,
    target: Target | str | None = None,
    exclude: Sequence[str] = (),
    color: ColorFunction | None = None,
    io_dtype: IoDtype = None,
    input_shapes: InputShapes | None = None,
    inputs: Sequence[str] | None = None,
    fold_batch_norm: bool = True,
    saturate: bool = False,
    rewrite_masks: bool = True,
    prepare: Sequence[str] = PREPARATIONS,
    fusion: bool = True,
    overflow: str = "inf",
) -> Model:
    """Return a float32 model whose results are those of the model that :func:`convert_model` would return.

    The same decisions at the same places, expressed in float32: a value is rounded where the converted model
    would store it in low precision, and parameters are rounded once. Operators then read, compute and
    accumulate as they do in float32. So FP16 can be measured on a CPU, which has no kernels for it.

    Parameters
    ----------
    sym, arg_params, aux_params, args, auxs
        The model, as for :func:`convert_model`. One that is in low precision already is emulated as it is.
    target_dtype
        ``"float16"`` or ``"bfloat16"``; or a format that MXNet does not have and exists in emulation only:
        ``"tfloat32"``, ``"float8_e4m3fn"`` or ``"float8_e5m2"``.
    policy
        As for :func:`convert_model`. ``"pure"`` computes everything low that can be, hazards included: see
        :meth:`Policy.pure`.
    target
        The machine to emulate: what it runs in low precision, and what it fuses and so rounds once. By
        default the one for the dtype; with a pure policy it is taken to run every operator.
    exclude, color, io_dtype, input_shapes, inputs, fold_batch_norm, saturate, rewrite_masks, prepare
        As for :func:`convert_model`. Inputs and outputs of an emulated model are float32 in any case; what
        ``io_dtype`` makes low is rounded.
    fusion
        Whether values inside the operators that the target fuses stay unrounded, as when deployed. With False
        every operator rounds its result, as with ``MXNET_SUBGRAPH_BACKEND=NONE``.
    overflow
        ``"inf"``: magnitudes beyond the largest finite value become infinite (NaN in ``float8_e4m3fn``, which
        has no infinity). ``"saturate"``: they become the largest finite value.

    Returns
    -------
    Model
        Unpacks as ``sym, args, auxs``. Its graph holds ``_mxamp_round`` nodes of mxamp's operator library,
        which MXNet must have loaded to run it; ``.sym`` loads it. ``.report`` is the conversion's;
        ``.report.emulated`` names the format, and ``.report.approximations`` say what emulation cannot show.

    Raises
    ------
    OperatorError
        When ``overflow`` is neither of the two.
    PolicyError, UnknownNameError, ParamsError, GraphError, TargetError
        As :func:`convert_model`.

    Examples
    --------
    >>> fp16 = mxamp.emulate(sym, args, auxs, "float16")  # doctest: +SKIP
    >>> print(mxamp.compare_models((sym, args, auxs), fp16, images))  # doctest: +SKIP
    """
    return convert_model(
        sym,
        one_of("emulate", arg_params=arg_params, args=args),
        one_of("emulate", aux_params=aux_params, auxs=auxs),
        target_dtype,
        policy=policy,
        target=target,
        exclude=exclude,
        color=color,
        io_dtype=io_dtype,
        input_shapes=input_shapes,
        inputs=inputs,
        fold_batch_norm=fold_batch_norm,
        saturate=saturate,
        rewrite_masks=rewrite_masks,
        prepare=prepare,
        emulate=Emulation(fusion=fusion, overflow=overflow),
    )
