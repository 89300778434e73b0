"""Color every node of a graph: the rules first, then the spread of exactness and of oversized values."""

from __future__ import annotations

from typing import Sequence

from mxamp.errors import UnknownNameError, nearest_names
from mxamp.graph.control_flow import graphs_within
from mxamp.graph.graph import VARIABLE, Graph
from mxamp.policy.color import Color, Verdict
from mxamp.policy.context import ColoringContext
from mxamp.policy.exactness import exact_region
from mxamp.policy.magnitude import oversized_region
from mxamp.policy.policy import Policy
from mxamp.policy.rules import RULES

_VARIABLE = Verdict(Color.GRAY, "variable", "a variable")
_CAST = Verdict(Color.GRAY, "cast", "a cast of the original graph", of_operator=True, is_cast=True)


def color_graph(context: ColoringContext) -> Sequence[Verdict]:
    """Return a verdict for every node.

    Parameters
    ----------
    context
        The graph and what is known about it.

    Raises
    ------
    PolicyError
        When the user's color function answers something that is not a color.
    """
    verdicts = []
    for position, (node, facts) in enumerate(zip(context.graph.nodes, context.facts)):
        if node.op == VARIABLE:
            verdicts.append(_VARIABLE)
            continue
        if facts is None and node.op.startswith("amp_"):
            verdicts.append(_CAST)
            continue
        verdict = next(filter(None, (rule.judge(context, position) for rule in RULES)))
        if verdict.by_user and verdict.color is not Color.RED:
            verdict = _within_reason(context, position, verdict)
        verdicts.append(verdict)
    if context.policy.is_pure:
        return verdicts
    for position, reason in exact_region(context, verdicts).items():
        verdicts[position] = Verdict(Color.RED, "exact region", reason)
    for position, reason in oversized_region(context, verdicts).items():
        verdicts[position] = Verdict(Color.RED, "oversized region", reason)
    return verdicts


def _within_reason(context: ColoringContext, position: int, wish: Verdict) -> Verdict:
    """Return the user's verdict, or RED where low precision would give a wrong result."""
    for rule in RULES:
        verdict = rule.judge(context, position) if rule.is_hard else None
        if verdict is not None:
            reason = f"{verdict.reason}, although {wish.color} was asked for ({wish.reason})"
            return verdict._replace(reason=reason)
    return wish


def check_rules_fit(policy: Policy, graph: Graph) -> Sequence[str]:
    """Check that the names the user's rules mention exist in the graph.

    Returns
    -------
    sequence of str
        A warning for each rule that selects by pattern, operator or attribute and picks no node.

    Raises
    ------
    UnknownNameError
        For an exact name that no operator node has; suggests the nearest.
    """
    if not policy.rules:
        return ()
    found = []
    nodes = [node for top in graphs_within(graph) for node in top.nodes if not node.is_variable]
    names = {node.name for node in nodes}
    variables = {name for top in graphs_within(graph) for name in top.variables}
    for rule in policy.rules:
        for name in rule.selector.names:
            if name in names:
                continue
            if name in variables:
                readers = [
                    node.name
                    for top in graphs_within(graph)
                    if name in top.variables
                    for use in top.uses[top.variables[name]].get(0, ())
                    for node in [top.nodes[use.node]]
                ]
                raise UnknownNameError(
                    f"A rule names {name!r}, which is a variable; rules are about operator nodes. "
                    f"It is read by: {', '.join(readers[:3]) or 'nothing'}."
                )
            raise UnknownNameError(
                f"A rule names the node {name!r}, but the model has no such node."
                f"{nearest_names(name, names)} Node names are listed by `mxamp inspect`."
            )
        if not rule.selector.names and not any(rule.selector.picks(node) for node in nodes):
            found.append(f"The rule for {rule.selector} picks no node of this model.")
    return found
