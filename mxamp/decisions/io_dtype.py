"""The dtype of the whole model's inputs and outputs."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence, Union

from mxamp.dtypes import DType
from mxamp.errors import PolicyError, TargetError, UnknownNameError, nearest_names

__all__ = ["IoDtype", "resolve_io_dtype"]

IoDtype = Optional[Union[str, DType, Mapping[str, Union[str, DType]]]]


def resolve_io_dtype(
    requested: IoDtype, low: DType, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[dict[str, DType], dict[str, DType]]:
    """Return which inputs and which outputs are low.

    Parameters
    ----------
    requested
        None or ``"float32"``: all FP32. ``"low"`` or the target dtype: all low. A mapping from input or
        output names to ``"low"``, ``"float32"`` or a dtype: those named, FP32 for the rest.
    low
        The target dtype.
    inputs, outputs
        The names the model has; an output may be named with or without its ``_output``.

    Returns
    -------
    tuple of dict
        Input name -> dtype and output name -> dtype, holding only what is low.

    Raises
    ------
    UnknownNameError
        For a name the model does not have.
    PolicyError
        For a dtype that is neither FP32 nor the target dtype.
    """
    if requested is None:
        return {}, {}
    if not isinstance(requested, Mapping):
        if not isinstance(requested, str):
            try:
                requested = DType.parse(requested, emulated=True)
            except TargetError:
                raise PolicyError(
                    f"io_dtype must be 'float32', 'low', or a mapping from names to those, not {requested!r}."
                ) from None
        if not _is_low(requested, low, "io_dtype"):
            return {}, {}
        return dict.fromkeys(inputs, low), dict.fromkeys(outputs, low)
    low_inputs: dict[str, DType] = {}
    low_outputs: dict[str, DType] = {}
    for name, dtype in requested.items():
        is_low = _is_low(dtype, low, f"io_dtype[{name!r}]")
        output = name if name in outputs else f"{name}_output"
        if name in inputs:
            if is_low:
                low_inputs[name] = low
        elif output in outputs:
            if is_low:
                low_outputs[output] = low
        else:
            known = [*inputs, *outputs]
            raise UnknownNameError(
                f"io_dtype names {name!r}, which is neither an input nor an output of the model."
                f"{nearest_names(str(name), known)} Inputs: {', '.join(inputs)}. "
                f"Outputs: {', '.join(outputs)}."
            )
    return low_inputs, low_outputs


def _is_low(requested: str | DType, low: DType, where: str) -> bool:
    if isinstance(requested, str) and requested == "low":
        return True
    try:
        dtype = DType.parse(requested, emulated=True)
    except TargetError as error:
        raise PolicyError(f"{where}: {error} Or 'low', which is {low} here.") from None
    if dtype not in (low, DType.FLOAT32):
        raise PolicyError(f"{where} is {dtype}, but a model converted to {low} has float32 or {low} there.")
    return dtype is low
