"""Whether a bound model computes the same of the same data after it ran on other data."""

from __future__ import annotations

from typing import Any, Mapping, Protocol, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.errors import OperatorError
from mxamp.graph.drawn import graph_draws
from mxamp.graph.graph import Graph

_MOST_DIFFERENCE = 1e-3
"""Relative L2 distance of two passes over the same data: GPUs may add in another order, and no more."""


class Passes(Protocol):
    """What is run: :class:`mxamp.runtime.executor.BoundModel`."""

    label: str

    def once(self, data: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the outputs for input name -> values."""


def check_repeats(
    bound: Passes, graph: Graph, data: Mapping[str, NDArray[Any]], first: Sequence[NDArray[Any]]
) -> None:
    """Run a model on other data and then on the same, in one executor.

    Parameters
    ----------
    bound
        The model, bound, after its first pass.
    graph
        Its graph.
    data
        Input name -> values of that pass. The other data is half of each value, which keeps indices, lengths
        and boxes within bounds.
    first
        The outputs of that pass.

    Raises
    ------
    OperatorError
        When a later pass fails, or gives other outputs for the same data; those that draw numbers may.
    """
    try:
        bound.once({name: _half(values) for name, values in data.items()})
        again = bound.once(data)
    except OperatorError as error:
        raise OperatorError(
            f"{error} That was not the first forward pass of the bound model, which worked: MXNet runs this "
            f"model only once. {_ADVICE}"
        ) from error
    differing = [number for number, pair in enumerate(zip(first, again)) if _differs(*pair)]
    if differing and not graph_draws(graph):
        raise OperatorError(
            f"MXNet computes output {differing[0]} of {bound.label} differently for the same data once the "
            f"bound model has run on other data, so none of its results can be trusted. {_ADVICE}"
        )


_ADVICE = (
    "Set MXNET_SUBGRAPH_BACKEND=NONE in the environment, which turns oneDNN's fusion off; or convert the "
    "model with every pass that prepares it (prepare=), for one of them may avoid the cause."
)


def _half(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind in "iu":
        return values // 2
    return values if values.dtype.kind == "b" else (values * values.dtype.type(0.5))


def _differs(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if one.shape != other.shape:
        return True
    if np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
        return False
    wide, again = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(wide)
    if not np.array_equal(finite, np.isfinite(again)):
        return True
    distance = np.linalg.norm(wide[finite] - again[finite])
    return bool(distance > _MOST_DIFFERENCE * np.linalg.norm(wide[finite]))
