"""What was covered: operators and options, counted by cases."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping

from mxamp.graph.graph import Graph
from mxamp.ops import FACTS

__all__ = ["Summary", "operators_of"]


def operators_of(graph: Graph) -> Iterator[str]:
    """Yield the operator of every node by its canonical name, bodies included."""
    for node in graph.nodes:
        if not node.is_variable:
            yield FACTS.canonical(node.op)
        for body in node.subgraphs:
            yield from operators_of(body)


@dataclass
class Summary:
    """What a campaign did.

    Attributes
    ----------
    cases
        How many ran.
    statuses
        Status and kind -> cases.
    operators, options
        Name -> cases that hold it.
    rate
        Seconds, cases and findings so far, now and then.
    largest
        The largest error that was allowed, in units of what is, and its seed.
    """

    cases: int = 0
    findings: int = 0
    low: int = 0
    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    options: Counter[str] = field(default_factory=Counter)
    rate: list[tuple[float, int, int]] = field(default_factory=list)
    errors: list[tuple[float, int]] = field(default_factory=list)

    def add(self, found: Mapping[str, Any]) -> None:
        """Count a case."""
        result = found["result"]
        self.cases += 1
        self.low += bool(result["low"])
        self.statuses[result["status"], result["kind"]] += 1
        self.operators.update(set(found["operators"]))
        self.options.update(set(found["options"]))
        if result["status"] == "ok":
            self.errors = sorted([*self.errors, (result["error"], found["seed"])], reverse=True)[:5]

    def lines(self) -> Iterator[str]:
        """Yield the summary as text."""
        yield f"{self.cases} cases, {self.findings} findings; {self.low} have nodes that compute low."
        yield ""
        for (status, kind), count in self.statuses.most_common():
            yield f"{count:8}  {status}{': ' if kind else ''}{kind}"
        yield ""
        yield f"Cases that hold an operator ({len(self.operators)} operators):"
        yield from _columns(self.operators)
        yield ""
        yield "Cases with an option:"
        yield from _columns(self.options)
        yield ""
        yield "Largest errors, as shares of what the perturbed program allows:"
        yield "  " + ", ".join(f"{error:.2f} (seed {seed})" for error, seed in self.errors)
        yield ""
        yield "Findings over time:"
        for seconds, cases, findings in self.rate:
            yield f"  after {seconds:7.0f} s: {cases:7} cases, {findings} findings"


def _columns(counts: Mapping[str, int]) -> Iterator[str]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    for start in range(0, len(ordered), 4):
        yield "  " + "".join(f"{count:6} {name:34.34}" for name, count in ordered[start : start + 4]).rstrip()
