"""What a pass is, and how passes are run one after another."""

from __future__ import annotations

import contextlib
from typing import Callable, Iterator, Sequence

from mxamp.errors import MxampError, PassError
from mxamp.graph.graph import Graph
from mxamp.graph.verify import verify_graph

__all__ = ["GraphPass", "Pipeline", "blaming"]


class GraphPass:
    """Reads one graph and returns another; the graph it read is never changed.

    A pass declares what it needs in :meth:`requires` and what it promises in :meth:`ensures`; both raise a
    :class:`MxampError` when it is not so.
    """

    @property
    def name(self) -> str:
        """What messages call the pass."""
        return type(self).__name__

    def requires(self, graph: Graph) -> None:
        """Check what the pass needs of its input; a valid graph is checked anyway."""

    def run(self, graph: Graph) -> Graph:
        """Return the rewritten graph, or ``graph`` itself when there was nothing to do."""
        raise NotImplementedError

    def ensures(self, before: Graph, after: Graph) -> None:
        """Check what the pass promises of its output; a valid graph is checked anyway."""


class Pipeline:
    """Runs passes in order and verifies the graph after each.

    Parameters
    ----------
    passes
        The passes, in order.
    finished
        Names of passes that ran before, for the message when one of these fails.
    """

    def __init__(self, passes: Sequence[GraphPass], *, finished: Sequence[str] = ()) -> None:
        self._passes = tuple(passes)
        self._finished = tuple(finished)

    def run(self, graph: Graph, *, when_valid: Callable[[Graph], None] | None = None) -> Graph:
        """Return the graph after all passes.

        Parameters
        ----------
        graph
            The graph.
        when_valid
            Called with the graph after each pass once it is known to be valid, before the pass's own promises
            are checked: MXNet can be busy with it meanwhile.

        Raises
        ------
        PassError
            When a pass breaks the graph or its own promise; names it and the passes that ran before.
        """
        finished = list(self._finished)
        for step in self._passes:
            step.requires(graph)
            after = step.run(graph)
            with blaming(step.name, finished):
                if after is not graph:
                    verify_graph(after)
                if when_valid is not None:
                    when_valid(after)
                step.ensures(graph, after)
            finished.append(step.name)
            graph = after
        return graph


@contextlib.contextmanager
def blaming(name: str, finished: Sequence[str]) -> Iterator[None]:
    """Check within the block what a pass left behind.

    Parameters
    ----------
    name
        The pass.
    finished
        The passes that ran before.

    Raises
    ------
    PassError
        When a check fails.
    """
    try:
        yield
    except MxampError as error:
        before = ", ".join(finished) or "none"
        raise PassError(
            f"The pass {name} left the graph broken: {error} Passes that ran before: {before}. "
            "This is a defect in mxamp; please report it with the model's symbol file."
        ) from error
