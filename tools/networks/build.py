"""Build a network with random weights, and draw what it reads."""

from __future__ import annotations

from typing import Any, Mapping

import mxnet as mx
import numpy as np
from numpy.typing import NDArray

from model_zoo_eval.photographs import normalised_photographs
from mxamp.model import Model
from mxamp.params.parameter import ArrayParameter
from mxamp.runtime.random_weights import RESIDUAL_SCALE, random_parameters
from mxamp.runtime.symbol import graph_from_symbol
from mxamp.runtime.zoo import model_of_network
from tools.networks.network import Input, Network, Shape

__all__ = ["build_network", "draw_inputs"]

_LUMINANCE = (0.299, 0.587, 0.114)
"""The weights of red, green and blue in ITU-R BT.601."""


def build_network(network: Network, *, seed: int = 0, residual_scale: float = RESIDUAL_SCALE) -> Model:
    """Return a network with random weights.

    Parameters
    ----------
    network
        The network.
    seed
        Seed of the weights (:func:`mxamp.runtime.random_weights.random_parameters`).
    residual_scale
        How large residual branches end, relative to their trunk.

    Raises
    ------
    TracingError
        When a block cannot be turned into one Symbol.
    """
    built = network.build()
    shapes = {name: own.batched(1) for name, own in network.inputs.items()}
    if not isinstance(built, mx.sym.Symbol):
        model, _ = model_of_network(built, list(shapes.values()), seed=seed, residual_scale=residual_scale)
        return model
    arguments, _, auxiliary = built.infer_shape(**shapes)
    args = dict(zip(built.list_arguments(), arguments))
    auxs = dict(zip(built.list_auxiliary_states(), auxiliary))
    graph = graph_from_symbol(built)
    drawn = random_parameters(
        graph,
        {name: shape for name, shape in {**args, **auxs}.items() if name not in shapes},
        seed=seed,
        residual_scale=residual_scale,
    )
    values = {name: ArrayParameter(array) for name, array in drawn.items()}
    return Model(
        graph,
        {name: values[name] for name in args if name in values},
        {name: values[name] for name in auxs},
    )


def draw_inputs(
    inputs: Mapping[str, Input], batch: int, *, samples: int, seed: int = 0
) -> list[dict[str, NDArray[np.float32]]]:
    """Return inputs of several forward passes.

    Parameters
    ----------
    inputs
        Input name -> what it is.
    batch
        Samples a forward pass.
    samples
        How many forward passes.
    seed
        Seed of what is random.

    Returns
    -------
    list of dict
        For each forward pass input name -> float32 array of the whole shape.
    """
    random = np.random.default_rng(seed)
    drawn = {name: _values(own, batch * samples, random) for name, own in inputs.items()}
    return [
        {
            name: np.ascontiguousarray(
                np.moveaxis(values[number * batch : (number + 1) * batch], 0, inputs[name].batch_axis)
            )
            for name, values in drawn.items()
        }
        for number in range(samples)
    ]


def _values(own: Input, count: int, random: np.random.Generator) -> NDArray[np.float32]:
    """Return values for a number of samples, which are the first axis."""
    shape = (count, *own.shape)
    if own.pixels:
        return _photographs(own.pixels, own.shape, count)
    if own.values == "tokens":
        return random.integers(0, int(own.parameters[0]), shape).astype(np.float32)
    if own.values == "noise":
        return random.standard_normal(shape, np.float32)
    if own.values == "zeros":
        return np.zeros(shape, np.float32)
    constant: Any = own.parameters if own.shape else own.parameters[0]
    return np.broadcast_to(np.float32(constant), shape)


def _photographs(pixels: str, shape: Shape, count: int) -> NDArray[np.float32]:
    coloured = (3, *shape[1:])
    found = normalised_photographs(pixels, {"data": coloured}, count)["data"]
    if shape[0] == 3:
        return found
    grey: NDArray[np.float32] = np.tensordot(found, np.float32(_LUMINANCE), axes=([1], [0]))
    return grey[:, np.newaxis]
