"""What every pass must do, checked by every test of a pass."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from mxamp.dtypes import DType
from mxamp.graph import Graph, verify_graph, write_symbol
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.graph.output_names import output_names
from mxamp.passes import InsertCasts, InsertedCasts, Pass, State, run_passes
from tests.building import BF16, F32, planned_state


def run_pass(
    state: State,
    step: Pass,
    again: Callable[[State], State] = lambda after: after,
    *,
    variables_may_go: bool = False,
) -> State:
    """Run a pass and check what every pass must do.

    The graph it read is untouched; the one it returns verifies and has the same inputs, in MXNet's order,
    and the same outputs; it says where every node went; returning another object means that something
    changed; a second run, on what ``again`` makes of the first's result, changes nothing.
    """
    graph, text = state.graph, write_symbol(state.graph)
    done = run_passes([step], state)
    after = done.graph
    assert write_symbol(graph) == text, "the pass wrote to its input"
    verify_graph(after)
    if not variables_may_go:
        assert inputs(after, graph, after) == inputs(graph, graph, after)
        assert set(after.variables) >= set(graph.variables)
    assert output_names(after) == output_names(graph)
    assert (after is graph) == (after == graph), "the pass is not honest about what it changed"
    assert (len(done.nodes.places), len(done.nodes.origins)) == (len(graph.nodes), len(after.nodes))
    second = again(done)
    assert run_passes([step], second).graph is second.graph, "a second run changed something"
    return done


def inputs(graph: Graph, before: Graph, after: Graph) -> list[str]:
    """Return the variables in MXNet's order, without parameters that are stored under a second name."""
    new = [name for name in after.variables if name not in before.variables]
    twice = {name for name in before.variables if any(twin.startswith(f"{name}_") for twin in new)}
    names = [graph.nodes[position].name for position in graph.input_order()]
    return [name for name in names if name in before.variables and name not in twice]


def insert_casts(
    graph: Graph,
    params: Mapping[str, Any] | None = None,
    dtype: DType = BF16,
    *,
    cast_op: str = "amp_cast",
    offline: bool = True,
    heads_fp32: bool = True,
    **options: Any,
) -> Graph:
    """Run :class:`InsertCasts` under the harness; the second run decides anew on what the first returned."""
    params = params or {}

    def planned(current: Graph, arrays: Mapping[str, Any]) -> State:
        return planned_state(current, arrays, dtype, offline=offline, **options)

    def again(done: State) -> State:
        # What the first run stored in another dtype, the second finds so.
        (inserted,) = done.record(InsertedCasts)
        arrays = {}
        for name in done.graph.variables:
            kept = inserted.parameters.get(name)
            if kept is not None:
                arrays[name] = params[kept.source].astype(kept.dtype.numpy)
            elif name in params:
                arrays[name] = params[name].astype(F32.numpy)
        return planned(done.graph, arrays)

    first = {name: value.astype(F32.numpy) for name, value in params.items() if name in graph.variables}
    done = run_pass(planned(graph, first), InsertCasts(cast_op), again)
    after, (inserted,) = done.graph, done.record(InsertedCasts)
    found = infer_dtypes(after, {**variable_dtypes(after, {}), **inserted.variables})
    if heads_fp32:
        before = infer_dtypes(graph, variable_dtypes(graph, {}))
        for old, new in zip(graph.heads, after.heads):
            expected = before[old.node][old.output]
            assert expected is None or found[new.node][new.output] is expected
    return after
