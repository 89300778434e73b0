"""Decide: from colors and capabilities, through the placement, to one decision a node.

Nothing is rewritten here, and the rewriter decides nothing.
"""

from __future__ import annotations

from typing import Mapping, Sequence

from mxamp.decisions.bodies import decide_bodies
from mxamp.decisions.dear_roundings import (
    WHY_AFFORDABLE,
    Tail,
    affordable_unpriced,
    find_tails,
    spare,
    spares,
    why_spared,
    without_large,
)
from mxamp.decisions.decision import Decision, Plan
from mxamp.decisions.edges import Edges
from mxamp.decisions.estimates import Estimates, estimate
from mxamp.decisions.first_roundings import WHY_FIRST, first_nodes
from mxamp.decisions.inputs import DecisionInputs, Shape
from mxamp.decisions.lone_roundings import WHY_LONE, lone_nodes
from mxamp.decisions.loops import loop_times
from mxamp.decisions.low_precision import LowPrecision, cannot_be_weighed
from mxamp.decisions.second_copies import copy_costs, readers_of_what_grows
from mxamp.decisions.short_passes import doubted, is_short
from mxamp.decisions.slower import why_low_is_slower
from mxamp.decisions.workload import unknown_work
from mxamp.decisions.worthwhile import simpler_placement
from mxamp.dtypes import DType
from mxamp.graph.control_flow import is_control_flow
from mxamp.graph.graph import VARIABLE
from mxamp.graph.infer import infer_with_data_dtypes
from mxamp.ops.casts import CAST, CASTABLE
from mxamp.placement import Demand, PlacementCosts, PlacementProblem, place
from mxamp.policy.color import Color, Verdict
from mxamp.policy.coloring import color_graph
from mxamp.policy.context import ColoringContext
from mxamp.targets import fusion_groups, overrunning, read_volumes


def decide(given: DecisionInputs) -> Plan:
    """Make the plan of a conversion.

    Parameters
    ----------
    given
        The graph, what is known about it, the policy and the target.

    Returns
    -------
    Plan
        A decision for every operator node.

    Raises
    ------
    MxampError
        Whatever the color function, an attribute or the policy gets wrong.
    """
    decider = _Decider(given)
    plan = decider.plan()
    if decider.is_short and any(made is not None and made.compute is decider.low for made in plan.decisions):
        return _Decider(given, weighs=False).plan()
    return plan


