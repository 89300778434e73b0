"""What a pass is, and how passes are run one after another."""

from __future__ import annotations

import contextlib
from typing import Iterator, Sequence

from mxamp.errors import MxampError, PassError
from mxamp.graph.output_names import output_names
from mxamp.graph.verify import verify_graph
from mxamp.passes.state import Done, State


class Pass:
    """Reads a state and returns what it did; the state it read is never changed.

    A pass declares what it needs in :meth:`requires` and what it promises in :meth:`ensures`; both raise a
    :class:`MxampError` when it is not so.
    """

    @property
    def name(self) -> str:
        """What messages call the pass."""
        return type(self).__name__

    def requires(self, state: State) -> None:
        """Check what the pass needs; a valid graph is checked anyway."""

    def run(self, state: State) -> Done | None:
        """Return what the pass did, None where there was nothing to do."""
        raise NotImplementedError

    def ensures(self, before: State, after: State) -> None:
        """Check what the pass promises of what it did: by default that the outputs kept their names."""
        if output_names(before.graph) != output_names(after.graph):
            raise PassError("The names or the number of the graph's outputs changed.")


def run_passes(passes: Sequence[Pass], state: State, *, finished: Sequence[str] = ()) -> State:
    """Run passes in order, and verify the graph after each.

    Parameters
    ----------
    passes
        The passes, in order.
    state
        Where they begin.
    finished
        Names of passes that ran before, for the message when one of these fails.

    Returns
    -------
    State
        Where they end; ``state`` itself where no pass found anything to do.

    Raises
    ------
    PassError
        When a pass breaks the graph or its own promise; names it and the passes that ran before.
    """
    ran = list(finished)
    for step in passes:
        step.requires(state)
        done = step.run(state)
        if done is not None:
            after = state.after(done)
            with _blaming(step.name, ran):
                if after.graph is not state.graph:
                    verify_graph(after.graph)
                step.ensures(state, after)
            state = after
        ran.append(step.name)
    return state


@contextlib.contextmanager
def _blaming(name: str, finished: Sequence[str]) -> Iterator[None]:
    """Say of an error within the block which pass made it, and which ran before."""
    try:
        yield
    except MxampError as error:
        before = ", ".join(finished) or "none"
        raise PassError(
            f"The pass {name} left the graph broken: {error} Passes that ran before: {before}. "
            "This is a defect in mxamp; please report it with the model's symbol file."
        ) from error
