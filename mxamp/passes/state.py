"""A model on its way through a conversion, and what a pass may ask about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Callable, Mapping, Sequence, TypeVar

from mxamp.decisions import Decision, Plan
from mxamp.dtypes import DType
from mxamp.graph.graph import VARIABLE, Entry, Graph
from mxamp.graph.infer import (
    EntryDtypes,
    certain_dtypes,
    infer_dtypes,
    undeclared_inputs,
    variable_dtypes,
)
from mxamp.graph.node_map import NodeMap
from mxamp.graph.parameters import auxiliary_names
from mxamp.ops.casts import CAST_OPERATORS, CASTABLE
from mxamp.params.parameter import Parameter
from mxamp.passes.axis_sizes import AxisSizes
from mxamp.passes.edit import Edited, NodeShapes
from mxamp.passes.equal_shapes import EqualShapes
from mxamp.passes.images import ImageOrigins, axes_of_places, image_nodes
from mxamp.passes.never_empty import never_empty
from mxamp.passes.open_axes import open_axes
from mxamp.passes.open_shapes import left_open
from mxamp.passes.volumes import of_volumes
from mxamp.passes.without_casts import without_casts
from mxamp.policy.policy import Policy
from mxamp.targets import Target
from mxamp.targets.fusion_defect import LostBranch

Record = TypeVar("Record")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Done:
    """What a pass did.

    Attributes
    ----------
    edited
        The graph that it made; None where it left the graph alone.
    records
        What it did, in words: values of :mod:`mxamp.passes.records`.
    decisions
        The plan for the new graph, as far as it is not the one before: the decisions for nodes, by their
        positions before, and for operators that were put in. None where there is no plan, or it was carried
        out.
    plan
        The plan, of the pass that makes it.
    """

    edited: Edited | None
    records: tuple[Any, ...] = ()
    decisions: Mapping[int, Decision] | None = None
    plan: Plan | None = None


@dataclass(frozen=True)
class State:
    """A model between two steps of a conversion. Other questions about it are answered when they are asked.

    Attributes
    ----------
    graph
        The graph.
    params
        Its parameters and auxiliary states by name, and those that no graph reads.
    policy
        The policy: nodes that a rule of the user's picks are left alone, so that the rule still does.
    target
        What the model is converted for.
    nodes
        Where the nodes of the user's graph are in this one.
    auxiliary
        The parameters that are auxiliary states.
    shapes
        For every node the shape of each output, where known. They are those of one call: a pass may choose by
        them what is fastest, and must be right for all others.
    assumed_shapes
        The same where no call is known, of one that is usual: for passes to choose by, and for nothing else.
    are_axes_certain
        Whether no call can have other numbers of axes than the assumed shapes.
    low_inputs
        The inputs that will arrive in low precision; a cast to that is one that does nothing.
    low_heads
        Numbers of the heads that will leave in low precision.
    keeps_branches
        Whether a later step keeps MXNet's fusion from losing values, whatever those before it do.
    made_from
        Parameter that is none of the user's -> the user's that its values come from.
    plan
        The decisions for the graph; None before they are made.
    decided
        The state that was decided about, with the decisions; None before.
    since_plan
        Where its nodes are in this graph.
    records
        What passes did, in their order: values of :mod:`mxamp.passes.records`.
    """

    graph: Graph
    params: Mapping[str, Parameter]
    policy: Policy
    target: Target
    nodes: NodeMap
    auxiliary: frozenset[str] = frozenset()
    shapes: Sequence[NodeShapes] | None = None
    assumed_shapes: Sequence[NodeShapes] | None = None
    are_axes_certain: bool = True
    low_inputs: Mapping[str, DType] = field(default_factory=dict)
    low_heads: frozenset[int] = frozenset()
    keeps_branches: bool = False
    made_from: Mapping[str, Sequence[str]] = field(default_factory=dict)
    plan: Plan | None = None
    decided: State | None = None
    since_plan: NodeMap = field(default_factory=lambda: NodeMap((), ()))
    records: tuple[Any, ...] = ()

    @classmethod
    def of(
        cls, graph: Graph, params: Mapping[str, Parameter], policy: Policy, target: Target, **known: Any
    ) -> State:
        """Return the state in which a conversion of a graph begins."""
        return cls(graph, params, policy, target, NodeMap.identity(len(graph.nodes)), **known)

    def after(self, done: Done) -> State:
        """Return the state after a pass."""
        records, edited = (*self.records, *done.records), done.edited
        if done.plan is not None:
            decided = replace(self, records=records, plan=done.plan)
            start = NodeMap.identity(len(self.graph.nodes))
            return replace(decided, decided=decided, since_plan=start)
        if edited is None:
            return replace(self, records=records)
        made_from = {
            name: sources for name, sources in self.made_from.items() if name in edited.graph.variables
        }
        for name, sources in edited.made_from.items():
            origins = [origin for source in sources for origin in self.made_from.get(source, (source,))]
            made_from[name] = tuple(dict.fromkeys(origins))
        plan = None
        if self.plan is not None and done.decisions is not None:
            plan = _plan_after(self.graph, self.plan, edited, done.decisions)
        new = edited.params.keys() - self.params.keys()
        return replace(
            self,
            graph=edited.graph,
            auxiliary=self.auxiliary | (new & auxiliary_names(edited.graph)) if new else self.auxiliary,
            params=_params_after(self.graph, self.params, edited),
            nodes=self.nodes.then(edited.nodes),
            shapes=_shapes_after(self.shapes, edited),
            assumed_shapes=_shapes_after(self.assumed_shapes, edited),
            made_from=made_from,
            plan=plan,
            since_plan=self.since_plan if self.plan is None else self.since_plan.then(edited.nodes),
            records=records,
        )

    def record(self, kind: type[Record]) -> tuple[Record, ...]:
        """Return what passes said of one kind."""
        return tuple([record for record in self.records if isinstance(record, kind)])

    def once(self, analysis: Callable[[State], Found]) -> Found:
        """Return what an analysis finds in the model, made once for however many nodes ask."""
        if analysis not in self._found:
            self._found[analysis] = analysis(self)
        found: Found = self._found[analysis]
        return found

    @cached_property
    def _found(self) -> dict[Callable[[State], Any], Any]:
        return {}

    # ------------------------------------------------------------------ what is asked of nodes

    @cached_property
    def heads(self) -> frozenset[int]:
        """The nodes that are graph outputs: their names are those of the outputs.

        So are those whose name a cast took that :class:`~mxamp.passes.InsertCasts` put behind them, or else
        converting again would find more to prepare.
        """
        nodes = self.graph.nodes
        found = {head.node for head in self.graph.heads}
        for position in list(found):
            node = nodes[position]
            if node.op in CAST_OPERATORS and node.inputs:
                source = node.inputs[0].node
                if nodes[source].name in {f"{node.name}_{dtype}" for dtype in CASTABLE}:
                    found.add(source)
        return frozenset(found)

    @cached_property
    def _awaited(self) -> frozenset[int]:
        return frozenset(dep for node in self.graph.nodes for dep in node.control_deps)

    def is_fixed(self, position: int, *, updating: bool = True) -> bool:
        """Whether a node must stay as it is, whatever it computes, though not where it is a graph output.

        Parameters
        ----------
        position
            The node.
        updating
            Whether one that updates a state in training, as BatchNorm its statistics, is such a node.
        """
        node = self.graph.nodes[position]
        return (
            bool(node.control_deps or (updating and node.input_versions) or node.subgraphs)
            or position in self._awaited
            or any(rule.selector.picks(node) for rule in self.policy.rules)
        )

    def only_reader(self, position: int) -> int | None:
        """Return the one node that reads a node, once and its first output; None where there is no such."""
        uses = self.graph.uses[position]
        if position in self.heads or len(uses) != 1 or 0 not in uses or len(uses[0]) != 1:
            return None
        return uses[0][0].node

    @cached_property
    def places(self) -> Mapping[int, int]:
        """The nodes that certainly hand on sequences, images or volumes; see :func:`axes_of_places`."""
        return axes_of_places(self.graph, self.params)

    @cached_property
    def images(self) -> frozenset[int]:
        """The nodes that certainly hand on images."""
        return image_nodes(self.places)

    @cached_property
    def image_origins(self) -> ImageOrigins:
        """What made the channels of images."""
        return ImageOrigins(self.graph)

    @cached_property
    def of_volumes(self) -> frozenset[int]:
        """The nodes that may hand on the order of a layer of volumes; see :func:`of_volumes`."""
        return of_volumes(self.graph)

    @cached_property
    def left_open(self) -> frozenset[int]:
        """The nodes whose size nothing but their readers says; see :func:`left_open`."""
        return left_open(self.graph)

    @cached_property
    def never_empty(self) -> frozenset[int]:
        """The nodes that certainly hand on values; see :func:`never_empty`."""
        return never_empty(self.graph, self.params, self.certain_dtypes, self.axes)

    def axes(self, entry: Entry) -> int | None:
        """Return how many axes an entry has in every call; None where that is not certain."""
        sizes = self.axis_sizes.of(entry)
        return None if sizes is None else len(sizes)

    @cached_property
    def equal_shapes(self) -> EqualShapes:
        """Which entries certainly have equal shapes."""
        return EqualShapes(self.graph, self.params, self.axis_sizes.of)

    @cached_property
    def axis_sizes(self) -> AxisSizes:
        """How long axes are in every call."""
        return AxisSizes(self.graph, self.params, self.shape)

    @cached_property
    def handed_on(self) -> Mapping[Entry, Entry]:
        """What the backend deletes -> what is read in its place."""
        return self.target.backend.handed_on(self.graph)

    @cached_property
    def lost_branches(self) -> Sequence[LostBranch]:
        """What the backend's fusion loses in the graph."""
        return self.target.backend.lost_branches(self.graph)

    @cached_property
    def losses(self) -> int:
        """In how many places fusion goes wrong, or would without the casts that a conversion put there.

        A pass that was taken back is so again when what came of it is converted.
        """
        return len(self.target.backend.lost_branches(without_casts(self.graph)))

    # ------------------------------------------------------------------ what is asked of entries

    @cached_property
    def dtypes(self) -> EntryDtypes:
        """The dtype of every entry; inputs that say nothing about theirs are float32."""
        return infer_dtypes(self.graph, self.variables)

    @cached_property
    def certain_dtypes(self) -> EntryDtypes:
        """The dtype of every entry, None where it depends on what an input is fed with.

        Inputs that will arrive in low precision are float32 here: they are cast up wherever the model
        computes in that, and :meth:`arriving_dtype` tells of them.
        """
        unsaid = [
            name for name in self.graph.variables if name not in self.params and name not in self.low_inputs
        ]
        return certain_dtypes(self.graph, self.variables, undeclared_inputs(self.graph, unsaid))

    def arriving_dtype(self, entry: Entry) -> DType | None:
        """Return what :attr:`certain_dtypes` says of an entry, low for an input that will arrive so."""
        node = self.graph.nodes[entry.node]
        low = self.low_inputs.get(node.name) if node.is_variable else None
        return self.certain_dtypes[entry.node][entry.output] if low is None else low

    @cached_property
    def variables(self) -> Mapping[str, DType]:
        """The dtype of every variable."""
        return variable_dtypes(self.graph, {name: value.dtype for name, value in self.params.items()})

    def shape(self, entry: Entry) -> tuple[int, ...] | None:
        """Return the shape of an entry: a parameter's always, others' in the call known or assumed.

        None where another call may have another number of axes.
        """
        shape = self.usual_shape(entry)
        if shape is None or entry.node in self._open_axes:
            return None
        if self.shapes is not None or self.are_axes_certain or self.parameter(entry) is not None:
            return shape
        sizes = self._sizes_without_shapes.of(entry)
        return shape if sizes is not None and len(sizes) == len(shape) else None

    @cached_property
    def _sizes_without_shapes(self) -> AxisSizes:
        """How long axes are by what nodes alone say."""
        return AxisSizes(self.graph, self.params, lambda entry: None)

    @cached_property
    def _open_axes(self) -> frozenset[int]:
        return open_axes(self.graph)

    @property
    def usual_shapes(self) -> Sequence[NodeShapes] | None:
        """For every node the shape of each output in a usual call: those given, or else assumed."""
        return self.assumed_shapes if self.shapes is None else self.shapes

    def usual_shape(self, entry: Entry) -> tuple[int, ...] | None:
        """Return the shape of an entry in a usual call, where other calls may have other numbers of axes.

        It tells what is fast, to a pass that is right for any number.
        """
        parameter = self.parameter(entry)
        if parameter is not None:
            return parameter.shape
        shapes = self.usual_shapes
        return None if shapes is None else shapes[entry.node][entry.output]

    def parameter(self, entry: Entry) -> Parameter | None:
        """Return the parameter or auxiliary state that an entry is; None where it is none."""
        node = self.graph.nodes[entry.node]
        return self.params.get(node.name) if node.op == VARIABLE else None

    def own_parameter(self, entry: Entry) -> Parameter | None:
        """Return the dense float32 parameter that an entry is, where one input alone reads it; else None."""
        parameter = self.parameter(entry)
        if parameter is None or parameter.dtype is not DType.FLOAT32 or parameter.is_sparse:
            return None
        is_alone = len(self.graph.uses_of(entry)) == 1 and entry not in self.graph.heads
        return parameter if is_alone else None

    # ------------------------------------------------------------------ parameters, as MXNet has them

    @cached_property
    def arg_params(self) -> Mapping[str, Parameter]:
        """The parameters without the auxiliary states."""
        return {name: value for name, value in self.params.items() if name not in self.auxiliary}

    @cached_property
    def aux_params(self) -> Mapping[str, Parameter]:
        """The auxiliary states."""
        return {name: value for name, value in self.params.items() if name in self.auxiliary}


