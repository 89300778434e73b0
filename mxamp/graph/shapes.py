"""Shape inference over entries, from the operators' rules and without MXNet."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from mxamp.errors import DataError, UnknownNameError, nearest_names
from mxamp.graph.control_flow import body_inputs, is_control_flow
from mxamp.graph.graph import VARIABLE, Graph, Node
from mxamp.messages.arguments import argument
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.ops.control_flow import CONTROL_FLOW
from mxamp.ops.facts_table import operator_label
from mxamp.ops.shapes import (
    DEMANDS,
    RULES,
    UNKNOWN,
    MismatchError,
    ShapeCall,
    UnknownShapeError,
    merged,
)

InputShapes = Union[Mapping[str, Sequence[int]], Sequence[int]]
"""Input name -> shape; or a shape alone, of a model with one input."""

Shape = Tuple[int, ...]
MaybeShape = Optional[Shape]

_ROUNDS = 8
"""How often unknown inputs are looked for backwards; each round finds more, or is the last."""


@dataclass(frozen=True)
class InferredShapes:
    """The shapes of a graph's entries.

    Attributes
    ----------
    entries
        For every node the shape of each output: None where it is not known, and for a second or later output
        that nothing reads.
    without_rule
        Operator -> the first node of it, for operators of which no rule says what they return.
    """

    entries: Sequence[tuple[MaybeShape, ...]]
    without_rule: Mapping[str, str]


def infer_entry_shapes(
    graph: Graph, input_shapes: Mapping[str, Sequence[int]], params: Mapping[str, Shape]
) -> InferredShapes:
    """Infer the shape of every entry.

    Parameters
    ----------
    graph
        The graph.
    input_shapes
        Input name -> shape; a size of 0 is unknown. Inputs that are left out are unknown too.
    params
        The shapes of parameters and auxiliary states, by name.

    Returns
    -------
    InferredShapes
        As MXNet infers them, with the parameters' shapes given; what follows an operator without a rule is
        unknown.

    Raises
    ------
    UnknownNameError
        When ``input_shapes`` names what is no input.
    DataError
        When a shape is not a sequence of sizes, or the shapes contradict each other; names the node.

    Notes
    -----
    Forwards, by the rules of :mod:`mxamp.ops.shapes`. What then is not known of states and labels that nobody
    feeds, which MXNet tells from their readers, is looked for backwards, as long as that finds anything: the
    zeros that a recurrent network begins with have the batch of what they are added to. A round is linear in
    nodes and entries, and there are at most eight.
    """
    known: dict[str, Shape] = {
        name: tuple(UNKNOWN if size == 0 else size for size in shape)
        for name, shape in checked_input_shapes(graph, input_shapes, params).items()
    }
    numpy = graph.has_numpy_shapes
    for name in graph.variables:
        shape = tuple(params[name]) if name in params else ()
        if shape and (numpy or 0 not in shape):
            known[name] = shape
    return _Inference(graph, known, input_shapes, numpy).run()


class _Inference:
    """One run of :func:`infer_entry_shapes`, over the graph or over a body.

    Parameters
    ----------
    graph
        The graph or body.
    known
        What is known of its variables.
    given
        The shapes of the whole model's inputs, for messages.
    numpy
        Whether sizes have NumPy's meaning.
    """

    def __init__(
        self, graph: Graph, known: Mapping[str, Shape], given: Mapping[str, Sequence[int]], numpy: bool
    ) -> None:
        self._graph = graph
        self._known = known
        self._given = given
        self._numpy = numpy
        self._entries: list[list[MaybeShape]] = [[None] * node.num_outputs for node in graph.nodes]
        self._without_rule: dict[str, str] = {}

    def run(self) -> InferredShapes:
        self._forwards()
        for _ in range(_ROUNDS):
            if not self._backwards():
                break
            self._forwards()
        return InferredShapes(self._told(), self._without_rule)

    def _told(self) -> Sequence[tuple[MaybeShape, ...]]:
        """Return what is wholly known, of entries that something reads."""
        read = {entry for node in self._graph.nodes for entry in node.inputs if entry.output}
        read.update(head for head in self._graph.heads if head.output)
        return [
            tuple(
                [
                    None
                    if shape is None or UNKNOWN in shape or (output and (position, output) not in read)
                    else shape
                    for output, shape in enumerate(outputs)
                ]
            )
            for position, outputs in enumerate(self._entries)
        ]

    def _forwards(self) -> None:
        entries, canonical, rules = self._entries, FACTS.canonical, RULES
        for position, node in enumerate(self._graph.nodes):
            if node.op == VARIABLE:
                self._say(position, 0, self._variable(node))
                continue
            inputs = [entries[producer][output] for producer, output in node.inputs]
            if is_control_flow(node):
                for number, shape in enumerate(self._of_bodies(node, inputs)[: node.num_outputs]):
                    self._say(position, number, shape)
                continue
            op = canonical(node.op)
            rule = rules.get(op)
            if rule is None:
                self._without_rule.setdefault(operator_label(node.op, node.attrs), node.name)
                continue
            if not rule.is_partial:
                inputs = [None if shape is None or UNKNOWN in shape else shape for shape in inputs]
            call = ShapeCall(op, node.attrs, inputs, numpy=self._numpy)
            try:
                returned = rule.outputs(call)
            except UnknownShapeError:
                continue
            except MismatchError as error:
                raise shapes_error(str(node), str(error), self._given) from None
            except (IndexError, ValueError, ZeroDivisionError, OverflowError, StopIteration):
                attrs = ", ".join(f"{key}={value}" for key, value in node.attrs.items()) or "none"
                shown = ", ".join(map(str, inputs))
                raise shapes_error(
                    str(node), f"its attributes ({attrs}) do not fit what it reads ({shown})", self._given
                ) from None
            outputs: Sequence[Any] = [returned] if type(returned) is tuple else returned
            for number, shape in enumerate(outputs[: node.num_outputs]):
                self._say(position, number, shape)

    def _of_bodies(self, node: Node, inputs: Sequence[MaybeShape]) -> Sequence[MaybeShape]:
        """Return the shapes of what control flow returns: its last body's, for each iteration one."""
        flow, last = CONTROL_FLOW[node.op], len(node.subgraphs) - 1
        steps, body = flow.iterations(node.attrs, inputs), node.subgraphs[last]
        inner = _Inference(body, _of_one_iteration(node, last, inputs), self._given, self._numpy)
        found = inner.run().entries
        for op, name in inner._without_rule.items():
            self._without_rule.setdefault(op, f"{node.name}/{name}")
        heads = [found[head.node][head.output] for head in body.heads]
        stacked = flow.stacked(node.attrs)
        return [
            shape if place >= stacked or shape is None else (UNKNOWN if steps is None else steps, *shape)
            for place, shape in enumerate(heads)
        ]

    def _variable(self, node: Node) -> MaybeShape:
        known = self._known.get(node.name)
        text = node.attrs.get("__shape__")
        declared = None if text is None else integers(text)
        if not declared:
            return known
        own = tuple(UNKNOWN if size < 0 or (size == 0 and not self._numpy) else size for size in declared)
        both = merged(known, own)
        if both is None:
            raise shapes_error(str(node), f"it is declared as {declared}, and {known} is given", self._given)
        return both

    def _say(self, position: int, output: int, shape: MaybeShape) -> bool:
        """Take down what an entry's shape is; return whether that was not known before."""
        before = self._entries[position][output]
        if shape is None or shape == before:
            return False
        if not self._numpy:  # where there are no scalars, and 0 is no size
            if not shape:
                return False
            shape = tuple([size or UNKNOWN for size in shape])
        both = merged(before, shape)
        if both is None:
            node = self._graph.nodes[position]
            raise shapes_error(
                str(node), f"what it returns is read as {before}, and has the shape {shape}", self._given
            )
        self._entries[position][output] = both
        return both != before

    def _backwards(self) -> bool:
        """Look for what is not known of inputs in what reads them; return whether anything was found."""
        entries, found = self._entries, False
        for position in range(len(self._graph.nodes) - 1, -1, -1):
            node = self._graph.nodes[position]
            if node.op == VARIABLE or not any(
                entries[entry.node][entry.output] is None
                or UNKNOWN in (entries[entry.node][entry.output] or ())
                for entry in node.inputs
            ):
                continue
            op = FACTS.canonical(node.op)
            demand = DEMANDS.get(op)
            if demand is None:
                continue
            inputs = [entries[producer][output] for producer, output in node.inputs]
            wanted = demand(ShapeCall(op, node.attrs, inputs, numpy=self._numpy), entries[position])
            for entry, shape in zip(node.inputs, wanted):
                found |= self._say(entry.node, entry.output, shape)
        return found


