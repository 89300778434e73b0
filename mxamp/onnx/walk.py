"""The walk over the graph: every node by its mapping, in order."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.errors import DataError, ExportError, MxampError, UnknownNameError, nearest_names
from mxamp.graph.control_flow import graphs_within
from mxamp.graph.graph import Entry, Graph
from mxamp.graph.infer import variable_dtypes
from mxamp.graph.labels import label_names
from mxamp.graph.output_names import output_name, output_names
from mxamp.onnx import tables
from mxamp.onnx.batch import batch_axes, with_sizes
from mxamp.onnx.call import Call
from mxamp.onnx.mapping import OLDEST_OPSET, OnnxMapping, mapping_of
from mxamp.onnx.package import import_onnx
from mxamp.onnx.runtime_gaps import NO_GAPS, RuntimeGaps
from mxamp.onnx.tensor import Shape, Tensor
from mxamp.onnx.writer import Writer, bodies_of
from mxamp.ops.attributes import integers
from mxamp.ops.facts_table import operator_label
from mxamp.params.parameter import Parameter

assert tables  # importing them fills the table

DEFAULT_OPSET = 17
"""What is written unless a model needs a newer one: ONNX Runtime reads it from 1.12 (2022) on."""

NEWEST_OPSET = 22
"""The newest opset that the mappings were tested at."""

_BFLOAT16_OPSET = 22
"""The first at which Conv, pooling and HardSigmoid take bfloat16."""

_NAMED_AT_MOST = 6


@dataclass(frozen=True)
class OnnxGraph:
    """An ONNX graph, whose parameters are not read yet.

    Attributes
    ----------
    writer
        Nodes, constants and the parameters that are read.
    nodes
        ``NodeProto`` of everything that the outputs need, in order.
    inputs, outputs
        ``ValueInfoProto`` of the graph's inputs and outputs.
    opset
        The version of ONNX's operators.
    opset_reason
        Why it is newer than the default; empty where it is not.
    parameters, constants
        What the nodes read.
    computed_by
        Name of a tensor -> the name of MXNet's node that computes it, or helps to.
    """

    writer: Writer
    nodes: Sequence[Any]
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    opset: int
    opset_reason: str
    parameters: Mapping[str, Parameter]
    constants: Mapping[str, Any]
    computed_by: Mapping[str, str]


def input_names(graph: Graph, params: Mapping[str, Parameter]) -> list[str]:
    """Return the names of the inputs in MXNet's order, without labels that only training reads."""
    labels = label_names(graph, params)
    names = [graph.nodes[position].name for position in graph.input_order()]
    return [name for name in names if name not in params and name not in labels]


def write_graph(
    graph: Graph,
    params: Mapping[str, Parameter],
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    opset: int | None = None,
    dynamic_batch: bool = False,
    gaps: RuntimeGaps = NO_GAPS,
) -> OnnxGraph:
    """Write a graph with ONNX's operators.

    Parameters
    ----------
    graph
        The graph, casts included.
    params
        Parameters and auxiliary states by name.
    input_shapes
        Input name -> shape; where one is left out, what the variable's ``__shape__`` says.
    opset
        The version of ONNX's operators; by default 17, or the first that the model can be written with.
    dynamic_batch
        Whether the batch is left open; see :func:`mxamp.onnx.batch.batch_axes`.
    gaps
        What the runtime that is to read the file lacks, so that it is written otherwise.

    Raises
    ------
    ExportError
        When an operator has no mapping, the opset is too old, or the model takes no other batch.
    DataError, UnknownNameError
        When the shape of an input is missing or does not fit, or one is given for what is no input.
    """
    names = input_names(graph, params)
    shapes = _shapes(graph, names, params, {} if input_shapes is None else input_shapes)
    known = {name: tuple(value.shape) for name, value in params.items()}
    candidates = batch_axes(graph, shapes) if dynamic_batch else {}
    graph, open_axes = with_sizes(graph, shapes, known, candidates)
    dtypes = variable_dtypes(graph, {name: value.dtype for name, value in params.items()})
    _check_mappings(graph)
    chosen, reason = _opset(graph, dtypes, opset)
    writer = Writer(chosen, gaps=gaps)
    for name in graph.variables:
        writer.reserve(name)
    heads = _unique(output_names(graph), set(graph.variables))
    for name in heads:
        writer.reserve(name)
    tensors: dict[Entry, Tensor] = {}
    for name, position in graph.variables.items():
        if name in params:
            tensors[Entry(position)] = writer.parameter(name, params[name])
        elif name in shapes:
            shape: Shape = shapes[name]
            axis = open_axes.get(name)
            if axis is None:
                tensors[Entry(position)] = writer.input(name, dtypes[name], shape)
                continue
            shape = (*shape[: axis.number], None, *shape[axis.number + 1 :])
            symbols = [axis.symbol] * len(shape)
            tensors[Entry(position)] = writer.input(name, dtypes[name], shape, symbols)
    _write_nodes(graph, writer, tensors)
    outputs = _outputs(graph, writer, tensors, heads)
    nodes, read = _needed(writer.finished_nodes(), heads)
    return OnnxGraph(
        writer,
        nodes,
        [_value_info(writer, tensors[Entry(graph.variables[name])], name) for name in names],
        outputs,
        chosen,
        reason,
        {name: value for name, value in writer.parameters.items() if name in read},
        {name: value for name, value in writer.constants.items() if name in read},
        writer.computed_by(),
    )


