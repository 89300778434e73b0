"""Dtype inference: the dtype of every entry, from the variables' dtypes and the operator facts."""

from __future__ import annotations

from typing import AbstractSet, Iterable, Mapping, Optional, Sequence, Tuple

from mxamp.dtypes import DType
from mxamp.errors import OperatorError, TargetError
from mxamp.graph.control_flow import body_inputs, is_control_flow
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.ops import FACTS, InputRole
from mxamp.ops.casts import AMP_CAST, AMP_MULTICAST, CASTABLE, cast_target, multicast_dtypes
from mxamp.ops.facts import OperatorFacts

EntryDtypes = Sequence[Tuple[Optional[DType], ...]]
"""For every node, the dtype of each of its outputs; None where it cannot be known before run time."""


def variable_dtypes(
    graph: Graph, stored: Mapping[str, DType], *, default: DType = DType.FLOAT32
) -> dict[str, DType]:
    """Return the dtype of every variable.

    What is stored for a parameter holds; then the variable's ``__dtype__`` attribute; then the dtype that
    an operator forces on it through what it reads beside it, for MXNet infers inputs this way: beside a
    parameter of an FP16 network it is FP16, and what is stacked with positions of INT32 is INT32, also
    behind a reshape; then ``default``.

    Parameters
    ----------
    graph
        The graph.
    stored
        Dtypes of the parameter arrays, by name.
    default
        The dtype of what nothing is known about.

    Raises
    ------
    OperatorError
        When a ``__dtype__`` attribute is not a dtype code.
    """
    known: dict[str, DType] = {}
    open_variables = []
    for name, position in graph.variables.items():
        if name in stored:
            known[name] = stored[name]
            continue
        code = graph.nodes[position].attrs.get("__dtype__", "-1")
        try:
            if code != "-1":
                known[name] = DType.from_code(int(code))
                continue
        except (ValueError, TargetError) as error:
            raise OperatorError(
                f"The variable {name!r} has the attribute __dtype__={code!r}, which is no dtype code: {error}"
            ) from None
        open_variables.append((name, position))
    undecided = []
    for name, position in open_variables:
        forced = _forced_dtype(graph, position, known)
        if forced is None:
            undecided.append(name)
        else:
            known[name] = forced
    if undecided:
        demanded = _demanded_dtypes(graph, known)
        known.update({name: demanded.get(name, default) for name in undecided})
    return known


def _forced_dtype(graph: Graph, position: int, known: Mapping[str, DType]) -> DType | None:
    """Return the low dtype that a consumer's parameters force on a variable, if any."""
    asked = -1
    for consumer, input_number in graph.uses[position].get(0, ()):
        if consumer == asked:  # it reads the variable more than once, and its inputs were looked at
            continue
        node = graph.nodes[consumer]
        facts = FACTS.of(node.op, node.attrs)
        if facts is None or not facts.role(input_number, node.attrs).shares_dtype:
            continue
        asked = consumer
        for other, entry in enumerate(node.inputs):
            if other != input_number and facts.role(other, node.attrs).shares_dtype:
                dtype = known.get(graph.nodes[entry.node].name)
                if graph.nodes[entry.node].is_variable and dtype is not None and dtype.is_float:
                    return dtype
    return None


def _demanded_dtypes(graph: Graph, known: Mapping[str, DType]) -> Mapping[str, DType]:
    """Return dtypes of other variables, which follow from what operators read beside what is made of them."""
    dtypes = infer_dtypes(graph, known)
    demanded: dict[Entry, DType] = {}
    for position in reversed(range(len(graph.nodes))):
        node = graph.nodes[position]
        facts = None if node.is_variable else FACTS.of(node.op, node.attrs)
        if facts is None or facts.promotes:
            continue
        roles = facts.all_roles(len(node.inputs), node.attrs)
        sharing = [entry for entry, role in zip(node.inputs, roles) if role.shares_dtype]
        unknown = [entry for entry in sharing if dtypes[entry.node][entry.output] is None]
        if not unknown:
            continue
        data = facts.data_dtype(node.attrs, [dtypes[entry.node][entry.output] for entry in node.inputs])
        if data is None:  # then what its outputs have to be, where they are of its inputs' dtype
            for output, own in enumerate(dtypes[position]):
                wanted = demanded.get(Entry(position, output))
                if own is None and wanted is not None:
                    follows = facts.output_dtypes(node.attrs, wanted, node.num_outputs)[output] is wanted
                    data = wanted if follows else data
        if data is not None:
            demanded.update(dict.fromkeys(unknown, data))
    return {
        graph.nodes[entry.node].name: dtype
        for entry, dtype in demanded.items()
        if graph.nodes[entry.node].is_variable
    }


