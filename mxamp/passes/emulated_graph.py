"""One graph or body in float32, with a rounding where it would store a value in low precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.graph.builder import GraphBuilder
from mxamp.graph.control_flow import body_inputs, is_control_flow
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.graph.infer import certain_dtypes, infer_dtypes
from mxamp.graph.node_map import NodeMap
from mxamp.graph.output_names import output_name
from mxamp.ops import FACTS
from mxamp.ops.casts import AMP_CAST, AMP_MULTICAST, CASTABLE
from mxamp.ops.grid import keeps_grid, without_low_attributes
from mxamp.ops.rounding import ROUND, ROUND_BOTH_WAYS, is_rounding, round_node_name

if TYPE_CHECKING:
    from mxamp.passes.emulate import EmulateLowPrecision


@dataclass(frozen=True)
class InsertedRound:
    """One rounding the pass put in.

    Attributes
    ----------
    name
        Its name; ``loop/name`` inside a control-flow body.
    node
        The name of the node whose result it rounds, in the converted graph; for a cast the cast's own.
    dtype
        What it rounds to.
    """

    name: str
    node: str
    dtype: DType


_SIZED_BY_VALUES = frozenset(
    {"_cond", "_while_loop", "_contrib_boolean_mask", "_npi_boolean_mask", "_npi_unique", "_npx_nonzero"}
)
"""Operators whose results have no shape before they run."""


def _forward_only(graph: Graph) -> Graph:
    """Return the graph with the stateless rounding behind what has a shape only when it runs.

    MXNet makes the state of an operator from its shapes when the graph is bound, and cannot there.
    """
    unsized: set[int] = set()
    nodes = list(graph.nodes)
    for position, node in enumerate(nodes):
        if node.is_variable:
            continue
        if any(entry.node in unsized for entry in node.inputs):
            unsized.add(position)
            if node.op == ROUND_BOTH_WAYS:
                nodes[position] = node._replace(op=ROUND, subgraphs=())
        elif FACTS.canonical(node.op) in _SIZED_BY_VALUES:
            unsized.add(position)
    return replace(graph, nodes=tuple(nodes)) if unsized else graph


def widened(dtype: DType) -> DType:
    """Return the dtype in which the values of one are expressed."""
    return DType.FLOAT32 if dtype.is_low_precision else dtype


class Expression:
    """One graph or body, expressed in float32."""

    def __init__(
        self,
        rules: EmulateLowPrecision,
        graph: Graph,
        variables: Mapping[str, DType],
        *,
        undeclared: Sequence[str],
        path: str = "",
        named_outputs: bool = True,
    ) -> None:
        self.rules = rules
        self.graph = graph
        self.variables = variables
        self.dtypes = infer_dtypes(graph, variables)
        self.certain = certain_dtypes(graph, variables, undeclared)
        self.path = path
        self.named_outputs = named_outputs
        self.builder = GraphBuilder(node.name for node in graph.nodes)
        self.entries: list[list[Entry]] = []
        """For every node, where each of its outputs is found in the new graph."""
        self.origins: list[int] = []
        self.rounded: dict[tuple[Entry, DType], Entry] = {}
        self.rounds: list[InsertedRound] = []
        self.chains: list[tuple[str, ...]] = []
        self.changed = False
        self.heads = frozenset(graph.heads)
        self.inner: set[int] = set()
        self.names = self._names_of_outputs()

    # ------------------------------------------------------------------ names

    def _names_of_outputs(self) -> dict[int, str]:
        """Return the nodes whose rounded first output is a graph output, with what must be called so.

        A converted graph calls an output's cast back by the output's name, and what it casts by another. The
        cast vanishes, and the rounding takes its name. An output that is low itself is called as its node.
        """
        if not self.named_outputs:
            return {}
        names: dict[int, str] = {}
        for position, output in self.graph.heads:
            node = self.graph.nodes[position]
            if self._is_cast_back(position):
                source = node.inputs[0]
                alone = not self.graph.nodes[source.node].is_variable and source not in self.heads
                if output == 0 and source.output == 0 and alone and node.name not in names.values():
                    names.setdefault(source.node, node.name)
            elif output == 0 and not node.is_variable and self._is_low(Entry(position)):
                names.setdefault(position, node.name)
        return names

    def _is_cast_back(self, position: int) -> bool:
        """Whether a node widens a low value to float32, which changes nothing."""
        node = self.graph.nodes[position]
        if not FACTS.is_cast(node.op):
            return False
        source = self._dtype(node.inputs[0])
        return source is not None and source.is_low_precision and self.dtypes[position][0] is DType.FLOAT32

    # ------------------------------------------------------------------ the walk

    def express(self) -> Graph:
        """Walk the graph and return what it is in float32."""
        # MXNet fuses the graph it binds, and not the bodies in it.
        chains = () if self.path else self.rules.chains_in(self.graph, self.dtypes)
        for chain in chains:
            self.inner.update(chain[:-1])
            self.chains.append(tuple(self.graph.nodes[position].name for position in chain))
        for position, node in enumerate(self.graph.nodes):
            if node.is_variable:
                self.entries.append([self._variable(position, node)])
            elif FACTS.is_cast(node.op):
                self.entries.append([self._cast(position, node)])
            elif node.op == AMP_MULTICAST:
                self.entries.append(self._multicast(position, node))
            else:
                self.entries.append(self._operator(position, node))
            self._belongs_to(position)
        heads = []
        for head in self.graph.heads:
            heads.append(self._head(head))
            self._belongs_to(head.node)
        return _forward_only(self.builder.build(heads, self.graph.attrs, self.graph.head_versions))

    @property
    def nodes(self) -> NodeMap:
        """Where the nodes went."""
        return NodeMap([found[0].node for found in self.entries], self.origins)

    def _belongs_to(self, position: int) -> None:
        """Note of what was added since the last call that it has the values of a node, or is made of them."""
        self.origins += [position] * (len(self.builder) - len(self.origins))

    def _dtype(self, entry: Entry) -> DType | None:
        return self.dtypes[entry.node][entry.output]

    def _certain(self, entry: Entry) -> DType | None:
        return self.certain[entry.node][entry.output]

    def _is_low(self, entry: Entry) -> bool:
        dtype = self._dtype(entry)
        return dtype is not None and dtype.is_low_precision

    def _entry(self, old: Entry) -> Entry:
        return self.entries[old.node][old.output]

    def _variable(self, position: int, node: Node) -> Entry:
        dtype = self.dtypes[position][0]
        if dtype is None or not dtype.is_low_precision:
            return Entry(self.builder.add(node))
        self.changed = True
        if "__dtype__" in node.attrs:
            node = node._replace(attrs={**node.attrs, "__dtype__": str(DType.FLOAT32.value)})
        entry = Entry(self.builder.add(node))
        if self.path or node.name not in self.rules.inputs or position in {head.node for head in self.heads}:
            return entry  # a parameter is on the grid, and so is what enters a body
        return self._round(entry, dtype, self._free(round_node_name(node.name, dtype.label)), node.name)

    # ------------------------------------------------------------------ casts

    def _cast(self, position: int, node: Node) -> Entry:
        source, wanted = node.inputs[0], self.dtypes[position][0]
        # A cast of the user's may be there for images of uint8; mxamp's own cast nothing but floats.
        before = self._dtype(source) if node.op == AMP_CAST else self._certain(source)
        if self._is_cast_back(position) or (before is wanted and wanted is not None and wanted in CASTABLE):
            self.changed = True
            return self._entry(source)
        if wanted is None or not wanted.is_low_precision:
            return Entry(self.builder.add(self._moved(node)))
        entry = self._entry(source)
        if before not in CASTABLE:  # integers, float64, and what an operator without facts hands on
            widened = self._moved(node)._replace(
                name=self.builder.free_name(f"{node.name}_float32"),
                attrs={**node.attrs, "dtype": DType.FLOAT32.label},
            )
            entry = Entry(self.builder.add(widened))
        return self._round(entry, wanted, node.name, node.name)

    def _multicast(self, position: int, node: Node) -> list[Entry]:
        """Round the inputs that it makes narrower, as it does with ``cast_narrow``."""
        inputs = []
        for source, wanted in zip(node.inputs, self.dtypes[position]):
            entry, before = self._entry(source), self._dtype(source)
            if wanted is not None and wanted.is_low_precision and before is not wanted:
                name = round_node_name(self.graph.nodes[source.node].name, wanted.label)
                entry = self._round(entry, wanted, self._free(name), node.name)
            inputs.append(entry)
        new = self.builder.add(self._moved(node, inputs))
        return [Entry(new, output) for output in range(node.num_outputs)]

    # ------------------------------------------------------------------ operators

    def _operator(self, position: int, node: Node) -> list[Entry]:
        attrs = without_low_attributes(FACTS.canonical(node.op), node.attrs, self._input_dtypes(node))
        subgraphs = self._bodies(node) if is_control_flow(node) else node.subgraphs
        if attrs is not node.attrs:
            self.changed = True
        rounded = self._outputs_to_round(position, node)
        name = self.names.get(position)
        moved = self._moved(node)._replace(attrs=attrs, subgraphs=subgraphs)
        if name is not None and 0 not in rounded:
            moved = moved._replace(name=name)
        elif name == node.name:  # the rounding is called so now
            moved = moved._replace(name=self._free(f"{name}_{self.dtypes[position][0]}"))
        new = self.builder.add(moved)
        found = [Entry(new, output) for output in range(node.num_outputs)]
        for output in rounded:
            dtype = self.dtypes[position][output]
            assert dtype is not None  # only low outputs are rounded
            called = name if name is not None and output == 0 else None
            if called is None:
                suffix = "" if node.num_outputs == 1 or output == 0 else f"_{output}"
                called = self._free(round_node_name(f"{node.name}{suffix}", dtype.label))
            found[output] = self._round(found[output], dtype, called, node.name)
        return found

    def _outputs_to_round(self, position: int, node: Node) -> list[int]:
        if position in self.inner or is_control_flow(node):
            return []  # what leaves a body was rounded inside
        facts = FACTS.of(node.op, node.attrs)
        if facts is None:
            return []
        read = self.graph.uses[position]
        low = [
            output
            for output in range(node.num_outputs)
            if self._is_low(Entry(position, output))
            and (output in read or Entry(position, output) in self.heads)
        ]
        if not low:
            return []
        # What comes from inside a chain is not on the grid yet.
        inputs = [None if entry.node in self.inner else self._dtype(entry) for entry in node.inputs]
        return [
            output
            for output in low
            if not keeps_grid(facts, node.attrs, inputs, self.dtypes[position][output], output)
        ]

    def _input_dtypes(self, node: Node) -> list[DType | None]:
        return [self._dtype(entry) for entry in node.inputs]

    def _bodies(self, node: Node) -> tuple[Graph, ...]:
        bodies = []
        for number, body in enumerate(node.subgraphs):
            variables = {
                name: dtype
                for name, place in body_inputs(node, number).items()
                for dtype in [self._dtype(node.inputs[place])]
                if dtype is not None
            }
            undeclared = [
                name
                for name, place in body_inputs(node, number).items()
                if name in variables and self._certain(node.inputs[place]) is None
            ]
            inner = Expression(
                self.rules,
                body,
                variables,
                undeclared=undeclared,
                path=f"{self.path}{node.name}/",
                named_outputs=False,
            )
            after = inner.express()
            self.changed = self.changed or inner.changed
            self.rounds.extend(inner.rounds)
            bodies.append(after if inner.changed else body)
        return tuple(bodies)

    def _moved(self, node: Node, inputs: Sequence[Entry] | None = None) -> Node:
        """Return a node that reads its inputs where they are in the new graph."""
        if inputs is None:
            inputs = [self._entry(entry) for entry in node.inputs]
        deps = tuple(self.entries[dependency][0].node for dependency in node.control_deps)
        return node._replace(inputs=tuple(inputs), control_deps=deps)

    # ------------------------------------------------------------------ rounding

    def _round(self, entry: Entry, dtype: DType, name: str, origin: str) -> Entry:
        known = self.rounded.get((entry, dtype))
        if known is not None and name not in self.names.values():
            return known
        self.changed = True
        made = Entry(self.builder.add(self.rules.round_node(name, entry, dtype)))
        self.rounded[entry, dtype] = made
        self.rounds.append(InsertedRound(self.path + name, self.path + origin, dtype))
        return made

    def _free(self, wanted: str) -> str:
        return self.builder.free_name(wanted)

    # ------------------------------------------------------------------ outputs

    def _head(self, head: Entry) -> Entry:
        """Return where a graph output is found, under the name it has."""
        entry = self._entry(head)
        if not self.named_outputs:
            return entry
        wanted = output_name(self.graph, head)
        node = self.builder.node(entry.node)
        facts = FACTS.of(node.op, node.attrs)
        if node.is_variable:
            found = node.name
        elif facts is not None and not is_rounding(node.op):
            found = f"{node.name}_{facts.output_name(entry.output, node.num_outputs)}"
        else:
            found = f"{node.name}_output"
        if found == wanted or not wanted.endswith("_output"):
            return entry
        return Entry(self.builder.add(Node("_copy", wanted[: -len("_output")], {}, (entry,))))