def _write_nodes(graph: Graph, writer: Writer, tensors: dict[Entry, Tensor]) -> None:
    """Write every operator, and add what it computes to what is known: at first the variables.

    A variable that is not known is a label. Nothing reads it but what rounds it, and heads that leave it out.
    """
    labels: set[int] = set()
    for position, node in enumerate(graph.nodes):
        reads = [entry for entry in node.inputs if entry.node not in labels]
        if (node.is_variable and Entry(position) not in tensors) or (node.inputs and not reads):
            labels.add(position)
        if node.is_variable or position in labels:
            continue
        for entry in reads:
            if entry not in tensors:
                raise ExportError(
                    f"The mapping of {graph.nodes[entry.node]} writes no output {entry.output}, which {node} "
                    "reads. A mapping of your own can be registered: mxamp.register_onnx_mapping."
                )
        before = len(writer.nodes)
        mapping = mapping_of(node.op, node.attrs)
        assert mapping is not None  # checked at first
        call = Call(writer, node, [tensors[entry] for entry in reads], _write_body)
        written = [_with_axis(call, tensor) for tensor in _write(mapping, call)]
        fresh = {name for emitted in writer.nodes[before:] for name in emitted.output}
        writer.attribute(fresh, node.name)
        for number, tensor in enumerate(written):
            entry = Entry(position, number)
            tensors[entry] = tensor
            if tensor.name in fresh and not writer.is_renamed(tensor) and entry not in graph.heads:
                writer.rename(tensor, writer.unique(output_name(graph, entry)))


def _with_axis(call: Call, tensor: Tensor) -> Tensor:
    """Return one place of one axis where a classic operator makes one value of many, also in NumPy mode.

    (``ReduceAxesShapeImpl`` in src/operator/tensor/broadcast_reduce_op.h)
    """
    keeps = not call.inputs or any(read.shape == () for read in call.inputs)
    is_classic = not call.node.op.startswith(("_np", "Custom")) and not call.node.subgraphs
    if tensor.shape != () or keeps or not is_classic:
        return tensor
    return call.reshape(tensor, [1])


def _write_body(writer: Writer, body: Graph, given: Mapping[str, Tensor]) -> list[Tensor]:
    """Write the nodes of a body, whose variables are given, and return what it returns."""
    tensors = {Entry(position): given[name] for name, position in body.variables.items() if name in given}
    _write_nodes(body, writer, tensors)
    return [tensors[head] for head in body.heads]


def _write(mapping: OnnxMapping, call: Call) -> tuple[Tensor, ...]:
    try:
        written = mapping.write(call)
    except MxampError:
        raise
    except (KeyError, ValueError, IndexError, ZeroDivisionError, TypeError) as error:
        raise ExportError(
            f"{str(call.node)[0].upper()}{str(call.node)[1:]} cannot be written as ONNX: its attributes "
            f"{dict(call.node.attrs)!r:.200} do not fit what it reads ({type(error).__name__}: {error})."
        ) from error
    return (written,) if isinstance(written, Tensor) else tuple(written)


def _outputs(
    graph: Graph, writer: Writer, tensors: Mapping[Entry, Tensor], names: Sequence[str]
) -> list[Any]:
    """Give the outputs their names; what is an input, a constant or an output already is handed on."""
    computed = {name for node in writer.nodes for name in node.output}
    found = []
    for head, name in zip(graph.heads, names):
        tensor = tensors.get(head)
        if tensor is None:
            raise ExportError(f"The mapping of {graph.nodes[head.node]} writes no output {head.output}.")
        if tensor.name not in computed or writer.is_renamed(tensor):
            call = Call(writer, graph.nodes[head.node], [tensor])
            tensor = call.emit("Identity", tensor)
        writer.rename(tensor, name)
        found.append(_value_info(writer, tensor, name))
    return found


def _value_info(writer: Writer, tensor: Tensor, name: str) -> Any:
    if tensor.shape is None:
        raise ExportError(
            f"The shape of the output {name!r} is not known, and an ONNX file says the shapes of its "
            "outputs. A mapping of yours can state it: call.state_shape(tensor, shape)."
        )
    return import_onnx().helper.make_value_info(name, writer.type_of(tensor))


def _needed(nodes: Sequence[Any], outputs: Sequence[str]) -> tuple[list[Any], set[str]]:
    """Return the nodes that the outputs need, and the names of all that these read."""
    read, kept = set(outputs), []
    for node in reversed(nodes):
        if read.intersection(node.output):
            kept.append(node)
            read.update(_read_by(node))
    return kept[::-1], read