def _params_after(before: Graph, params: Mapping[str, Parameter], edited: Edited) -> Mapping[str, Parameter]:
    """Return the parameters without those that are gone, new ones behind the first that they were made of."""
    kept, gone = edited.graph.variables, before.variables
    if not edited.params and kept.keys() == gone.keys():
        return params
    follows: dict[str, list[str]] = {}
    for name in edited.params:
        if name not in params:
            first = next((source for source in edited.made_from.get(name, ()) if source in params), "")
            follows.setdefault(first, []).append(name)
    after: dict[str, Parameter] = {}
    for name, parameter in params.items():
        if name in kept or name not in gone:
            after[name] = edited.params.get(name, parameter)
        after.update({new: edited.params[new] for new in follows.get(name, ())})
    after.update({new: edited.params[new] for new in follows.get("", ())})
    return after


def _shapes_after(shapes: Sequence[NodeShapes] | None, edited: Edited) -> Sequence[NodeShapes] | None:
    if shapes is None or edited.shapes is None:
        return None
    after = []
    for position, (node, origin) in enumerate(zip(edited.graph.nodes, edited.nodes.origins)):
        own = edited.shapes.get(position, shapes[origin])
        # A node that was put in may have more outputs: the terms of a sum are shaped as the sum is.
        after.append(own if len(own) == node.num_outputs else own[:1] * node.num_outputs)
    return after


def _plan_after(before: Graph, plan: Plan, edited: Edited, decisions: Mapping[int, Decision]) -> Plan:
    """Return the plan for a graph that was made of the one that was decided about."""
    graph = edited.graph
    found: list[Decision | None] = [None] * len(graph.nodes)
    for position, decision in enumerate(plan.decisions):
        place = edited.nodes.forward(position)
        # Where a node is gone, the one that has its values has a decision of its own.
        if decision is not None and place is not None and not graph.nodes[place].is_variable:
            found[place] = found[place] or decisions.get(position, decision)
    for position, place in edited.inserted.items():
        if position in decisions:
            found[place] = decisions[position]
    gone = before.variables.keys() - graph.variables.keys()
    new = {name: value.dtype for name, value in edited.params.items() if name not in before.variables}
    return replace(
        plan,
        decisions=found,
        variables_before={
            **{name: dtype for name, dtype in plan.variables_before.items() if name not in gone},
            **new,
        },
        cast_offline=(plan.cast_offline - gone) | new.keys(),
    )