def infer_body_shapes(
    node: Node, number: int, inputs: Sequence[MaybeShape]
) -> Sequence[tuple[MaybeShape, ...]]:
    """Return the shape of every entry of a body of control flow, in one iteration.

    Parameters
    ----------
    node
        The control flow.
    number
        Which of its bodies.
    inputs
        The shape of each of the node's inputs; None where it is not known. They have no meaning of NumPy's,
        for a body does not say that its own have.
    """
    known = _of_one_iteration(node, number, inputs)
    return _Inference(node.subgraphs[number], known, {}, numpy=False).run().entries


def _of_one_iteration(node: Node, number: int, inputs: Sequence[MaybeShape]) -> Mapping[str, Shape]:
    """Return what is known of the variables of a body: a loop reads its data along the first axis."""
    sliced = CONTROL_FLOW[node.op].sliced(node.attrs)
    return {
        name: shape if place >= sliced or not shape else shape[1:]
        for name, place in body_inputs(node, number).items()
        for shape in [inputs[place]]
        if shape is not None
    }


def shapes_error(
    where: str, why: str, input_shapes: Mapping[str, Sequence[int]], missing: Sequence[str] = ()
) -> DataError:
    """Return the error that says that shapes do not fit.

    Parameters
    ----------
    where
        The node; empty where that is not known.
    why
        What does not fit.
    input_shapes
        What was given.
    missing
        The inputs that nothing was given for.
    """
    given = ", ".join(f"{name}={tuple(shape)}" for name, shape in input_shapes.items()) or "no input shapes"
    given += f", and nothing for {', '.join(map(repr, missing))}" if missing and input_shapes else ""
    place = f" at {where}" if where else ""
    return DataError(
        f"The shapes do not fit together{place}: {why.rstrip('.')}. Given were {given}. "
        f"Check {argument('input_shapes')} against what the model was trained with."
    )


