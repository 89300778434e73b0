"""Decide: from colors and capabilities, through the placement, to one decision a node.

Nothing is rewritten here, and the rewriter decides nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import AbstractSet, Mapping, NamedTuple, Sequence

from mxamp.decisions.bodies import decide_bodies
from mxamp.decisions.choices import Choices, find_choices
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
from mxamp.decisions.inputs import DecisionInputs
from mxamp.decisions.lone_roundings import WHY_LONE, lone_nodes
from mxamp.decisions.loops import loop_times
from mxamp.decisions.low_precision import LowPrecision, cannot_be_weighed
from mxamp.decisions.placing import Placing
from mxamp.decisions.reasons import reason_for
from mxamp.decisions.second_copies import copy_costs, readers_of_what_grows
from mxamp.decisions.short_passes import doubted, is_short
from mxamp.decisions.slower import why_low_is_slower
from mxamp.decisions.workload import unknown_work
from mxamp.decisions.worthwhile import simpler_placement
from mxamp.dtypes import DType
from mxamp.graph.control_flow import is_control_flow
from mxamp.graph.graph import VARIABLE
from mxamp.graph.infer import infer_with_data_dtypes
from mxamp.ops.casts import CASTABLE
from mxamp.placement import Demand, PlacementCosts, PlacementProblem, place
from mxamp.policy.color import Color
from mxamp.policy.coloring import color_graph
from mxamp.policy.context import ColoringContext


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


class _Placed(NamedTuple):
    """A placement, and what it is made for.

    Attributes
    ----------
    problem
        What was placed, with the prices of what is spared.
    low
        The low nodes.
    why
        Why a node that had the choice is what was chosen.
    in_vain
        Node -> why it stays FP32, though the placement of the least time has it low.
    is_sparing
        Whether outputs are spared roundings at a price.
    """

    problem: PlacementProblem
    low: AbstractSet[int]
    why: str
    in_vain: Mapping[int, str]
    is_sparing: bool


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

    # ------------------------------------------------------------------ the plan

    def plan(self) -> Plan:
        """Run the steps, again where a placement would store parameters twice and make the model larger."""
        choices = find_choices(self.given, self.context, self.verdicts, self._data_dtypes, self._too_large)
        wanted = choices.low
        estimates = self._estimates(choices)
        placing = self.given.placing
        if estimates is not None:
            choices = replace(choices, groups=estimates.groups)
        elif placing is not None and placing.needs_costs:
            placing = None
        slower = None
        if self._is_open and placing is None:
            slower = why_low_is_slower(self.given.target.cost, are_weighed=estimates is not None)
        if slower is not None:
            choices = choices.refused(choices.nodes, f"{self.low} {slower}")
        elif self._is_open and (estimates is not None or placing is not None):
            choices = choices.opened()
        head_demand = self._head_demand()
        tails = self._tails(wanted, choices, head_demand, is_estimated=estimates is not None)
        if estimates is None:
            choices = self._spared_by_weights(choices, wanted, tails)
        problem = self._problem(choices, head_demand, estimates)
        placed = self._placed(problem, wanted, tails, estimates, placing)
        if self._grows(placed):
            return self.plan()
        reasons = {**(why_spared(placed.problem, placed.low) if placed.is_sparing else {}), **placed.in_vain}
        decisions = [
            None
            if node.op == VARIABLE
            else self._decision(
                position,
                position in placed.low,
                choices,
                problem.demand[position],
                reasons.get(position, placed.why),
            )
            for position, node in enumerate(self.graph.nodes)
        ]
        return Plan(
            decisions=decisions,
            variables_before=dict(self.given.variables),
            variables_after=dict(self.given.low_inputs),
            heads=tuple(
                self._head(self.dtypes[head.node][head.output], demand)
                for head, demand in zip(self.graph.heads, head_demand)
            ),
            cast_offline=self.castable_params,
            # The report shows no times of a call that nobody promised.
            estimates=None if self.given.are_shapes_assumed else estimates,
            rests_on_assumed=self.given.are_shapes_assumed and estimates is not None and slower is None,
        )

    @property
    def _is_open(self) -> bool:
        """Whether GREEN nodes may stay FP32: not where low is an order."""
        return self.given.low_precision is not LowPrecision.REQUIRED and not self.given.policy.is_pure

    def _head_demand(self) -> Sequence[Demand]:
        """Return what every graph output needs."""
        return [
            Demand.LOW
            if number in self.given.low_heads or self.dtypes[head.node][head.output] is self.low
            else Demand.FP32
            for number, head in enumerate(self.graph.heads)
        ]

    def _problem(
        self, choices: Choices, head_demand: Sequence[Demand], estimates: Estimates | None
    ) -> PlacementProblem:
        """Return what is to be placed, and what it costs."""
        costs = None if estimates is None else estimates.for_placement()
        return PlacementProblem(
            graph=self.graph,
            free=choices.free,
            low=choices.low,
            supply=self._edges.supply(choices.nodes),
            demand=self._edges.demand(choices.nodes),
            head_demand=head_demand,
            groups=choices.groups,
            widest={position for position in choices.free if self.verdicts[position].widest},
            costs=costs,
            copies=self._copies(costs),
        )

    def _placed(
        self,
        problem: PlacementProblem,
        wanted: AbstractSet[int],
        tails: Sequence[Tail],
        estimates: Estimates | None,
        placing: Placing | None,
    ) -> _Placed:
        """Place what is open: as was asked for, or so that it takes the least time or the fewest casts."""
        cheapest = None
        if tails and estimates is not None:
            sparing, low_then = spare(problem, estimates, tails)
            if wanted & low_then or not wanted & place(problem) or self._already_low:
                problem, cheapest = sparing, low_then
        is_sparing = cheapest is not None
        if placing is not None:
            return _Placed(problem, placing.choose(problem, wanted), placing.reason, {}, is_sparing)
        low = place(problem) if cheapest is None else cheapest
        why = (
            "needs the fewest casts here"
            if estimates is None
            else "takes the least time here, as estimated for assumed shapes"
            if self.given.are_shapes_assumed
            else "takes the least time here, as estimated"
        )
        simple = simpler_placement(problem, low, wanted, estimates) if self._is_open else None
        if simple is not None:
            low, why = simple, "needs the fewest casts here; more would hardly gain, as estimated"
        in_vain = self._in_vain(problem, low, wanted, estimates)
        return _Placed(problem, low - in_vain.keys(), why, in_vain, is_sparing)

    def _grows(self, placed: _Placed) -> bool:
        """Whether the parameters would take more bytes than in float32; the next problem knows of it then."""
        if self.given.low_precision is LowPrecision.REQUIRED:
            return False
        grows = readers_of_what_grows(
            placed.problem, placed.low, self.castable_params, self.given.params, self.low
        )
        if grows and not self._is_copying_forbidden:
            self._is_copying_forbidden = True  # what has the choice agrees; then the rest need not
            return True
        if self._too_large.keys() >= grows.keys():
            return False
        self._too_large.update(grows)
        return True

    def _tails(
        self,
        layers: AbstractSet[int],
        choices: Choices,
        head_demand: Sequence[Demand],
        *,
        is_estimated: bool,
    ) -> Sequence[Tail]:
        """Return the nodes before the outputs that had best stay FP32; none where low is an order."""
        if not self._may_spare:
            return ()
        open_nodes = choices.nodes
        # Shapes that were assumed for the sake of times: without these, a second conversion has none of both.
        is_without = self.given.are_shapes_assumed and not is_estimated
        tails = find_tails(
            self.graph,
            self.context.facts,
            layers=layers,
            choices=open_nodes,
            fixed={
                position
                for position, dtype in enumerate(self._data_dtypes)
                if dtype is self.low or (position in open_nodes and self.verdicts[position].by_user)
            },
            head_demand=head_demand,
            shapes=None if is_without else self.given.shapes,
        )
        return without_large(self.graph, tails, self.given.params)

    def _spared_by_weights(
        self, choices: Choices, wanted: AbstractSet[int], tails: Sequence[Tail]
    ) -> Choices:
        """Return the choices without what outputs are spared where no times are known."""
        spared = affordable_unpriced(self.graph, self.context.facts, tails, self.given.params)
        if not spared or (wanted <= spared and not self._already_low):
            return choices
        return choices.refused(spared, WHY_AFFORDABLE)

    def _in_vain(
        self,
        problem: PlacementProblem,
        chosen: AbstractSet[int],
        wanted: AbstractSet[int],
        estimates: Estimates | None,
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
            is_part_low=bool(self._already_low),
            estimates=estimates,
        )
        return {**dict.fromkeys(lone, WHY_LONE), **dict.fromkeys(first, WHY_FIRST)}

    @property
    def _may_spare(self) -> bool:
        """Whether outputs are spared roundings at all: not where low is an order."""
        placing = self.given.placing
        return self._is_open and spares(self.low) and (placing is None or placing.spares)

    @cached_property
    def _already_low(self) -> frozenset[int]:
        """The layers that are low before the conversion, and so no choice is left about them.

        Sparing the outputs must not undo a conversion: where no other layer would be low, they are not
        spared.
        """
        return frozenset(
            position
            for position, (dtype, verdict) in enumerate(zip(self._data_dtypes, self.verdicts))
            if dtype is self.low and verdict.color is Color.GREEN
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

    def _estimates(self, choices: Choices) -> Estimates | None:
        """Return what the choices cost; None where shapes or the target do not tell.

        Raises
        ------
        PolicyError
            When that was asked for and cannot be told.
        """
        target, shapes, names = self.given.target, self.given.shapes, self.context.names
        apart = {position for position in choices.nodes if self.verdicts[position].widest}
        places = {"choices": choices.nodes, "apart": apart}
        measured = None if self.given.placing is None else self.given.placing.times
        if measured is not None and shapes is not None:
            from mxamp.decisions.measured import measured_estimates  # most conversions measure nothing

            return measured_estimates(self.graph, names, target, shapes, measured, **places)
        unknown = []
        if shapes is not None and target.cost is not None and self._weighs:
            unknown = unknown_work(self.graph, shapes, choices.low | self._already_low)
            if not unknown:
                free = self.castable_params | self.given.free_inputs
                found = estimate(self.graph, names, target, target.cost, shapes, cast_offline=free, **places)
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
        choices: Choices,
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
            reason=reason_for(
                position,
                self.context.facts[position],
                verdict,
                choices,
                before=before,
                chosen=self.low if is_low else DType.FLOAT32,
                why_chosen=why_chosen,
                has_bodies=position in self.bodies,
            ),
            compute=compute,
            accumulation=accumulation,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attrs=attrs,
            bodies=self.bodies.get(position, ()),
            of_operator=verdict.of_operator,
        )
