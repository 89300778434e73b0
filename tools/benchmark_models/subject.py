"""What the benchmark measures: a model of the zoo, or one of the networks written for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from numpy.typing import NDArray

from model_zoo_eval.build import RANDOM, build_model
from model_zoo_eval.photographs import photographs
from model_zoo_eval.registry import Case
from mxamp.errors import DataError
from mxamp.model import Model
from mxamp.runtime.random_weights import RESIDUAL_SCALE
from tools.benchmark_models.job import Job
from tools.networks.build import build_network, draw_inputs
from tools.networks.catalogue import find_network
from tools.networks.names import LARGEST_BATCH, NETWORK_NAMES
from tools.networks.network import Network
from tools.networks.relatives import RELATIVES

__all__ = ["Subject", "build_subject"]

_ONE_BY_ONE = 2
"""Samples for the error of a model with batch size 1; a larger batch has as many as it holds."""


@dataclass(frozen=True)
class Subject:
    """A model with weights, and what it is fed with.

    Attributes
    ----------
    model
        Graph and FP32 parameters.
    shapes
        Input name -> shape, the batch included.
    samples
        The inputs of one or more forward passes.
    weights
        ``trained``, ``file`` or ``random``.
    origin
        Where the weights come from, for the reader of a result.
    """

    model: Model
    shapes: Mapping[str, tuple[int, ...]]
    samples: Sequence[Mapping[str, NDArray[Any]]]
    weights: str
    origin: str


def build_subject(job: Job) -> Subject:
    """Return what a job measures; its batch is 1 where the job measures conversions.

    It may be a network of the zoo, one of the benchmark's own, or a relative of those.

    Raises
    ------
    DataError
        When the model takes no batch of that size.
    MxampError
        When the model cannot be built.
    """
    batch = max(job.batch, 1)
    if job.name in NETWORK_NAMES:
        return _of_network(find_network(job.name), job, batch)
    if job.name in RELATIVES:
        return _of_network(RELATIVES[job.name], job, batch)
    return _of_zoo(job, batch)


def _of_network(network: Network, job: Job, batch: int) -> Subject:
    """Return what is measured of a network, whether the benchmark has it or not.

    Parameters
    ----------
    network
        The network.
    job
        Says how its weights are drawn.
    batch
        Samples a forward pass.

    Raises
    ------
    DataError
        When the network takes no batch of that size.
    """
    _check_batch(network.name, batch, LARGEST_BATCH.get(network.name, 0))
    shapes = {name: own.batched(batch) for name, own in network.inputs.items()}
    scale = (
        "" if job.residual_scale == RESIDUAL_SCALE else f", residual branches times {job.residual_scale:g}"
    )
    return Subject(
        build_network(network, seed=job.seed, residual_scale=job.residual_scale),
        shapes,
        draw_inputs(network.inputs, batch, samples=1 if batch > 1 else _ONE_BY_ONE),
        RANDOM,
        f"random, seed {job.seed}{scale}",
    )


def _of_zoo(job: Job, batch: int) -> Subject:
    built = build_model(
        Case(job.name, job.form),
        pretrained=job.pretrained,
        seed=job.seed,
        residual_scale=job.residual_scale,
    )
    _check_batch(job.name, batch, built.entry.batch)
    inputs = photographs(built.entry, built.shapes, max(batch, _ONE_BY_ONE))
    samples = [
        {name: values[start : start + batch] for name, values in inputs.items()}
        for start in range(0, len(next(iter(inputs.values()))), batch)
    ]
    shapes = {name: (batch, *shape) for name, shape in built.shapes.items()}
    return Subject(built.model, shapes, samples, built.weights, built.origin)


def _check_batch(name: str, batch: int, largest: int) -> None:
    if largest and batch > largest:
        raise DataError(f"{name} takes {largest} samples a forward pass at most.")