class _Decider:
    """One run of :func:`decide`; holds what the steps share."""

    def __init__(self, given: DecisionInputs, *, weighs: bool = True) -> None:
        self.given = given
        self._weighs = weighs
        self.is_short = False  # :func:`mxamp.decisions.short_passes.is_short`
        self.graph = given.graph
        self.low = given.policy.target_dtype
        # What an input's demand means where its node is FP32, and where it is low.
        self._needs = [
            {Demand.CHOSEN: own, Demand.FP32: DType.FLOAT32, Demand.LOW: self.low}
            for own in (DType.FLOAT32, self.low)
        ]
        # The second: what every node computes in before conversion; None for variables and unknown operators.
        self.dtypes, self._data_dtypes = infer_with_data_dtypes(given.graph, given.variables)
        self.castable_params = frozenset(
            name
            for name, parameter in given.params.items()
            if name in given.castable and parameter.dtype is DType.FLOAT32
        )
        saturated = self.castable_params if given.saturate else frozenset()
        self._is_copying_forbidden = False
        self._too_large: dict[int, str] = {}
        """Node -> the parameter that it would have stored a second time, though the model grows by that."""
        shapes = None if given.are_shapes_assumed else given.shapes
        self.context = ColoringContext(
            given.graph, self.dtypes, given.policy, given.params, shapes, saturated
        )
        self.verdicts = color_graph(self.context)
        self.bodies: dict[int, tuple[Plan, ...]] = {
            position: decide_bodies(given, node, self.dtypes, decide)
            for position, node in enumerate(given.graph.nodes)
            if node.subgraphs and is_control_flow(node)
        }
        self._edges = Edges(given, self.context, self.verdicts, self.castable_params, self.bodies)

    # ------------------------------------------------------------------ which nodes have a choice

    def _classify(self) -> tuple[set[int], set[int], dict[int, str], Sequence[tuple[int, ...]]]:
        """Return the GREEN nodes, the GRAY ones, refusals by the target, and the fusion groups."""
        target = self.given.target
        could_be_low: set[int] = set()
        refusals: dict[int, str] = {}
        volumes = read_volumes(self.graph, self.context.names)
        kept = {**self.given.kept, **overrunning(self.graph, self.context.names, self.given.shapes, target)}
        for position, (node, facts) in enumerate(zip(self.graph.nodes, self.context.facts)):
            if facts is None or self._data_dtypes[position] is not DType.FLOAT32:
                continue
            if facts.name == CAST or self.verdicts[position].color is Color.RED:
                continue
            if node.name in kept:
                refusals[position] = kept[node.name]
                continue
            if position in self._too_large:
                refusals[position] = (
                    f"it shares {self._too_large[position]!r} with a float32 node, and a second copy would "
                    "make the model larger than it was"
                )
                continue
            could_be_low.add(position)
            refusal = target.refusal(facts.name, node.attrs, volume=position in volumes)
            if refusal is not None:
                refusals[position] = refusal
        groups = []
        for chain in fusion_groups(self.graph, self.context.names, target, among=could_be_low):
            if chain[0] in refusals:  # a fused chain is one unit if its head can run low
                continue
            groups.append(chain)
            for position in chain:
                refusals.pop(position, None)
        low: set[int] = set()
        free: set[int] = set()
        for position in could_be_low - set(refusals):
            (low if self.verdicts[position].color is Color.GREEN else free).add(position)
        return low, free, refusals, groups

    # ------------------------------------------------------------------ the plan

    def plan(self) -> Plan:
        """Run the steps."""
        low, free, refusals, groups = self._classify()
        open_nodes = low | free
        wanted, placing = low, self.given.placing
        estimates = self._estimates(low, open_nodes)
        if estimates is not None:
            groups = estimates.groups
        elif placing is not None and placing.needs_costs:
            placing = None
        is_open = self.given.low_precision is not LowPrecision.REQUIRED and not self.given.policy.is_pure
        slower = None
        if is_open and placing is None:
            slower = why_low_is_slower(self.given.target.cost, are_weighed=estimates is not None)
        if slower is not None:
            refusals.update(dict.fromkeys(open_nodes, f"{self.low} {slower}"))
            low, free, open_nodes, groups = set(), set(), set(), ()
        elif is_open and (estimates is not None or placing is not None):
            low, free = set(), open_nodes
        head_demand = [
            Demand.LOW
            if number in self.given.low_heads or self.dtypes[head.node][head.output] is self.low
            else Demand.FP32
            for number, head in enumerate(self.graph.heads)
        ]
        # Shapes that were assumed for the sake of times: without these, a second conversion has none of both.
        is_without = estimates is None and self.given.are_shapes_assumed
        shapes = None if is_without else self.given.shapes
        tails = self._tails(wanted, open_nodes, head_demand, shapes)
        if tails and estimates is None:
            spared = affordable_unpriced(self.graph, self.context.facts, tails, self.given.params)
            if wanted <= spared and not self._is_part_low():
                spared = frozenset()
            refusals.update(dict.fromkeys(spared, WHY_AFFORDABLE))
            for nodes in (low, free, open_nodes):
                nodes -= spared
        supply = self._edges.supply(open_nodes)
        demand = self._edges.demand(open_nodes)
        costs = None if estimates is None else estimates.for_placement()
        problem = PlacementProblem(
            graph=self.graph,
            free=free,
            low=low,
            supply=supply,
            demand=demand,
            head_demand=head_demand,
            groups=groups,
            widest={p for p in free if self.verdicts[p].widest},
            costs=costs,
            copies=self._copies(costs),
        )
        cheapest = None
        if tails and estimates is not None:
            sparing, low_then = spare(problem, estimates, tails)
            if wanted & low_then or not wanted & place(problem) or self._is_part_low():
                problem, cheapest = sparing, low_then
        if placing is None:
            chosen = place(problem) if cheapest is None else cheapest
            why = (
                "needs the fewest casts here"
                if estimates is None
                else "takes the least time here, as estimated for assumed shapes"
                if self.given.are_shapes_assumed
                else "takes the least time here, as estimated"
            )
            simple = simpler_placement(problem, chosen, wanted, estimates) if is_open else None
            if simple is not None:
                chosen, why = (
                    simple,
                    "needs the fewest casts here; more would hardly gain, as estimated",
                )
            in_vain = self._in_vain(problem, chosen, wanted, estimates)
        else:
            chosen, why = placing.choose(problem, wanted), placing.reason
            in_vain = {}
        chosen = chosen - in_vain.keys()
        if self.given.low_precision is not LowPrecision.REQUIRED:
            grows = readers_of_what_grows(problem, chosen, self.castable_params, self.given.params, self.low)
            if grows and not self._is_copying_forbidden:
                self._is_copying_forbidden = True  # what has the choice agrees; then the rest need not
                return self.plan()
            if not self._too_large.keys() >= grows.keys():
                self._too_large.update(grows)
                return self.plan()
        reasons = {} if cheapest is None else why_spared(problem, chosen)
        reasons.update(in_vain)
        decisions = [
            None
            if node.op == VARIABLE
            else self._decision(
                position, position in chosen, free, refusals, demand[position], reasons.get(position, why)
            )
            for position, node in enumerate(self.graph.nodes)
        ]
        return Plan(
            decisions=decisions,
            variables_before=dict(self.given.variables),
            variables_after=dict(self.given.low_inputs),
            heads=tuple(
                self._head(self.dtypes[head.node][head.output], wanted)
                for head, wanted in zip(self.graph.heads, head_demand)
            ),
            cast_offline=self.castable_params,
            # The report shows no times of a call that nobody promised.
            estimates=None if self.given.are_shapes_assumed else estimates,
            rests_on_assumed=self.given.are_shapes_assumed and estimates is not None and slower is None,
        )

    def _tails(
        self,
        layers: set[int],
        choices: set[int],
        head_demand: Sequence[Demand],
        shapes: Sequence[tuple[Shape | None, ...]] | None,
    ) -> Sequence[Tail]:
        """Return the nodes before the outputs that had best stay FP32; none where low is an order."""
        if not self._may_spare:
            return ()
        tails = find_tails(
            self.graph,
            self.context.facts,
            layers=layers,
            choices=choices,
            fixed={
                position
                for position, dtype in enumerate(self._data_dtypes)
                if dtype is self.low or (position in choices and self.verdicts[position].by_user)
            },
            head_demand=head_demand,
            shapes=shapes,
        )
        return without_large(self.graph, tails, self.given.params)

    def _in_vain(
        self, problem: PlacementProblem, chosen: set[int], wanted: set[int], estimates: Estimates | None
    ) -> dict[int, str]:
        """Return the low nodes whose rounding gains too little, with why."""
        if estimates is None or not self._may_spare:
            return {}
        lone = lone_nodes(problem, chosen, wanted, estimates)
        first = first_nodes(
            problem,
            chosen - lone,
            facts=self.context.facts,
            verdicts=self.verdicts,
            given=self.given,
            is_part_low=self._is_part_low(),
            estimates=estimates,
        )
        return {**dict.fromkeys(lone, WHY_LONE), **dict.fromkeys(first, WHY_FIRST)}

    @property
    def _may_spare(self) -> bool:
        """Whether outputs are spared roundings at all: not where low is an order."""
        given = self.given
        is_order = given.low_precision is LowPrecision.REQUIRED or given.policy.is_pure
        return not is_order and spares(self.low) and (given.placing is None or given.placing.spares)

    def _is_part_low(self) -> bool:
        """Whether layers are low before the conversion.

        Sparing the outputs must not undo a conversion: where no other layer would be low, they are not
        spared. In a converted model the others are low and no choice is left about them.
        """
        return any(
            dtype is self.low and verdict.color is Color.GREEN
            for dtype, verdict in zip(self._data_dtypes, self.verdicts)
        )

    def _head(self, before: DType | None, wanted: Demand) -> DType | None:
        """Return the dtype that a head is cast to; None for one that leaves as it comes."""
        if wanted is Demand.LOW and (before is None or before in CASTABLE):
            return self.low
        return before if before in CASTABLE else None

    def _copies(self, costs: PlacementCosts | None) -> Mapping[int, int]:
        """Return what storing parameters twice costs; more than all else together where that is forbidden."""
        params = self.given.params
        copies = copy_costs(self.graph, self.castable_params, params, in_time=costs is not None)
        if not self._is_copying_forbidden:
            return copies
        all_else = sum(map(len, self.dtypes)) if costs is None else costs.total
        return dict.fromkeys(copies, all_else + 1)

    def _estimates(self, green: set[int], choices: set[int]) -> Estimates | None:
        """Return what the choices cost; None where shapes or the target do not tell.

        Raises
        ------
        PolicyError
            When that was asked for and cannot be told.
        """
        target, shapes, names = self.given.target, self.given.shapes, self.context.names
        places = {"choices": choices, "apart": {p for p in choices if self.verdicts[p].widest}}
        measured = None if self.given.placing is None else self.given.placing.times
        if measured is not None and shapes is not None:
            from mxamp.decisions.measured import measured_estimates  # most conversions measure nothing

            return measured_estimates(self.graph, names, target, shapes, measured, **places)
        unknown = []
        if shapes is not None and target.cost is not None and self._weighs:
            unknown = unknown_work(self.graph, shapes, green)
            if not unknown:
                found = estimate(
                    self.graph,
                    names,
                    target,
                    target.cost,
                    shapes,
                    cast_offline=self.castable_params | self.given.free_inputs,
                    **places,
                )
                if self.bodies:
                    times = loop_times(self.graph, shapes, self.bodies, target.cost.call_us)
                    found = found.with_loops(times)
                self.is_short = self.given.are_shapes_assumed and is_short(found)
                weighed = doubted(found, target.cost) if self.is_short else found
                if weighed is not None:
                    return weighed
        if self.given.low_precision is LowPrecision.PROFITABLE:
            raise cannot_be_weighed(target, shapes, self.graph.nodes[unknown[0]].name if unknown else "")
        return None

    def _decision(
        self,
        position: int,
        is_low: bool,
        free: set[int],
        refusals: Mapping[int, str],
        demand: tuple[Demand, ...],
        why_chosen: str,
    ) -> Decision:
        node, verdict = self.graph.nodes[position], self.verdicts[position]
        needs = self._needs[is_low]
        inputs: list[DType | None] = []
        for (producer, index), wanted in zip(node.inputs, demand):
            dtype = self.dtypes[producer][index]
            if wanted is Demand.ANY or (dtype is not None and dtype not in CASTABLE):
                inputs.append(None)
            elif wanted is Demand.FP32 and dtype is not None and dtype is not DType.FLOAT32:
                inputs.append(dtype)  # another low precision than the target's: left as it was
            else:
                inputs.append(needs[wanted])
        before = self._data_dtypes[position]
        if is_low:
            compute: DType | None = self.low
            outputs = self._edges.output_if_low(position)
            attrs = self._edges.attrs_if_low(position)
        else:
            compute = DType.FLOAT32 if verdict.computes_float32 else before
            outputs = self.dtypes[position]
            attrs = ()
        accumulation = compute
        if compute is self.low and verdict.accumulation is not None:
            accumulation = verdict.accumulation
        return Decision(
            color=verdict.color,
            rule=verdict.rule,
            reason=self._reason(position, verdict, is_low, free, refusals, before, why_chosen),
            compute=compute,
            accumulation=accumulation,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attrs=attrs,
            bodies=self.bodies.get(position, ()),
            of_operator=verdict.of_operator,
        )

    def _reason(
        self,
        position: int,
        verdict: Verdict,
        is_low: bool,
        free: set[int],
        refusals: Mapping[int, str],
        before: DType | None,
        why_chosen: str,
    ) -> str:
        facts = self.context.facts[position]
        if position in self.bodies:
            return "control flow: its bodies are decided inside; its states stay float32"
        if verdict.is_cast or (facts is not None and facts.name == CAST):
            return "a cast of the original graph is kept as it is"
        if facts is not None and before is not None and before is not DType.FLOAT32:
            return (
                f"computes in {before} already"
                if before.is_float
                else f"works on {before}, which no cast touches"
            )
        if verdict.of_operator and verdict.color is Color.RED:
            return verdict.reason
        if facts is not None and before is None and not facts.only_float32:
            return "reads no floating-point data; there is nothing to cast"
        if position in refusals:
            return refusals[position]
        if position in free:
            chosen = self.low if is_low else DType.FLOAT32
            return f"{verdict.reason}; {chosen.label} {why_chosen}"
        return verdict.reason
