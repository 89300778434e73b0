"""Carry out a plan: insert the casts its decisions ask for, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import AbstractSet, Mapping, Sequence

from mxamp.decisions import Decision, Plan
from mxamp.dtypes import DType
from mxamp.errors import PassError
from mxamp.graph.builder import GraphBuilder
from mxamp.graph.cast_nodes import cast_node, multicast_node
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.graph.infer import check_dtypes, infer_dtypes
from mxamp.graph.node_map import NodeMap
from mxamp.graph.output_names import cast_names
from mxamp.ops import FACTS
from mxamp.ops.casts import AMP_CAST, AMP_MULTICAST, CAST_OPERATORS, CASTABLE, cast_target
from mxamp.params.parameter import Parameter
from mxamp.passes.base import Pass
from mxamp.passes.edit import Edited, said_of
from mxamp.passes.planned import PlannedPass
from mxamp.passes.records import BodyCasts, InsertedCast, InsertedCasts, StoredParameter
from mxamp.passes.state import Done, State


def offline_dtypes(graph: Graph, plan: Plan) -> Mapping[str, Sequence[DType]]:
    """Return the dtypes other than its own that each parameter of a graph will be stored in.

    Parameters
    ----------
    graph
        The graph before casts are put in.
    plan
        The decisions for it.

    Returns
    -------
    dict
        Parameter name -> dtypes; without the parameters that are stored as they are.
    """
    found = {}
    wanted = _wanted_dtypes(graph, plan)
    for name, position in graph.variables.items():
        if name in plan.cast_offline and name not in plan.variables_after:
            before = plan.variables_before.get(name, DType.FLOAT32)
            others = _other_dtypes(wanted.get(position, _NOT_READ), before)
            if others:
                found[name] = others
    return found


_NOT_READ: AbstractSet[DType] = frozenset()


def _wanted_dtypes(graph: Graph, plan: Plan) -> Mapping[int, AbstractSet[DType]]:
    """Return the dtypes in which each variable is read; without those that any dtype will do for."""
    wanted: dict[int, set[DType]] = {}
    for node, decision in zip(graph.nodes, plan.decisions):
        if decision is not None:
            for (producer, _), need in zip(node.inputs, decision.inputs):
                if need is not None and graph.nodes[producer].op == VARIABLE:
                    if producer in wanted:
                        wanted[producer].add(need)
                    else:
                        wanted[producer] = {need}
    for head, need in zip(graph.heads, plan.heads):
        if need is not None and graph.nodes[head.node].op == VARIABLE:
            wanted.setdefault(head.node, set()).add(need)
    return wanted


def _other_dtypes(wanted: AbstractSet[DType], own: DType) -> Sequence[DType]:
    others = [dtype for dtype in wanted if dtype is not own]
    return sorted(others, key=lambda dtype: dtype.value) if len(others) > 1 else others


class InsertCasts(PlannedPass):
    """Insert casts where a node's inputs do not have the dtypes its decision names.

    Before::

        x (float32) -> conv (reads bfloat16) -> bn -> exp (reads float32) -> head (float32)

    After::

        x -> amp_cast bfloat16 -> conv -> bn -> amp_cast float32 -> exp -> head

    Refuses: a plan that was made for another graph.

    Parameters
    ----------
    cast_op
        ``"amp_cast"``, or ``"Cast"`` for consumers that do not know the amp operators.

    Notes
    -----
    Invariants: names of inputs, outputs and nodes are kept, and so is the order of MXNet's
    ``list_arguments`` but for a parameter that is stored twice, which stands where its first reader is.
    Every entry is cast at most once to each dtype (the cast map holds (entry, dtype) -> entry), and casting
    a cast back gives the original entry (the map holds the way back too). Casts that were in the graph enter
    the map where they lose nothing: one from low to FP32 has a way back, one from FP32 to low has not, for
    its rounding is the user's meaning. A parameter whose readers agree is stored in their dtype; where they
    disagree it is stored in both.

    A graph output that has to be cast back keeps its name by giving it to the cast: MXNet derives the name
    of an output from the name of its node, and two nodes of one name make ``get_internals()[name]`` fail. The
    node that computed it gets the dtype as a suffix (docs/adr/0005).

    Linear in nodes and inputs. Numerical effect: exactly the roundings the plan asks for.
    """

    step = "insert_casts"

    def __init__(self, cast_op: str = AMP_CAST) -> None:
        if cast_op not in CAST_OPERATORS:
            raise PassError(f"cast_op must be one of {', '.join(CAST_OPERATORS)}, not {cast_op!r}.")
        self._cast_op = cast_op

    def run(self, state: State) -> Done | None:
        """Return the graph with the casts in it, and what they are, even where there are none."""
        # A file may hold parameters that the graph does not use; their names are taken too.
        rewriter = _Rewriter(state.graph, self.plan(state), self._cast_op, params=state.params)
        after = rewriter.rewrite()
        record = InsertedCasts(
            tuple(rewriter.casts), tuple(rewriter.body_casts), rewriter.stored, rewriter.variables
        )
        if not rewriter.changed:
            return Done(None, (record,))
        return Done(Edited(after, NodeMap(rewriter.positions, rewriter.origins), shapes=None), (record,))

    def ensures(self, before: State, after: State) -> None:
        """Check that dtypes fit together, and that inputs and outputs kept their names and number."""
        if after.graph is before.graph:
            return
        Pass.ensures(self, before, after)
        (inserted,) = after.record(InsertedCasts)
        check_dtypes(after.graph, infer_dtypes(after.graph, inserted.variables))
        had = before.graph.variables
        kept = [name for name in after.graph.variables if name not in inserted.parameters or name in had]
        if kept != list(had):
            raise PassError("The names of the graph's inputs or parameters changed.")


class OnTrial(PlannedPass):
    """A pass that puts casts in on trial, to see what MXNet makes of the graph with them.

    Parameters
    ----------
    cast_op
        As in :class:`InsertCasts`.
    """

    def __init__(self, cast_op: str = AMP_CAST) -> None:
        self._insert_casts = InsertCasts(cast_op)

    def with_casts(self, state: State) -> tuple[Graph, NodeMap, InsertedCasts]:
        """Return the graph with casts, where the nodes are in it, and which casts there are."""
        trial = self._insert_casts.run(state)
        assert trial is not None  # it always says what casts there are
        (inserted,) = (record for record in trial.records if isinstance(record, InsertedCasts))
        if trial.edited is None:
            return state.graph, NodeMap.identity(len(state.graph.nodes)), inserted
        return trial.edited.graph, trial.edited.nodes, inserted


class _Rewriter:
    """One run of :class:`InsertCasts`."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        cast_op: str,
        *,
        named_outputs: bool = True,
        params: Mapping[str, Parameter] | None = None,
    ) -> None:
        self.graph = graph
        self.plan = plan
        self.variables: dict[str, DType] = dict(plan.variables_before)
        self.cast_op = cast_op
        # The heads of a control-flow body have no names that anybody sees.
        self.names = cast_names(graph) if named_outputs else {}
        self.builder = GraphBuilder({*_all_names(graph), *(params or {}), *self.names.values()})
        self.params = params or {}
        self.positions: list[int] = []
        self.origins: list[int] = []
        self.at = 0
        """The node before that the walk is at."""
        self.dtypes: list[tuple[DType | None, ...]] = []
        self.cast_map: dict[tuple[Entry, DType], Entry] = {}
        self.stored: dict[str, StoredParameter] = {}
        self.casts: list[InsertedCast] = []
        self.body_casts: list[BodyCasts] = []
        self.changed = False
        self.wanted = _wanted_dtypes(graph, plan)
        self.head_dtypes: dict[Entry, DType] = {}
        self.renamed = self._outputs_to_cast_back()

    # ------------------------------------------------------------------ the walk

    def rewrite(self) -> Graph:
        for position, (node, decision) in enumerate(zip(self.graph.nodes, self.plan.decisions)):
            self.at = position
            if node.op == VARIABLE:
                self._add_variable(position, node)
            else:
                assert decision is not None  # every operator node has a decision
                self._add_operator(position, node, decision)
        heads = []
        for head, wanted in zip(self.graph.heads, self.plan.heads):
            entry = self._entry(head)
            heads.append(entry if wanted is None else self._cast(entry, wanted, head, for_head=True))
        return self.builder.build(heads, self.graph.attrs, self.graph.head_versions)

    def _entry(self, old: Entry) -> Entry:
        return Entry(self.positions[old.node], old.output)

    def _dtype(self, entry: Entry) -> DType | None:
        return self.dtypes[entry.node][entry.output]

    def _add(self, node: Node, dtypes: tuple[DType | None, ...], *, origin: int | None = None) -> int:
        self.dtypes.append(dtypes)
        self.origins.append(self.at if origin is None else origin)
        return self.builder.add(node)

    # ------------------------------------------------------------------ variables

    def _add_variable(self, position: int, node: Node) -> None:
        name = node.name
        before = self.variables.get(name, DType.FLOAT32)
        if name in self.plan.variables_after:
            after = self.plan.variables_after[name]
            self.positions.append(self._store(node, name, before, after))
            return
        wanted = self.wanted.get(position, _NOT_READ) if name in self.plan.cast_offline else _NOT_READ
        low = _other_dtypes(wanted, before)
        if len(wanted) == 1 and low:
            self.positions.append(self._store(node, name, before, low[0]))
            self.stored[name] = StoredParameter(name, low[0])
            return
        if before is DType.FLOAT32 and (low or self._is_cast_at_run_time(position)):
            # MXNet infers the dtype of an input from its readers, but not through a cast, and not from what
            # takes any; others that would tell may read the copy.
            said = said_of(self.params[name]) if name in self.params else {"__dtype__": str(before.value)}
            node = node._replace(attrs={**node.attrs, **said})
        own = self._add(node, (before,))
        self.positions.append(own)
        for dtype in low:  # readers disagree: one more array, in their dtype
            twin = self.builder.free_name(f"{name}_{dtype}")
            self.cast_map[Entry(own), dtype] = Entry(self._store(node, twin, before, dtype))
            self.stored[twin] = StoredParameter(name, dtype)

    def _store(self, node: Node, name: str, before: DType, after: DType) -> int:
        """Add a variable whose values have another dtype than the original's."""
        self.changed = self.changed or after is not before or name != node.name
        self.variables[name] = after
        # Module infers the dtype of an argument from this attribute before it copies the values in.
        attrs = {**node.attrs, "__dtype__": str(after.value)}
        return self._add(node._replace(name=name, attrs=attrs), (after,))

    def _is_cast_at_run_time(self, position: int) -> bool:
        return any(dtype.is_low_precision for dtype in self.wanted.get(position, _NOT_READ))

    # ------------------------------------------------------------------ operators

    def _add_operator(self, position: int, node: Node, decision: Decision) -> None:
        old_inputs, positions = node.inputs, self.positions
        inputs = [Entry(positions[producer], index) for producer, index in old_inputs]
        before = [self.dtypes[producer][index] for producer, index in inputs]
        if None in before and self._needs_multicast(node, inputs, decision):
            inputs = self._multicast(node, inputs, decision)
        else:
            for number, need in enumerate(decision.inputs):
                if need is not None and before[number] is not need:
                    inputs[number] = self._cast(inputs[number], need, old_inputs[number])
        attrs = node.attrs
        if decision.attrs:
            attrs = {**attrs, **dict(decision.attrs)}
            self.changed = True
        subgraphs = node.subgraphs
        if decision.bodies:
            subgraphs = self._rewrite_bodies(node, decision)
        name = self.renamed.get(position, node.name)
        control_deps = node.control_deps and tuple(
            [positions[dependency] for dependency in node.control_deps]
        )
        moved = node._replace(
            name=name, attrs=attrs, inputs=tuple(inputs), subgraphs=subgraphs, control_deps=control_deps
        )
        new = self._add(moved, decision.outputs)
        self.positions.append(new)
        if node.op == AMP_CAST:
            self._remember_cast(node, new)

    def _remember_cast(self, node: Node, new: int) -> None:
        """Enter a cast of the original graph into the cast map."""
        source = self.builder.node(new).inputs[0]
        before, after = self._dtype(source), cast_target(node.attrs, str(node))
        if before not in CASTABLE or before is after:
            return
        self.cast_map.setdefault((source, after), Entry(new))
        if after is DType.FLOAT32:  # widening loses nothing, so there is a way back
            assert before is not None  # castable
            self.cast_map.setdefault((Entry(new), before), source)

    def _rewrite_bodies(self, node: Node, decision: Decision) -> tuple[Graph, ...]:
        bodies = []
        for body, plan in zip(node.subgraphs, decision.bodies):
            inner = _Rewriter(body, plan, self.cast_op, named_outputs=False)
            after = inner.rewrite()
            self.changed = self.changed or inner.changed
            bodies.append(after if inner.changed else body)
            self.body_casts.append(BodyCasts(node.name, body, after, tuple(inner.casts)))
            self.body_casts.extend(
                replace(deeper, path=f"{node.name}/{deeper.path}") for deeper in inner.body_casts
            )
        return tuple(bodies)

    # ------------------------------------------------------------------ casts

    def _cast(self, entry: Entry, dtype: DType, origin: Entry, *, for_head: bool = False) -> Entry:
        """Return ``entry`` in ``dtype``: itself, a cast made before, or a new cast."""
        before = self._dtype(entry)
        if before is dtype:
            return entry
        known = self.cast_map.get((entry, dtype))
        if known is not None and not (for_head and self._loses_name(known, origin, dtype)):
            return known
        if before is None and for_head and dtype is DType.FLOAT32:
            return entry  # an operator nobody knows hands on what it always did
        # `Cast` would turn an unknown operator's integers into floats; amp_cast lets them pass.
        op = AMP_CAST if before is None else self.cast_op
        node = cast_node(op, self._cast_name(entry, origin, dtype), entry, dtype)
        new = self._add(node, (dtype,), origin=origin.node)
        self.changed = True
        made = Entry(new)
        self.casts.append(InsertedCast(new, entry, origin, dtype, before))
        self.cast_map[entry, dtype] = made
        if before is not None:
            self.cast_map[made, before] = entry
        return made

    def _loses_name(self, known: Entry, origin: Entry, dtype: DType) -> bool:
        """Whether handing on ``known`` as the graph output ``origin`` would give that another name."""
        if self.head_dtypes.get(origin) is not dtype:
            return False
        return self.builder.node(known.node).name != self.names[origin]

    def _cast_name(self, entry: Entry, origin: Entry, dtype: DType) -> str:
        if self.head_dtypes.get(origin) is dtype:
            return self.names[origin]
        name = self.builder.node(entry.node).name
        if self.builder.node(entry.node).num_outputs > 1:
            name = f"{name}_{entry.output}"
        return self.builder.free_name(f"{name}_{AMP_CAST}_{dtype}")

    def _needs_multicast(self, node: Node, inputs: Sequence[Entry], decision: Decision) -> bool:
        """Whether the inputs must share a dtype that is known only at run time.

        Where all of them are needed in one dtype, casting each to it is as good and can be shared; of an FP16
        input beside an unknown one nobody can say which dtype both have.
        """
        facts = FACTS.of(node.op, node.attrs)
        if facts is None:
            return False
        sharing = [number for number in range(len(inputs)) if facts.role(number, node.attrs).shares_dtype]
        needs = {decision.inputs[number] for number in sharing} - {None}
        return len(needs) > 1 and any(self._dtype(inputs[number]) is None for number in sharing)

    def _multicast(self, node: Node, inputs: Sequence[Entry], decision: Decision) -> list[Entry]:
        """Let MXNet bring the inputs that share a dtype to the widest one when it knows them."""
        facts = FACTS.of(node.op, node.attrs)
        assert facts is not None  # asked only for operators with facts
        inputs = [
            entry if need is None or self._dtype(entry) is None else self._cast(entry, need, origin)
            for entry, need, origin in zip(inputs, decision.inputs, node.inputs)
        ]
        sharing = [number for number in range(len(inputs)) if facts.role(number, node.attrs).shares_dtype]
        name = self.builder.free_name(f"{node.name}_{AMP_MULTICAST}")
        widest = self._add(
            multicast_node(name, [inputs[number] for number in sharing]), (None,) * len(sharing)
        )
        self.changed = True
        result = list(inputs)
        for output, number in enumerate(sharing):
            result[number] = Entry(widest, output)
        return result

    # ------------------------------------------------------------------ output names

    def _outputs_to_cast_back(self) -> dict[int, str]:
        """Return the nodes of which a graph output must be cast, with their new names."""
        renamed: dict[int, str] = {}
        for head, wanted in zip(self.graph.heads, self.plan.heads):
            decision = self.plan.decisions[head.node]
            if decision is None or wanted is None or head in self.head_dtypes or head not in self.names:
                continue
            produced = decision.outputs[head.output]
            is_cast = produced in CASTABLE if produced is not None else wanted is not DType.FLOAT32
            if is_cast and produced is not wanted:
                self.head_dtypes[head] = wanted
                if head.node not in renamed:
                    name = self.graph.nodes[head.node].name
                    suffix = "uncast" if produced is None else produced.label
                    renamed[head.node] = self.builder.free_name(f"{name}_{suffix}")
        return renamed


def _all_names(graph: Graph) -> set[str]:
    return {node.name for node in graph.nodes}
