"""What a saved model is: which precision every node runs in, its casts and its sizes.

A pair of files holds no report, so this reads the graph itself: dtype inference over the operator facts,
from the dtypes that the parameters are stored in. It works for every model, converted by mxamp or not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Collection, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.errors import OperatorError
from mxamp.graph.control_flow import body_inputs, is_control_flow
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.graph.infer import EntryDtypes, check_dtypes, infer_dtypes, variable_dtypes
from mxamp.graph.library_operators import emulated_formats, needs_operator_library
from mxamp.graph.output_names import output_names
from mxamp.ops import FACTS
from mxamp.ops.casts import AMP_MULTICAST
from mxamp.params.check import check_params
from mxamp.params.parameter import Parameter

FORMAT_VERSION = 1

UNKNOWN = "unknown"
"""The dtype of what cannot be known before run time."""


@dataclass(frozen=True)
class NodeInspection:
    """One operator node that is not a cast. Dtypes are names; ``"unknown"`` where only run time can tell.

    Attributes
    ----------
    name
        Its name; ``loop/name`` inside the body of a control-flow operator.
    op
        Its operator.
    compute
        The dtype it computes in: that of the inputs that must share one.
    inputs, outputs
        The dtypes it reads, and hands on: its first output, and the others that are read.
    """

    name: str
    op: str
    compute: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class CastInspection:
    """One cast; of an ``amp_multicast`` each input that changes is one.

    Attributes
    ----------
    name, op
        The node.
    entry
        What it casts.
    direction
        ``"down"`` to low precision, ``"up"`` from it, ``"none"`` where nothing changes, ``"other"`` between
        integers and floats, or where the dtype is known at run time alone.
    from_dtype, to_dtype
        The dtypes.
    consumers
        Names of the nodes that read the result; ``"(output)"`` for a graph output.
    """

    name: str
    op: str
    entry: str
    direction: str
    from_dtype: str
    to_dtype: str
    consumers: tuple[str, ...]


@dataclass(frozen=True)
class StoredTotal:
    """Parameters that are stored in one dtype.

    Attributes
    ----------
    arrays
        How many there are.
    elements
        How many numbers they hold.
    bytes
        Their size.
    """

    arrays: int
    elements: int
    bytes: int


@dataclass(frozen=True)
class Inspection:
    """What a model is.

    Attributes
    ----------
    nodes
        Every operator node that is not a cast, in graph order.
    casts
        Every cast, in graph order.
    parameters
        Dtype -> what is stored in it.
    inputs, outputs
        Name -> dtype.
    emulates
        Formats that the model emulates in float32 -> how many values it rounds to them.
    needs_library
        Whether it holds operators of mxamp's library, which stock MXNet does not know.
    """

    nodes: tuple[NodeInspection, ...]
    casts: tuple[CastInspection, ...]
    parameters: Mapping[str, StoredTotal]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    emulates: Mapping[str, int] = field(default_factory=dict)
    needs_library: bool = False

    @property
    def low_nodes(self) -> int:
        """How many nodes compute in a 16-bit floating-point dtype."""
        return sum(node.compute in ("float16", "bfloat16") for node in self.nodes)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters."""
        return sum(total.bytes for total in self.parameters.values())

    def operators(self) -> Mapping[str, Mapping[str, int]]:
        """Return operator -> compute dtype -> number of nodes, the most frequent operator first."""
        counts: dict[str, Counter[str]] = {}
        for node in self.nodes:
            counts.setdefault(node.op, Counter())[node.compute] += 1
        ordered = sorted(counts.items(), key=lambda item: (-sum(item[1].values()), item[0]))
        return {op: dict(counter) for op, counter in ordered}

    def to_mapping(self) -> dict[str, Any]:
        """Return the inspection as plain data for JSON."""
        return {"format": FORMAT_VERSION, **asdict(self), "operators": self.operators()}


def inspect_model(
    graph: Graph, params: Mapping[str, Parameter], *, inputs: Collection[str] = ()
) -> Inspection:
    """Find out what a model is.

    Parameters
    ----------
    graph
        The graph.
    params
        Parameters and auxiliary states by name; only shapes and dtypes are read.
    inputs
        Variables that are known to be inputs, whatever they look like.

    Raises
    ------
    ParamsError
        When a parameter is missing or has the wrong shape: the files belong to different models.
    """
    check_params(graph, params, inputs=inputs)
    variables = variable_dtypes(graph, {name: parameter.dtype for name, parameter in params.items()})
    dtypes = infer_dtypes(graph, variables)
    nodes: list[NodeInspection] = []
    casts: list[CastInspection] = []
    _inspect_graph(graph, dtypes, "", nodes, casts)
    stored: dict[str, StoredTotal] = {}
    for parameter in params.values():
        elements = 1
        for size in parameter.shape:
            elements *= size
        before = stored.get(parameter.dtype.label, StoredTotal(0, 0, 0))
        stored[parameter.dtype.label] = StoredTotal(
            before.arrays + 1, before.elements + elements, before.bytes + elements * parameter.dtype.itemsize
        )
    heads = [_label(dtypes[head.node][head.output]) for head in graph.heads]
    return Inspection(
        nodes=tuple(nodes),
        casts=tuple(casts),
        parameters=stored,
        inputs={name: variables[name].label for name in graph.variables if name not in params},
        outputs=dict(zip(output_names(graph), heads)),
        emulates=emulated_formats(graph),
        needs_library=needs_operator_library(graph),
    )


