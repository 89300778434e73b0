"""The dtype of the whole model's inputs and outputs."""

from __future__ import annotations

from typing import AbstractSet, Mapping, NamedTuple, Optional, Sequence, Union

from mxamp.dtypes import DType
from mxamp.errors import PolicyError, TargetError, UnknownNameError, nearest_names
from mxamp.graph.graph import Entry, Graph
from mxamp.graph.infer import EntryDtypes, infer_dtypes, undeclared_inputs, variable_dtypes
from mxamp.graph.output_names import cast_names, output_names
from mxamp.messages.arguments import argument, setting
from mxamp.ops import FACTS
from mxamp.ops.casts import CAST, CASTABLE, cast_target
from mxamp.policy.exactness import exact_entries

IoDtype = Optional[Union[str, DType, Mapping[str, Union[str, DType]]]]


class Interface(NamedTuple):
    """What enters and leaves a converted model in low precision.

    Attributes
    ----------
    inputs
        Input name -> dtype.
    heads
        Numbers of the graph's heads.
    notes
        What was asked for and is not done, with the reason.
    """

    inputs: Mapping[str, DType]
    heads: frozenset[int]
    notes: Sequence[str] = ()


def decide_interface(
    requested: IoDtype, low: DType, graph: Graph, inputs: Sequence[str], stored: Mapping[str, DType]
) -> Interface:
    """Return which inputs and outputs of a model are low, of those that can be.

    Parameters
    ----------
    requested
        See :func:`resolve_io_dtype`.
    low
        The target dtype.
    graph
        The graph.
    inputs
        The variables that are inputs.
    stored
        Dtypes of the parameters by name.

    Raises
    ------
    PolicyError, UnknownNameError
        As :func:`resolve_io_dtype`; and for a name that cannot be low.

    Notes
    -----
    Where everything is asked for, indices, coordinates and integers stay as they are, for 777 is 776 in
    bfloat16; so does what may be integers, for it says no dtype and a Cast to float32 reads it; and outputs
    whose name a cast could not carry on. By name the former can be had, and the latter cannot.
    """
    names = output_names(graph)
    low_inputs, low_outputs = resolve_io_dtype(requested, low, inputs, names)
    if not low_inputs and not low_outputs:
        return Interface({}, frozenset())
    is_named, label = isinstance(requested, Mapping), argument("io_dtype")
    dtypes = variable_dtypes(graph, stored)
    exact = frozenset() if is_named else exact_entries(graph)
    notes = []
    for name in list(low_inputs):
        entry = Entry(graph.variables[name])
        reason = _why_no_low_input(graph, entry, dtypes[name], exact)
        if reason is None and not is_named:
            reason = _why_perhaps_integers(graph, entry, dtypes[name])
        if reason is None:
            continue
        if is_named:
            raise PolicyError(f"{label}: the input {name!r} cannot be {low}: {reason}. Leave it out.")
        notes.append(f"{label}: the input {name!r} stays {dtypes[name]}: {reason}.")
        del low_inputs[name]
    heads = {number for number, name in enumerate(names) if name in low_outputs}
    entries = infer_dtypes(graph, dtypes)
    for name, reason in _outputs_that_stay(graph, heads, low, entries, low_inputs, exact).items():
        if is_named:
            raise PolicyError(
                f"{label}: the output {name!r} cannot be {low}, for {reason}. Leave it float32."
            )
        notes.append(f"{label}: the output {name!r} cannot be {low}, for {reason}; it stays float32.")
        heads -= {number for number, other in enumerate(names) if other == name}
    return Interface(low_inputs, frozenset(heads), notes)


def _why_no_low_input(graph: Graph, entry: Entry, dtype: DType, exact: AbstractSet[Entry]) -> str | None:
    """Return why an input cannot be low. An integer can where nobody computes with it in its dtype."""
    name = graph.nodes[entry.node].name
    if entry in exact:
        return (
            f"indices or coordinates are read from it, which {setting('io_dtype', {name: 'low'})} would round"
        )
    if dtype in CASTABLE:
        return None
    for use in graph.uses_of(entry):
        reader = graph.nodes[use.node]
        facts = FACTS.of(reader.op, reader.attrs)
        if facts is None or facts.role(use.input, reader.attrs).shares_dtype:
            return f"it is {dtype}, and {reader} reads it so"
    return f"it is {dtype}, and an output too" if entry in graph.heads else None


