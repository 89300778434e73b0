"""Running one of the passes that prepare a graph, for their tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Collection, Mapping, Sequence

from mxamp.conversion import PREPARATIONS, Options, check_prepare, pipeline
from mxamp.conversion.pipeline import run_steps
from mxamp.graph import Graph, write_symbol
from mxamp.graph.printer import print_graph
from mxamp.params.parameter import Parameter
from mxamp.passes import PreparationPass, PreparedNode, State
from mxamp.passes.edit import NodeShapes
from mxamp.policy import Policy
from mxamp.targets import Target
from tests.building import BF16, parameters


@dataclass(frozen=True)
class Done:
    """What a pass did, where it did nothing as well."""

    positions: Sequence[int]
    changes: tuple[PreparedNode, ...]
    params: Mapping[str, Parameter]


def prepare_graph(
    graph: Graph,
    params: Mapping[str, Parameter],
    policy: Policy,
    steps: Sequence[str] = PREPARATIONS,
    *,
    target: Target | None = None,
    shapes: Sequence[NodeShapes] | None = None,
) -> State:
    """Run passes that prepare a graph, as a conversion does."""
    target = target or Target.for_dtype(policy.target_dtype)
    options = Options(policy, target, prepare=check_prepare(steps), rewrite_masks=False)
    start = State.of(graph, params, policy, target, shapes=shapes)
    return run_steps(pipeline.PREPARING, start, options)


CPUS = ["cpu-bf16", "cpu-bf16-amx", "cpu-bf16-intel"]


def targets_that_choose(
    step: str, graph: Graph, params: Mapping[str, Parameter], shapes: Sequence[NodeShapes] | None = None
) -> list[str]:
    """Return for which of some built-in targets a pass changes a graph."""
    found = []
    for name in (*CPUS, "cuda-fp16"):
        target = Target.builtin(name)
        done = prepare_graph(graph, params, Policy.default(target.dtype), target=target, shapes=shapes)
        if any(change.step == step for change in done.record(PreparedNode)):
            found.append(name)
    return found


def prepared(
    step: type[PreparationPass],
    graph: Graph,
    params: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    inserted: Collection[str] = (),
    *,
    target: Target | None = None,
    shapes: Sequence[NodeShapes] | None = None,
) -> tuple[Graph, Done]:
    """Run a pass and check what every such pass must do.

    The graph it read is untouched; the one it returns verifies and has the same inputs and outputs; each node
    but the inserted is what it claims to be; a second run changes nothing.
    """
    policy = policy or Policy.default(BF16)
    target = target or replace(Target.for_dtype(policy.target_dtype), rewrites=(step.step,))
    given = parameters(params or {})
    text = write_symbol(graph)
    done = prepare_graph(graph, given, policy, [step.step], target=target, shapes=shapes)
    after = done.graph
    assert write_symbol(graph) == text, "the pass wrote to its input"
    assert (after is graph) == (after == graph), "the pass is not honest about what it changed"
    again = prepare_graph(after, done.params, policy, [step.step], target=target, shapes=done.shapes)
    assert again.graph is after, "a second run changed something"
    assert len(done.nodes.origins) == len(after.nodes)
    assert (after is graph) == (not done.record(PreparedNode))
    names = {node.name for node in after.nodes}
    for origin, node in zip(done.nodes.origins, after.nodes):
        assert (graph.nodes[origin].name == node.name) != (node.name in inserted)
    for change in done.record(PreparedNode):
        assert change.step == step.step
        assert change.into in names
        assert change.reason
    gone = [node.name for node in graph.nodes if node.name not in names and not node.is_variable]
    assert set(gone) <= {change.node for change in done.record(PreparedNode)}
    assert {name for name in graph.variables if name not in given} <= names
    return after, Done(done.nodes.origins, done.record(PreparedNode), done.params)


def operators(graph: Graph) -> list[str]:
    """Return the printed operators with their attributes."""
    return [line for line in print_graph(graph, attrs=True).splitlines() if " = " in line]