def infer_dtypes(graph: Graph, variables: Mapping[str, DType]) -> EntryDtypes:
    """Infer the dtype of every entry.

    Parameters
    ----------
    graph
        The graph.
    variables
        The dtype of every variable, as :func:`variable_dtypes` gives it.

    Returns
    -------
    list of tuple of (DType or None)
        One tuple a node, one element an output. The outputs of an operator without facts are None.

    Raises
    ------
    OperatorError
        When a dtype attribute is not a dtype.

    Notes
    -----
    One pass, linear in nodes and inputs. Disagreement between inputs is not an error here; see
    :func:`check_dtypes`.
    """
    return infer_with_data_dtypes(graph, variables)[0]


def infer_with_data_dtypes(
    graph: Graph, variables: Mapping[str, DType]
) -> tuple[EntryDtypes, Sequence[DType | None]]:
    """Infer the dtype of every entry, and the one that every node computes in.

    Parameters
    ----------
    graph, variables
        See :func:`infer_dtypes`.

    Returns
    -------
    tuple of (list, list)
        What :func:`infer_dtypes` returns; and for each node what :meth:`OperatorFacts.data_dtype` says of it,
        None for variables and operators without facts.
    """
    dtypes: list[tuple[DType | None, ...]] = []
    computed_in: list[DType | None] = []
    for node in graph.nodes:
        if node.is_variable:
            dtypes.append((variables.get(node.name),))
            computed_in.append(None)
            continue
        inputs = [dtypes[producer][index] for producer, index in node.inputs]
        facts = FACTS.of(node.op, node.attrs)
        if facts is None:
            dtypes.append(_special_dtypes(node, inputs))
            computed_in.append(None)
            continue
        data = facts.data_dtype(node.attrs, inputs)
        dtypes.append(facts.output_dtypes(node.attrs, data, node.num_outputs))
        computed_in.append(data)
    return dtypes, computed_in


def certain_dtypes(graph: Graph, variables: Mapping[str, DType], undeclared: Iterable[str]) -> EntryDtypes:
    """Infer the dtype of every entry, None where it depends on what an input is fed with.

    Parameters
    ----------
    graph
        The graph.
    variables
        The dtype of every variable, as :func:`variable_dtypes` gives it.
    undeclared
        The inputs that do not say their dtype: it is an assumption there, for they may be fed with images of
        ``uint8``. Certain is what is the same for those, what follows a node that takes no others, and what
        leads to one.
    """
    images = dict.fromkeys(undeclared, DType.UINT8)
    assumed = infer_dtypes(graph, variables)
    if not images:
        return assumed
    others, reads_images = _dtypes_of_images(graph, assumed, images)
    told = _told_inputs(graph, assumed, others, reads_images)
    if not told.isdisjoint(images):
        images = {name: dtype for name, dtype in images.items() if name not in told}
        others, _ = _dtypes_of_images(graph, assumed, images)
    return [
        tuple([dtype if dtype is other else None for dtype, other in zip(own, alternatives)])
        for own, alternatives in zip(assumed, others)
    ]


def _dtypes_of_images(
    graph: Graph, assumed: EntryDtypes, images: Mapping[str, DType]
) -> tuple[EntryDtypes, Sequence[int]]:
    """Return the dtype of every entry where inputs are images, and the nodes that read what comes of them."""
    others: list[tuple[DType | None, ...]] = []
    reads_images = []
    for position, (node, own) in enumerate(zip(graph.nodes, assumed)):
        if node.is_variable:
            others.append((images.get(node.name, own[0]),))
            continue
        inputs = [others[entry.node][entry.output] for entry in node.inputs]
        expected = [assumed[entry.node][entry.output] for entry in node.inputs]
        if inputs == expected:  # images have no say any more
            others.append(own)
            continue
        reads_images.append(position)
        facts = FACTS.of(node.op, node.attrs)
        if facts is None:
            others.append(_special_dtypes(node, inputs))
        elif _settles(facts, node, inputs, expected):
            others.append(own)
        else:
            data = facts.data_dtype(node.attrs, inputs)
            others.append(facts.output_dtypes(node.attrs, data, node.num_outputs))
    return others, reads_images


def _told_inputs(
    graph: Graph, assumed: EntryDtypes, others: EntryDtypes, reads_images: Sequence[int]
) -> AbstractSet[str]:
    """Return the inputs that cannot be images, for a node that takes none reads what is made of them."""
    told: set[Entry] = set()
    for position in reversed(reads_images):
        node = graph.nodes[position]
        facts = FACTS.of(node.op, node.attrs)
        if facts is None or facts.promotes:
            continue
        inputs = [others[entry.node][entry.output] for entry in node.inputs]
        expected = [assumed[entry.node][entry.output] for entry in node.inputs]
        data = facts.data_dtype(node.attrs, inputs)
        follow = facts.output_dtypes(node.attrs, data, node.num_outputs)
        if _settles(facts, node, inputs, expected) or any(
            dtype is data and Entry(position, output) in told for output, dtype in enumerate(follow)
        ):
            roles = facts.all_roles(len(inputs), node.attrs)
            told.update(
                entry
                for entry, role, found, wanted in zip(node.inputs, roles, inputs, expected)
                if role.shares_dtype and found is not wanted
            )
    return {graph.nodes[entry.node].name for entry in told if graph.nodes[entry.node].is_variable}


