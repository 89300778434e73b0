"""What the regression tests share: weights, forward passes, and MXNet's own converter beside ours."""

from __future__ import annotations

import json
from typing import Any, Mapping, NamedTuple

import mxnet as mx
import numpy as np

import mxamp

__all__ = [
    "DATA",
    "TOLERANCE",
    "Operator",
    "assert_same_model",
    "conv",
    "converted",
    "dense",
    "forward",
    "operators",
    "stock_model",
    "stock_symbol",
    "weights",
]

TOLERANCE = 2e-2
"""Relative L2 error of bfloat16 in networks of a few layers: 2**-9 a rounding, some roundings a layer."""

DATA = np.random.default_rng(5).uniform(0.0, 1.0, (2, 4, 6, 6)).astype(np.float32)


def conv(data: Any, name: str, filters: int = 4, **attrs: Any) -> Any:
    """Return a Convolution without bias, 1x1 unless told otherwise."""
    attrs = {"kernel": (1, 1), **attrs}
    return mx.sym.Convolution(data, name=name, num_filter=filters, no_bias=True, **attrs)


def dense(data: Any, name: str, hidden: int = 4, **attrs: Any) -> Any:
    """Return a FullyConnected layer without bias."""
    return mx.sym.FullyConnected(data, name=name, num_hidden=hidden, no_bias=True, **attrs)


def weights(sym: Any, data: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return small random parameters and positive statistics, the same in every run."""
    arg_shapes, _, aux_shapes = sym.infer_shape(**{name: value.shape for name, value in data.items()})
    generator = np.random.default_rng(11)
    args = {
        name: mx.nd.array(generator.normal(0, 0.5, shape))
        for name, shape in zip(sym.list_arguments(), arg_shapes)
        if name not in data
    }
    auxs = {
        name: mx.nd.array(generator.uniform(0.5, 1.5, shape))
        for name, shape in zip(sym.list_auxiliary_states(), aux_shapes)
    }
    return args, auxs


def forward(
    sym: Any, args: Mapping[str, Any], auxs: Mapping[str, Any], data: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Bind and run; parameters that the symbol does not read are ignored, as ``Module`` does."""
    arrays = {**args, **{name: mx.nd.array(value, dtype=value.dtype) for name, value in data.items()}}
    executor = sym.bind(
        mx.cpu(),
        {name: arrays[name] for name in sym.list_arguments()},
        aux_states={name: auxs[name] for name in sym.list_auxiliary_states()},
        grad_req="null",
    )
    return [output.asnumpy() for output in executor.forward(is_train=False)]


class Operator(NamedTuple):
    """One operator node of a symbol."""

    op: str
    name: str
    attrs: Mapping[str, str]
    reads: tuple[str, ...]


def operators(sym: Any) -> list[Operator]:
    """Return the operator nodes of a symbol, casts included."""
    nodes = json.loads(sym.tojson(remove_amp_cast=False))["nodes"]
    return [
        Operator(
            node["op"],
            node["name"],
            node.get("attrs", {}),
            tuple(nodes[producer]["name"] for producer, *_ in node["inputs"]),
        )
        for node in nodes
        if node["op"] != "null"
    ]


def stock_symbol(sym: Any, dtype: str, **options: Any) -> Any:
    """Convert with MXNet's own converter."""
    from mxnet.contrib import amp

    return amp.convert_symbol(sym, target_dtype=dtype, **options)


def stock_model(
    sym: Any, args: Mapping[str, Any], auxs: Mapping[str, Any], dtype: str, **options: Any
) -> Any:
    """Convert with MXNet's own converter; it gets copies, for it writes to what it is given."""
    from mxnet.contrib import amp

    options.setdefault("cast_optional_params", True)
    return amp.convert_model(sym, dict(args), dict(auxs), target_dtype=dtype, **options)


def assert_same_model(
    model: mxamp.Model,
    sym: Any,
    args: Mapping[str, Any],
    auxs: Mapping[str, Any],
    data: Mapping[str, np.ndarray],
    *,
    tolerance: float = TOLERANCE,
) -> None:
    """Check that a converted model runs and gives the names, dtypes, shapes and values of the original."""
    assert model.sym.list_outputs() == sym.list_outputs()
    expected, found = forward(sym, args, auxs, data), forward(*model, data)
    for name, one, other in zip(sym.list_outputs(), expected, found):
        assert (one.shape, one.dtype) == (other.shape, other.dtype), name
        assert np.isfinite(other).all(), name
        distance = np.linalg.norm(other.astype(np.float64) - one)
        assert distance <= tolerance * np.linalg.norm(one), f"{name}: {distance}"


def converted(sym: Any, data: Mapping[str, np.ndarray], **options: Any) -> mxamp.Model:
    """Convert to bfloat16 with random weights, check the result by running it, and return it."""
    args, auxs = weights(sym, data)
    model = mxamp.convert_model(sym, args, auxs, "bfloat16", **options)
    assert_same_model(model, sym, args, auxs, data)
    return model
