"""Hold emulated bfloat16 against real bfloat16 one layer at a time, both given the same inputs.

End to end the two drift apart: where float32 sums were added up in another order, a value now and then falls
on the other side of a rounding boundary, and from there on the two round differently. Two builds of the
*real* bfloat16 do the same to each other. So every layer (a chain that the machine fuses, or a single node)
is cut out, given what the real model gave it, and run both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.compare.metrics import distance
from mxamp.dtypes import DType
from mxamp.graph import VARIABLE, Entry, Graph, Node
from mxamp.graph.infer import EntryDtypes, infer_dtypes, variable_dtypes
from mxamp.model import Model
from mxamp.ops import FACTS
from mxamp.ops.rounding import is_rounding
from mxamp.passes import EmulateLowPrecision, Emulation, State, run_passes
from mxamp.policy import Policy
from mxamp.runtime.entries import run_entries
from mxamp.runtime.executor import run_outputs
from mxamp.targets import Target

__all__ = ["LayerAgreement", "LayerSummary", "layer_agreements", "summarize"]


@dataclass(frozen=True)
class LayerAgreement:
    """One layer, run both ways on the same inputs.

    Attributes
    ----------
    name
        Its last node.
    operators
        Its operators, in order.
    emulated
        Relative L2 error of the emulated result against the real one.
    unrounded
        The same of the float32 result without rounding: what emulation accounts for.
    """

    name: str
    operators: tuple[str, ...]
    emulated: float
    unrounded: float


@dataclass(frozen=True)
class LayerSummary:
    """The errors of many layers.

    Attributes
    ----------
    count
        How many there are.
    median, largest
        Of the errors when emulated.
    unrounded
        The median error without rounding.
    """

    count: int
    median: float
    largest: float
    unrounded: float


@dataclass(frozen=True)
class _Cut:
    """A graph whose layers read variables in place of each other."""

    graph: Graph
    variables: Mapping[str, DType]
    values: Mapping[str, Entry]
    """Variable -> the entry of the whole graph whose values it takes."""
    layers: Sequence[tuple[str, tuple[str, ...]]]


def layer_agreements(
    converted: Model, data: Mapping[str, NDArray[Any]], target: Target, *, fusion: bool
) -> list[LayerAgreement]:
    """Return how far emulation is from the real thing, for every layer that rounds its result.

    Parameters
    ----------
    converted
        The converted model.
    data
        One batch.
    target
        The machine it was converted for, and runs on.
    fusion
        Whether layers are the chains that the machine fuses, or single nodes.
    """
    stored = {name: value.dtype for name, value in {**converted.arg_params, **converted.aux_params}.items()}
    variables = variable_dtypes(converted.graph, stored)
    dtypes = infer_dtypes(converted.graph, variables)
    emulation = Emulation(fusion=fusion)
    step = EmulateLowPrecision(variables, target, emulation=emulation)
    cut = _cut(converted.graph, dtypes, step.chains_in(converted.graph, dtypes), variables)
    fed = {entry: name for name, entry in cut.values.items()}
    read = run_entries(converted, data, list(fed))
    given = {fed[entry]: values for entry, values in read}

    params = (converted.arg_params, converted.aux_params)
    real = Model(cut.graph, *(_used(group, cut.graph) for group in params))
    start = State.of(cut.graph, {}, Policy.default(target.dtype), target)
    expressed = run_passes([EmulateLowPrecision(cut.variables, target, emulation=emulation)], start).graph
    wide = [
        {
            name: value.cast(DType.FLOAT32) if value.dtype.is_low_precision else value
            for name, value in group.items()
        }
        for group in (real.arg_params, real.aux_params)
    ]
    exact = Graph(
        tuple(
            node._replace(op="_copy", attrs={}, subgraphs=()) if is_rounding(node.op) else node
            for node in expressed.nodes
        ),
        expressed.heads,
        expressed.attrs,
    )
    results = [
        run_outputs(real, given, fusion=fusion),
        run_outputs(Model(expressed, *wide), given, fusion=fusion),
        run_outputs(Model(exact, *wide), given, fusion=False),
    ]
    return [
        LayerAgreement(
            name, operators, distance(truth, emulated).relative_l2, distance(truth, unrounded).relative_l2
        )
        for (name, operators), truth, emulated, unrounded in zip(cut.layers, *results)
    ]


def _used(group: Mapping[str, Any], graph: Graph) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name in graph.variables}


def _cut(
    graph: Graph, dtypes: EntryDtypes, chains: Sequence[tuple[int, ...]], variables: Mapping[str, DType]
) -> _Cut:
    """Cut a graph into layers: every low node or chain reads parameters, and variables for all else."""
    chain_of = {position: chain for chain in chains for position in chain}
    nodes: list[Node] = []
    place: dict[int, int] = {}
    own: dict[str, DType] = {}
    values: dict[str, Entry] = {}
    cuts: dict[Entry, int] = {}
    heads: list[Entry] = []
    layers: list[tuple[str, tuple[str, ...]]] = []
    for position, node in enumerate(graph.nodes):
        if node.is_variable or dtypes[position][0] is not DType.BFLOAT16 or node.op.startswith("amp_"):
            continue
        chain = chain_of.get(position, (position,))
        inputs = []
        for entry in node.inputs:
            source = graph.nodes[entry.node]
            if entry.node in chain:
                inputs.append(Entry(place[entry.node], entry.output))
                continue
            if source.is_variable:
                if entry.node not in place:
                    place[entry.node] = len(nodes)
                    nodes.append(source)
                    own[source.name] = variables[source.name]
                inputs.append(Entry(place[entry.node]))
                continue
            if entry not in cuts:
                dtype = dtypes[entry.node][entry.output] or DType.FLOAT32
                name = f"cut{len(cuts)}"
                cuts[entry] = len(nodes)
                nodes.append(Node(VARIABLE, name, {"__dtype__": str(dtype.value)}))
                own[name], values[name] = dtype, entry
            inputs.append(Entry(cuts[entry]))
        place[position] = len(nodes)
        nodes.append(node._replace(inputs=tuple(inputs), control_deps=()))
        if position == chain[-1]:
            # float32 outputs, as any converted model's
            back = Node("amp_cast", f"{node.name}_out", {"dtype": "float32"}, (Entry(place[position]),))
            heads.append(Entry(len(nodes)))
            nodes.append(back)
            operators = tuple(FACTS.canonical(graph.nodes[member].op) for member in chain)
            layers.append((node.name, operators))
    return _Cut(Graph(tuple(nodes), tuple(heads), graph.attrs), own, values, layers)


def summarize(layers: Sequence[LayerAgreement]) -> LayerSummary:
    """Return the errors of many layers in a few numbers; layers that round nothing are not counted."""
    rounding = [layer for layer in layers if layer.unrounded > 0]
    return LayerSummary(
        count=len(rounding),
        median=float(np.median([layer.emulated for layer in rounding])),
        largest=max(layer.emulated for layer in rounding),
        unrounded=float(np.median([layer.unrounded for layer in rounding])),
    )
