"""How much memory a pass takes that prices roundings, known before it begins."""

from __future__ import annotations

import math
from typing import Mapping, Sequence

from mxamp.errors import DataError, MemoryBoundError
from mxamp.graph.graph import Entry, Graph
from mxamp.measuring.machine import available_memory
from mxamp.messages.counts import count_of
from mxamp.model import Model
from mxamp.params.parameter import Parameter
from mxamp.report.table import format_bytes

COPIES_OF_VALUES, COPIES_OF_PARAMETERS = 12, 9
"""How often a pass has every value of a sample in memory at once, with its gradients, its errors for both
dtypes and what MXNet keeps, and how often every parameter. Upper bounds: of seven networks, whose parameters
are from nothing to fifty times as large as the values of a sample, a pass took 0.64 to 0.92 of it.
"""

_MOST_A_PASS = 4
"""Samples: the gradient of a weight is summed over those of a pass, and so tells one number a pass."""

_PASS_BYTES = 3 << 30
"""A pass takes as many samples as fit into so much, and one in any case."""


class PassMemory:
    """How many samples a pass takes, and whether they fit.

    Parameters
    ----------
    model
        The model.
    bound
        The most bytes that a pass may take; by default those that are available now.

    Raises
    ------
    MemoryBoundError
        When the parameters alone take more.
    """

    def __init__(self, model: Model, bound: int | None) -> None:
        self._graph: Graph = model.graph
        self._stored: Mapping[str, Parameter] = {**model.arg_params, **model.aux_params}
        self._is_given = bound is not None
        self._bound = available_memory() if bound is None else bound
        self._of_parameters = COPIES_OF_PARAMETERS * model.parameter_bytes
        self._check(self._of_parameters, "the parameters alone")

    def samples(
        self, shapes: Mapping[str, Sequence[int]], entries: Sequence[Entry], wanted: int | None
    ) -> int:
        """Return how many samples to take at a time.

        Parameters
        ----------
        shapes
            The shapes of the inputs, of a batch.
        entries
            What is priced.
        wanted
            How many the user wants; by default up to four, as long as a pass takes less than 3 GiB.

        Raises
        ------
        MemoryBoundError
            When they do not fit.
        """
        from mxamp.runtime.shapes import infer_shapes

        one = {name: (1, *shape[1:]) if shape else () for name, shape in shapes.items()}
        try:
            known = infer_shapes(self._graph, one, self._stored)
        except DataError:  # samples are no rows here; running it will tell
            return wanted or 1
        values = sum(4 * math.prod(known[entry.node][entry.output] or (0,)) for entry in entries)
        each = max(1, COPIES_OF_VALUES * values)
        room = min(_PASS_BYTES, self._bound or _PASS_BYTES) - self._of_parameters
        taken = wanted or max(1, min(_MOST_A_PASS, room // each))
        self._check(taken * each + self._of_parameters, count_of(taken, "sample"))
        return taken

    def _check(self, needed: int, what: str) -> None:
        """Refuse what does not fit before it is begun; once it is, the system ends the process."""
        if self._bound is None or needed <= self._bound:
            return
        raise MemoryBoundError(
            f"Pricing roundings runs backward, which takes up to {format_bytes(needed)} of memory for {what} "
            f"({COPIES_OF_VALUES} times a sample's values, {COPIES_OF_PARAMETERS} times the parameters), "
            f"and {format_bytes(self._bound)} {'were allowed' if self._is_given else 'are available'}. Use "
            "smaller samples or a machine with more memory, or do without prices: ranges and compensated "
            "weights need none."
        )