def undeclared_inputs(graph: Graph, inputs: Iterable[str]) -> list[str]:
    """Return those inputs whose dtype is an assumption, for they do not say it.

    A conversion lets an input say float32 where it casts it, or MXNet would infer another dtype. That is no
    declaration of the user's, and converting again must know as much as the first time, and no more.
    """
    found = []
    for name in inputs:
        position = graph.variables[name]
        code = graph.nodes[position].attrs.get("__dtype__", "-1")
        if code == "-1" or (code == str(DType.FLOAT32.value) and _is_cast_down(graph, position)):
            found.append(name)
    return found


def _is_cast_down(graph: Graph, position: int) -> bool:
    """Return whether a cast to low precision reads a variable."""
    for use in graph.uses[position].get(0, ()):
        reader = graph.nodes[use.node]
        if reader.op == AMP_MULTICAST:
            return True
        if FACTS.is_cast(reader.op) and cast_target(reader.attrs, str(reader)).is_low_precision:
            return True
    return False


def _settles(
    facts: OperatorFacts, node: Node, inputs: Sequence[DType | None], expected: Sequence[DType | None]
) -> bool:
    """Return whether a node that reads images runs only if they are what is assumed.

    Beside a parameter, say: a Convolution takes data of its weight's dtype, and MXNet runs no other.
    """
    if facts.promotes:
        return False
    roles = facts.all_roles(len(inputs), node.attrs)
    same = {found is wanted for found, wanted, role in zip(inputs, expected, roles) if role.shares_dtype}
    return same == {True, False}


def _special_dtypes(node: Node, inputs: Sequence[DType | None]) -> tuple[DType | None, ...]:
    if node.op == AMP_CAST:
        if len(inputs) != 1 or node.num_outputs != 1:
            raise OperatorError(
                f"{node} has {len(inputs)} inputs and {node.num_outputs} outputs, and a cast has one of each."
            )
        source = inputs[0]
        passes = source is not None and source not in CASTABLE
        return (source if passes else cast_target(node.attrs, str(node)),)
    if node.op == AMP_MULTICAST:
        if not 1 <= node.num_outputs <= len(inputs):
            raise OperatorError(
                f"{node} has {len(inputs)} inputs and {node.num_outputs} outputs; it needs as many of both."
            )
        return multicast_dtypes(node.attrs, inputs)
    if is_control_flow(node):
        return _body_output_dtypes(node, inputs)
    return (None,) * node.num_outputs


def _body_output_dtypes(node: Node, inputs: Sequence[DType | None]) -> tuple[DType | None, ...]:
    """Return the dtypes of a control-flow node's outputs: those of its last body's heads.

    ``_foreach`` has one body; ``_while_loop`` a condition and a body; ``_cond`` a condition and two
    branches that agree.
    """
    number = len(node.subgraphs) - 1
    body = node.subgraphs[number]
    inner = _infer_body(node, number, inputs)
    found = [inner[head.node][head.output] for head in body.heads[: node.num_outputs]]
    return tuple(found + [None] * (node.num_outputs - len(found)))


def _infer_body(node: Node, number: int, inputs: Sequence[DType | None]) -> EntryDtypes:
    """Infer the dtypes inside body ``number`` from those of the node's inputs."""
    variables = {
        name: dtype
        for name, position in body_inputs(node, number).items()
        for dtype in [inputs[position]]
        if dtype is not None
    }
    return infer_dtypes(node.subgraphs[number], variables)


def check_dtypes(graph: Graph, dtypes: EntryDtypes) -> None:
    """Check that inputs that must share a dtype do, and that FP32 parameters are FP32; in bodies too.

    Raises
    ------
    OperatorError
        Naming the node and the two entries that clash; MXNet would refuse to bind such a graph.
    """
    for node in graph.nodes:
        facts = FACTS.of(node.op, node.attrs) if node.op != VARIABLE else None
        if facts is None:
            if is_control_flow(node):
                inputs = [dtypes[entry.node][entry.output] for entry in node.inputs]
                for number, body in enumerate(node.subgraphs):
                    check_dtypes(body, _infer_body(node, number, inputs))
            continue
        first: tuple[int, DType] | None = None
        roles = facts.all_roles(len(node.inputs), node.attrs)
        for number, (entry, role) in enumerate(zip(node.inputs, roles)):
            dtype = dtypes[entry.node][entry.output]
            if dtype is None or not role.shares_dtype:
                if role is InputRole.PARAM_FP32 and dtype is not None and dtype.is_low_precision:
                    raise OperatorError(
                        f"{node} reads {graph.describe(entry)!r} as {dtype}, "
                        "and that input is always float32."
                    )
                continue
            if first is None:
                first = (number, dtype)
            elif dtype is not first[1] and not (facts.promotes and DType.BFLOAT16 not in (dtype, first[1])):
                raise OperatorError(
                    f"{node} reads {graph.describe(node.inputs[first[0]])!r} as {first[1]} and "
                    f"{graph.describe(entry)!r} as {dtype}, but the two must have one dtype."
                )