def lost_casts(graph: Graph, params: Mapping[str, Parameter]) -> str | None:
    """Say how to repair a model that was saved without its casts; None where nothing speaks for that.

    ``Symbol.save``, ``save_checkpoint`` and ``HybridBlock.export`` drop them by default. What is left has
    16-bit parameters that meet FP32 values, and MXNet refuses to bind it.

    Parameters
    ----------
    graph
        The graph.
    params
        Parameters and auxiliary states by name; only dtypes are read.
    """
    stored = {name: parameter.dtype for name, parameter in params.items()}
    if not any(dtype.is_low_precision for dtype in stored.values()):
        return None
    try:
        check_dtypes(graph, infer_dtypes(graph, variable_dtypes(graph, stored)))
    except OperatorError as error:
        return (
            f"The model cannot run: {error} That is what is left when a mixed-precision model is saved "
            "without its casts, as Symbol.save, save_checkpoint, Module.save_checkpoint and "
            "HybridBlock.export do by default. The parameters are whole, and only the symbol has to be "
            "written again: convert the FP32 model as before and save it with Model.save or mxamp convert, "
            "or save the symbol that is still in memory with sym.save(file, remove_amp_cast=False)."
        )
    return None


def _label(dtype: DType | None) -> str:
    return UNKNOWN if dtype is None else dtype.label


def _inspect_graph(
    graph: Graph,
    dtypes: EntryDtypes,
    prefix: str,
    nodes: list[NodeInspection],
    casts: list[CastInspection],
) -> None:
    heads = set(graph.heads)
    for position, node in enumerate(graph.nodes):
        if node.is_variable:
            continue
        inputs = [dtypes[entry.node][entry.output] for entry in node.inputs]
        if node.op == AMP_MULTICAST or FACTS.is_cast(node.op):
            casts.extend(_casts_of(graph, position, prefix, inputs, dtypes[position], heads))
            continue
        nodes.append(
            NodeInspection(
                name=prefix + node.name,
                op=node.op,
                compute=_label(compute_dtype(node, inputs, dtypes[position])),
                inputs=tuple([_label(dtype) for dtype in inputs]),
                outputs=tuple(
                    [
                        _label(dtype)
                        for number, dtype in enumerate(dtypes[position])
                        # Hidden outputs (BatchNorm's statistics) would only confuse where nobody reads them.
                        if number == 0 or number in graph.uses[position] or Entry(position, number) in heads
                    ]
                ),
            )
        )
        if is_control_flow(node):
            for number, body in enumerate(node.subgraphs):
                variables = {
                    name: dtype
                    for name, place in body_inputs(node, number).items()
                    for dtype in [inputs[place]]
                    if dtype is not None
                }
                inner = infer_dtypes(body, variables)
                _inspect_graph(body, inner, f"{prefix}{node.name}/", nodes, casts)


def compute_dtype(
    node: Node, inputs: Sequence[DType | None], outputs: Sequence[DType | None]
) -> DType | None:
    """Return the dtype that a node computes in, as far as dtypes tell.

    Parameters
    ----------
    node
        The node.
    inputs, outputs
        The dtypes of what it reads and hands on.
    """
    facts = FACTS.of(node.op, node.attrs)
    if facts is not None:
        for number, dtype in enumerate(inputs):
            if facts.role(number, node.attrs).shares_dtype and dtype is not None:
                return dtype
    # Without data inputs (an initialiser, an operator without facts) what it hands on says most.
    return outputs[0] if outputs else None


def _casts_of(
    graph: Graph,
    position: int,
    prefix: str,
    inputs: Sequence[DType | None],
    outputs: Sequence[DType | None],
    heads: set[Entry],
) -> list[CastInspection]:
    node = graph.nodes[position]
    found = []
    for number, (entry, source, result) in enumerate(zip(node.inputs, inputs, outputs)):
        if node.op == AMP_MULTICAST and source is result and source is not None:
            continue
        consumers = [prefix + graph.nodes[use.node].name for use in graph.uses_of(Entry(position, number))]
        if Entry(position, number) in heads:
            consumers.append("(output)")
        found.append(
            CastInspection(
                name=prefix + node.name,
                op=node.op,
                entry=prefix + graph.describe(entry),
                direction=_direction(source, result),
                from_dtype=_label(source),
                to_dtype=_label(result),
                consumers=tuple(dict.fromkeys(consumers)),
            )
        )
    return found


def _direction(source: DType | None, result: DType | None) -> str:
    if source is None or result is None or not (source.is_float and result.is_float):
        return "other"
    if source is result:
        return "none"
    return (
        "down"
        if result.itemsize < source.itemsize
        else "up"
        if result.itemsize > source.itemsize
        else "other"
    )
