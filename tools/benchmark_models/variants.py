"""The variants of a model that the benchmark measures, and how each is made."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

import mxamp
from mxamp.compare.inputs import as_model
from mxamp.model import Model
from mxamp.params.parameter import Parameter
from tools.benchmark_models.names import (
    MXAMP,
    MXAMP_NO_SHAPES,
    MXAMP_PROFILED,
    PREPARED,
    STOCK,
    STOCK_CAST_ONCE,
)

__all__ = ["can_profile", "converters", "first_equals", "prepared_model"]

_DTYPE = "bfloat16"


def can_profile() -> bool:
    """Whether this version of mxamp can measure a model's own nodes while it converts."""
    return "profile" in inspect.signature(mxamp.convert_model).parameters


def converters(model: Model, shapes: Mapping[str, Sequence[int]]) -> dict[str, Callable[[], Model]]:
    """Return what makes each variant; each call converts anew.

    Parameters
    ----------
    model
        The FP32 model; never changed.
    shapes
        Input name -> shape, the batch included.

    Returns
    -------
    dict
        For every variant but FP32. MXNet's converter changes the dicts it is given, so it gets copies.
    """
    from mxnet.contrib import amp

    sym, args, auxs = model

    def stock(**options: Any) -> Model:
        converted = amp.convert_model(sym, dict(args), dict(auxs), target_dtype=_DTYPE, **options)
        return as_model(converted, "the stock converter's model")

    def own(**options: Any) -> Model:
        return mxamp.convert_model(sym, args, auxs, _DTYPE, target="auto", **options)

    return {
        PREPARED: lambda: prepared_model(model, shapes),
        STOCK: stock,
        STOCK_CAST_ONCE: lambda: stock(cast_optional_params=True),
        MXAMP_NO_SHAPES: own,
        MXAMP: lambda: own(input_shapes=shapes),
        MXAMP_PROFILED: lambda: own(input_shapes=shapes, profile=True),
    }


def prepared_model(model: Model, shapes: Mapping[str, Sequence[int]] | None = None) -> Model:
    """Return a model after the passes that prepare its graph, with BatchNorm folded, all of it FP32.

    Parameters
    ----------
    model
        The FP32 model; never changed.
    shapes
        Input name -> shape, the batch included, for the passes that need it.
    """
    return mxamp.convert_model(
        model.graph,
        model.arg_params,
        model.aux_params,
        _DTYPE,
        target="auto",
        input_shapes=shapes,
        low_precision="none",
    )


def first_equals(models: Mapping[str, Model]) -> dict[str, str]:
    """Return, for every variant, the first of them that is the same model, every bit of it.

    Parameters
    ----------
    models
        Variant -> its model. A profile often decides what the tables do.
    """
    firsts: list[str] = []
    found = {}
    for variant, model in models.items():
        equals = (earlier for earlier in firsts if _is_same(models[earlier], model))
        found[variant] = next(equals, variant)
        if found[variant] == variant:
            firsts.append(variant)
    return found


def _is_same(model: Model, other: Model) -> bool:
    return (
        model.graph == other.graph
        and _have_same_bits(model.arg_params, other.arg_params)
        and _have_same_bits(model.aux_params, other.aux_params)
    )


def _have_same_bits(parameters: Mapping[str, Parameter], others: Mapping[str, Parameter]) -> bool:
    if parameters.keys() != others.keys():
        return False
    pairs = ((own, others[name]) for name, own in parameters.items())
    return all(
        own.dtype == other.dtype
        and own.shape == other.shape
        and np.array_equal(_bytes_of(own), _bytes_of(other))
        for own, other in pairs
    )


def _bytes_of(parameter: Parameter) -> NDArray[np.uint8]:
    return np.ascontiguousarray(parameter.values()).reshape(-1).view(np.uint8)