def named_input_shapes(
    graph: Graph, given: InputShapes | None, params: Mapping[str, object]
) -> Mapping[str, Sequence[int]] | None:
    """Return shapes by the names of inputs: a shape alone is that of the only input.

    Parameters
    ----------
    graph
        The graph.
    given
        Input name -> shape, a shape, or None.
    params
        Names of the parameters; every other variable is an input.

    Raises
    ------
    DataError
        When it is a shape alone, and the model has not exactly one input.
    """
    if given is None or isinstance(given, Mapping):
        return given
    is_shape = isinstance(given, Sequence) and not isinstance(given, (str, bytes))
    if not is_shape or not given or not all(isinstance(size, (int, np.integer)) for size in given):
        return given  # type: ignore[return-value]  # whoever checks shapes says what is wrong with it
    inputs = [name for name in graph.variables if name not in params]
    if len(inputs) != 1:
        raise DataError(
            f"{argument('input_shapes')} is {tuple(given)}, a shape without a name, and the model has "
            f"{len(inputs)} inputs: {', '.join(inputs[:8]) or '(none)'}. Name them, as in "
            f"{{{inputs[0] if inputs else 'data'!r}: {tuple(given)}}}."
        )
    return {inputs[0]: tuple(int(size) for size in given)}


def checked_input_shapes(
    graph: Graph, input_shapes: Mapping[str, Sequence[int]], params: Mapping[str, object]
) -> dict[str, Shape]:
    """Return the shapes of inputs as tuples; those without any size are left out.

    Raises
    ------
    UnknownNameError, DataError
        See :func:`infer_entry_shapes`.
    """
    if not isinstance(input_shapes, Mapping):
        raise DataError(
            "input_shapes must map input names to shapes, as in {'data': (1, 3, 224, 224)}, "
            f"not {input_shapes!r}."
        )
    inputs = [name for name in graph.variables if name not in params]
    checked: dict[str, Shape] = {}
    for name, shape in input_shapes.items():
        if name not in inputs:
            what = "a parameter, whose shape is known" if name in params else "no input of the model"
            raise UnknownNameError(
                f"{argument('input_shapes')} names {name!r}, which is {what}.{nearest_names(name, inputs)} "
                f"The inputs are: {', '.join(inputs) or '(none)'}."
            )
        try:
            sizes = tuple([operator.index(size) for size in shape])
        except TypeError:
            sizes = (-1,)
        if any(not 0 <= size < 2**31 for size in sizes):
            raise DataError(
                f"The shape of the input {name!r} must be a sequence of sizes such as (1, 3, 224, 224), "
                f"not {shape!r}."
            )
        if sizes:
            checked[name] = sizes
    return checked
