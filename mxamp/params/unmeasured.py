"""Parameters whose range is looked at when they are cast, and not before."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.graph.graph import Graph
from mxamp.ops import FACTS, InputRole, ValueKind
from mxamp.ops.cast_batch import can_batch_casts
from mxamp.params.parameter import DerivedParameter, Parameter, RangeLoss


class UnmeasuredParameter(DerivedParameter):
    """A parameter that is taken to keep what matters in every dtype, until casting it shows otherwise."""

    def values(self) -> NDArray[Any]:
        """See :class:`Parameter`."""
        return self._parameter.values()

    def numpy(self) -> NDArray[Any]:
        """See :class:`Parameter`."""
        return self._parameter.numpy()

    def source(self) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
        """See :class:`Parameter`."""
        return self._parameter.source()

    def part(self, start: int, stop: int, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """See :class:`Parameter`."""
        return self._parameter.part(start, stop, buffer)

    @property
    def magnitude_bound(self) -> float:
        """Zero: nothing is known that would keep the parameter from being cast."""
        return 0.0

    def range_loss(self, dtype: DType) -> RangeLoss | None:
        """Return None."""
        return None

    def cast(self, dtype: DType) -> Parameter:
        """See :class:`Parameter`."""
        return self._parameter.cast(dtype)

    def cast_into(self, out: NDArray[Any]) -> None:
        """See :class:`Parameter`."""
        self._parameter.cast_into(out)


def unmeasured_parameters(graph: Graph, params: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return the parameters whose range need not be known before they are cast.

    Going through all values of a model to see that none overflows takes a good part of a conversion (and of a
    file that is larger than memory, a second reading), and it is seen in passing when they are cast. So what
    will be cast can wait, as long as nothing else depends on it: float32 parameters that are read as data by
    operators that multiply and add, whose results tell nothing of their parameters' range. (Anything else,
    such as an added mask of -1e18, decides where float32 spreads to.) In memory only the native kernels see
    it. Whoever uses this must convert again, with the parameters themselves, when a cast shows that something
    may be lost: see :attr:`mxamp.params.offline.OfflineCasts.may_have_lost_range`.

    Parameters
    ----------
    graph
        The graph.
    params
        Its parameters that are cast offline, by name.

    Returns
    -------
    dict
        Name -> the parameter, wrapped. Without native kernels parameters in memory are not among them.
    """
    native = can_batch_casts()
    heads = {head.node for head in graph.heads}
    found: dict[str, Parameter] = {}
    for name, parameter in params.items():
        position = graph.variables.get(name)
        if position is None or position in heads or parameter.dtype is not DType.FLOAT32:
            continue
        if not (native or parameter.is_on_disk):
            continue
        if parameter.is_sparse:  # nothing will cast it
            continue
        if all(_only_multiplies(graph, use.node, use.input) for use in graph.uses[position].get(0, ())):
            found[name] = UnmeasuredParameter(parameter)
    return found


def _only_multiplies(graph: Graph, position: int, number: int) -> bool:
    node = graph.nodes[position]
    facts = FACTS.of(node.op, node.attrs)
    return (
        facts is not None
        and facts.multiplies
        and facts.kind is ValueKind.COMPUTE
        and facts.role(number, node.attrs) is InputRole.DATA
    )