def _why_perhaps_integers(graph: Graph, entry: Entry, dtype: DType) -> str | None:
    """Return why an input may arrive as something that low precision would round, unless it is named.

    A cast to float32 of what says no dtype has a reason to be there: images of ``uint8``, or token numbers.
    """
    node = graph.nodes[entry.node]
    if dtype not in CASTABLE:
        return f"{setting('io_dtype', {node.name: 'low'})} would round it"
    if dtype is not DType.FLOAT32 or not undeclared_inputs(graph, [node.name]):
        return None
    for use in graph.uses_of(entry):
        reader = graph.nodes[use.node]
        if FACTS.canonical(reader.op) != CAST:
            continue
        wanted = cast_target(reader.attrs, str(reader))
        if not wanted.is_low_precision:
            return (
                f"{reader} casts it to {wanted}, so it may be fed with integers, which "
                f"{setting('io_dtype', {node.name: 'low'})} would round"
            )
    return None


def _outputs_that_stay(
    graph: Graph,
    asked: AbstractSet[int],
    low: DType,
    dtypes: EntryDtypes,
    low_inputs: Mapping[str, DType],
    exact: AbstractSet[Entry],
) -> Mapping[str, str]:
    """Return the names of outputs that were asked for in low precision and stay, with the reason."""
    castable, names = cast_names(graph), output_names(graph)
    stay: dict[str, str] = {}
    of_node: dict[int, list[int]] = {}
    for number, head in enumerate(graph.heads):
        of_node.setdefault(head.node, []).append(number)
    for position, numbers in of_node.items():
        node = graph.nodes[position]
        wanted = [number for number in numbers if number in asked]
        if all(dtypes[position][graph.heads[number].output] is low for number in wanted):
            continue  # nothing has to be done
        reason = None
        if node.is_variable:
            reason = None if node.name in low_inputs else "it is a variable that is not low itself"
        elif any(graph.heads[number] not in castable for number in numbers):
            reason = "a cast would have to change its name or that of another output of its node"
        elif len(wanted) < len(numbers):
            reason = (
                "a cast would have to change the names of the other outputs of its node: ask for all of them"
            )
        elif any(graph.heads[number] in exact for number in numbers):
            reason = "indices or coordinates leave there, which it would round; it can be had by name"
        if reason is not None:
            stay.update({names[number]: reason for number in wanted})
    return stay


def resolve_io_dtype(
    requested: IoDtype, low: DType, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[dict[str, DType], dict[str, DType]]:
    """Return which inputs and which outputs are low.

    Parameters
    ----------
    requested
        None or ``"float32"``: all FP32. ``"low"`` or the target dtype: all low. A mapping from input or
        output names to ``"low"``, ``"float32"`` or a dtype: those named, FP32 for the rest.
    low
        The target dtype.
    inputs, outputs
        The names the model has; an output may be named with or without its ``_output``.

    Returns
    -------
    tuple of dict
        Input name -> dtype and output name -> dtype, holding only what is low.

    Raises
    ------
    UnknownNameError
        For a name the model does not have.
    PolicyError
        For a dtype that is neither FP32 nor the target dtype.
    """
    if requested is None:
        return {}, {}
    label = argument("io_dtype")
    if not isinstance(requested, Mapping):
        if not isinstance(requested, str):
            try:
                requested = DType.parse(requested, emulated=True)
            except TargetError:
                raise PolicyError(
                    f"{label} must be 'float32', 'low', or a mapping from names to those, not {requested!r}."
                ) from None
        if not _is_low(requested, low, label):
            return {}, {}
        return dict.fromkeys(inputs, low), dict.fromkeys(outputs, low)
    low_inputs: dict[str, DType] = {}
    low_outputs: dict[str, DType] = {}
    for name, dtype in requested.items():
        is_low = _is_low(dtype, low, _place(name))
        output = name if name in outputs else f"{name}_output"
        if name in inputs:
            if is_low:
                low_inputs[name] = low
                if name in outputs:  # the input itself is handed on
                    low_outputs[name] = low
        elif output in outputs:
            if is_low:
                low_outputs[output] = low
        else:
            known = [*inputs, *outputs]
            raise UnknownNameError(
                f"{label} names {name!r}, which is neither an input nor an output of the model."
                f"{nearest_names(str(name), known)} Inputs: {', '.join(inputs)}. "
                f"Outputs: {', '.join(outputs)}."
            )
    return low_inputs, low_outputs


def _place(name: object) -> str:
    """Name one item of the mapping for a message."""
    label = argument("io_dtype")
    return f"{label}[{name!r}]" if label == "io_dtype" else f"{label} {name}"


def _is_low(requested: str | DType, low: DType, where: str) -> bool:
    if isinstance(requested, str) and requested == "low":
        return True
    try:
        dtype = DType.parse(requested, emulated=True)
    except TargetError as error:
        raise PolicyError(f"{where}: {error} Or 'low', which is {low} here.") from None
    if dtype not in (low, DType.FLOAT32):
        raise PolicyError(f"{where} is {dtype}, but a model converted to {low} has float32 or {low} there.")
    return dtype is low
