"""What every pass must do, checked by every test of a pass."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from mxamp.dtypes import DType
from mxamp.graph import Graph, verify_graph, write_symbol
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.graph.output_names import output_names
from mxamp.passes import GraphPass, InsertCasts, Pipeline
from tests.building import BF16, F32, plan_for

MakePass = Callable[[Graph], GraphPass]
"""Makes the pass for the graph it will run on; called again for the second run."""


def run_pass(graph: Graph, make: MakePass, *, variables_may_go: bool = False) -> Graph:
    """Run a pass and check what every pass must do.

    The graph it read is untouched; the one it returns verifies and has the same inputs, in MXNet's order,
    and the same outputs; returning another object means that something changed; a second run changes
    nothing.
    """
    text = write_symbol(graph)
    after = Pipeline([make(graph)]).run(graph)
    assert write_symbol(graph) == text, "the pass wrote to its input"
    verify_graph(after)
    if not variables_may_go:
        assert inputs(after, graph, after) == inputs(graph, graph, after)
        assert set(after.variables) >= set(graph.variables)
    assert output_names(after) == output_names(graph)
    assert (after is graph) == (after == graph), "the pass is not honest about what it changed"
    again = Pipeline([make(after)]).run(after)
    assert again is after, "a second run changed something"
    return after


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
    stored: dict[str, DType] = {}
    made: list[InsertCasts] = []

    def make(current: Graph) -> InsertCasts:
        # What the first run stored in another dtype, the second finds so.
        if made:
            stored.update({name: kept.dtype for name, kept in made[0].parameters.items()})
        values = {
            name: params.get(name, None) if name in params else params[made[0].parameters[name].source]
            for name in current.variables
            if name in params or (made and name in made[0].parameters)
        }
        arrays = {name: value.astype(stored.get(name, F32).numpy) for name, value in values.items()}
        plan = plan_for(current, arrays, dtype, offline=offline, **options)
        made.append(InsertCasts(plan, cast_op=cast_op))
        return made[-1]

    after = run_pass(graph, make)
    found = infer_dtypes(after, {**variable_dtypes(after, {}), **made[0].new_variables})
    if heads_fp32:
        before = infer_dtypes(graph, variable_dtypes(graph, {}))
        for old, new in zip(graph.heads, after.heads):
            expected = before[old.node][old.output]
            assert expected is None or found[new.node][new.output] is expected
    return after