def _read_by(node: Any) -> set[str]:
    """Return the names that a node reads, those of its bodies from outside among them."""
    read = set(node.input)
    for body in bodies_of(node):
        inside = {value.name for value in body.output}
        known = {value.name for value in body.input}
        for part in body.node:
            inside |= _read_by(part)
            known.update(part.output)
        read |= inside - known
    return read


def _unique(names: Sequence[str], taken: set[str]) -> list[str]:
    """Return names of outputs that differ from each other and from the names of inputs."""
    found = []
    for name in names:
        candidate, number = name, 1
        while candidate in taken:
            candidate = f"{name}_{number}"
            number += 1
        taken.add(candidate)
        found.append(candidate)
    return found


def _check_mappings(graph: Graph) -> None:
    """Raise ExportError where a node, in a body too, has no mapping; name all that have none."""
    missing: dict[str, list[str]] = {}
    for part in graphs_within(graph):
        for node in part.nodes:
            if not node.is_variable and mapping_of(node.op, node.attrs) is None:
                missing.setdefault(operator_label(node.op, node.attrs), []).append(node.name)
    if missing:
        listed = []
        for op, names in missing.items():
            shown = ", ".join(repr(name) for name in names[:_NAMED_AT_MOST])
            more = f" and {len(names) - _NAMED_AT_MOST} more" if len(names) > _NAMED_AT_MOST else ""
            listed.append(f"{op} ({shown}{more})")
        raise ExportError(
            f"The ONNX exporter has no mapping for {'; '.join(listed)}. Register one with "
            "mxamp.register_onnx_mapping, which can also write a node of a domain of your own; "
            "docs/results/onnx-operators.md has the list of all that are there."
        )


def _opset(graph: Graph, dtypes: Mapping[str, DType], asked: int | None) -> tuple[int, str]:
    """Return the opset to write, and why it is not the default."""
    newest = min(NEWEST_OPSET, int(import_onnx().defs.onnx_opset_version()))
    needed, reason = OLDEST_OPSET, ""
    nodes = [node for part in graphs_within(graph) for node in part.nodes if not node.is_variable]
    for node in nodes:
        mapping = mapping_of(node.op, node.attrs)
        if mapping is not None and mapping.opset > needed:
            needed, reason = mapping.opset, f"{node} is written as {mapping.becomes}"
    if any(dtype is DType.BFLOAT16 for dtype in dtypes.values()) or any(
        node.attrs.get("dtype") == "bfloat16" for node in nodes
    ):
        needed, reason = _BFLOAT16_OPSET, "the model computes in bfloat16"
    if asked is not None:
        try:
            asked = operator.index(asked)
        except TypeError:
            raise ExportError(f"opset must be a number such as {DEFAULT_OPSET}, not {asked!r}.") from None
        if not OLDEST_OPSET <= asked <= newest:
            raise ExportError(
                f"opset must be from {OLDEST_OPSET} to {newest}, not {asked}: those are what the mappings, "
                "and the onnx that is installed, can write."
            )
        if asked < needed:
            raise ExportError(
                f"Opset {asked} is too old for this model: {reason}, which needs opset {needed}. Give "
                f"--opset {needed} (opset={needed}), or leave it out."
            )
        return asked, ""
    if needed > newest:
        raise ExportError(
            f"This model needs opset {needed}: {reason}. The onnx that is installed knows {newest}; install "
            "a newer one."
        )
    return (needed, reason) if needed > DEFAULT_OPSET else (DEFAULT_OPSET, "")


def _shapes(
    graph: Graph,
    names: Sequence[str],
    params: Mapping[str, Parameter],
    given: Mapping[str, Sequence[int]],
) -> dict[str, tuple[int, ...]]:
    if not isinstance(given, Mapping):
        raise DataError(
            "input_shapes must map input names to shapes, as in {'data': (1, 3, 224, 224)}, "
            f"not {given!r:.80}."
        )
    for name in given:
        if name not in names and name not in graph.variables:
            raise UnknownNameError(
                f"input_shapes names {name!r}, which is no input of the model.{nearest_names(name, names)} "
                f"The inputs are: {', '.join(names) or '(none)'}."
            )
        if name in params:
            raise UnknownNameError(
                f"input_shapes names {name!r}, which is a parameter, whose shape is known."
            )
    shapes: dict[str, tuple[int, ...]] = {}
    missing = []
    for name in names:
        stated = integers(graph.nodes[graph.variables[name]].attrs.get("__shape__", "()")) or ()
        try:
            shape = tuple(operator.index(size) for size in given.get(name, stated))
        except TypeError:
            raise DataError(
                f"The shape of the input {name!r} must be a sequence of sizes such as (1, 3, 224, 224), not "
                f"{given[name]!r}."
            ) from None
        if not shape or min(shape) <= 0:
            missing.append(name)
        shapes[name] = shape
    if missing:
        options = " ".join(f"--input-shape {name}=1,3,224,224" for name in missing)
        raise DataError(
            f"The shape of the input {', '.join(map(repr, missing))} is not known, and an ONNX file says the "
            f"shapes of its inputs. Give what the model was trained with: {options} (in Python input_shapes="
            f"{{{missing[0]!r}: (1, 3, 224, 224)}})."
        )
    return shapes
