"""Compute what depends on parameters alone once, at conversion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import AbstractSet, Mapping, Sequence

import numpy as np

from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers
from mxamp.ops.evaluation import EVALUATED, KEEPS_ORDER, evaluate, evaluated_shape
from mxamp.params.on_disk import JoinedParameter
from mxamp.params.parameter import PART, ArrayParameter, Parameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State

_GROWTH = 2
"""A result may have so many times the values of what it is made of ..."""

_SMALL = 1 << 14
"""... or so many values in any case."""

_ON_THE_WAY = 1 << 23
"""What only goes into other results may have so many: the product of two vectors, as noise is made of."""

IN_MEMORY = 2 * PART
"""Values computed from files that may be held in memory until the result is written, in all."""


@dataclass(frozen=True)
class _Constant:
    """A value that is known at conversion.

    Attributes
    ----------
    value
        The value.
    sources
        The parameters that it comes from, in order.
    size
        How many values they have.
    """

    value: Parameter
    sources: tuple[str, ...]
    size: int

    @property
    def is_large(self) -> bool:
        """Whether it has more values than are worth being stored for what they are made of."""
        return math.prod(self.value.shape) > max(_GROWTH * self.size, _SMALL)


class FoldConstants(PreparationPass):
    """Compute operators that read parameters alone at conversion, in FP32: their readers read the result.

    Before::

        weights, biases -> Reshape (each) -> _rnn_param_concat -> RNN

    After::

        all_of_them -> RNN

    The result is a parameter with the node's name. Folded is what :mod:`mxamp.ops.evaluation` computes:
    operators that move values, the four basic operations, sums, means, norms and products of matrices, and
    constants that they read. So weights that are normalized become what they are.

    Refuses: other operators, and those that make positions (``_arange``), for the rules must see them;
    constants that are made and not computed with; casts, which are the user's; arithmetic in other dtypes
    than float32; sparse parameters; results with more than twice the values of what they are made of, unless
    they are small (16,384 values) or go into others that have not (2^23); of files, what needs more than 16
    MiB in memory, though joining tensors one after the other needs none; a node that is a graph output (what
    it reads is folded); a node that a rule of the user's picks; the bodies of control flow.

    Notes
    -----
    Why: every recurrent network of Gluon joins its weights anew in each forward pass, which takes 30 to 53 %
    of the time of such networks in FP32. A value that is computed in FP32 and then cast is also rounded once
    less than one that is computed in low precision.

    Weight normalization (Salimans and Kingma, 2016), weight standardization and spectral normalization make a
    layer's weight anew each time, and the layer is no layer with a parameter for any other pass: a vocoder
    spent 46 % of its time on that, a network with standardized weights 34 %.

    Bit-exact but for sums, which are exact and rounded once, where MXNet's have an error of their own. Linear
    in nodes and in the values of parameters.
    """

    step = "fold_constants"

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with constants."""
        constants = _constants(graph, state)
        folded = _folded(graph, constants)
        if not folded:
            return None
        # What is read by a node that stays becomes a parameter; what is read on the way needs none.
        wanted = {
            position
            for position in folded
            if any(use.node not in folded for places in graph.uses[position].values() for use in places)
        }
        edit = GraphEdit(graph, state.params)
        into = _into(graph, folded, wanted)
        for position in sorted(folded):
            if position in wanted:
                constant, name = constants[position], graph.nodes[position].name
                value = _stored(constant.value)
                edit.drop(position, edit.add_parameter(name, value, constant.sources, before=position))
            else:
                edit.drop(position)  # nobody that stays reads it
        reason = "reads parameters alone: computed at conversion"
        changes = [
            self.changed(graph.nodes[position], reason, into=edit.node(Entry(into[position])).name)
            for position in sorted(folded)
        ]
        return Done(edit.finish(), tuple(changes))


def _folded(graph: Graph, constants: Mapping[int, _Constant]) -> frozenset[int]:
    """Return the operators that go: they read parameters, or make a constant for such alone."""
    folded: set[int] = set()
    for position in sorted(constants, reverse=True):
        if graph.nodes[position].op == VARIABLE:
            continue
        readers = [use.node for places in graph.uses[position].values() for use in places]
        constant = constants[position]
        if (constant.sources and not constant.is_large) or folded.issuperset(readers):
            folded.add(position)
    return frozenset(folded)


def _stored(value: Parameter) -> Parameter:
    """Return a value that depends on nothing that its owner may change: of files, they are watched."""
    if value.is_on_disk or isinstance(value, ArrayParameter):
        return value
    return ArrayParameter(value.values())


def _into(graph: Graph, folded: AbstractSet[int], wanted: AbstractSet[int]) -> Mapping[int, int]:
    """Return for each folded node the parameter that it became or was used for."""
    into: dict[int, int] = {}
    for position in sorted(folded, reverse=True):
        if position in wanted:
            into[position] = position
            continue
        readers = [use.node for places in graph.uses[position].values() for use in places]
        into[position] = into[min(readers)]
    return into


def _constants(graph: Graph, state: State) -> Mapping[int, _Constant]:
    """Return the nodes whose first output is known, and how."""
    found: dict[int, _Constant] = {}
    budget = IN_MEMORY
    for position, node in enumerate(graph.nodes):
        if node.op == VARIABLE:
            parameter = state.params.get(node.name)
            if parameter is not None and not parameter.is_sparse and not state.is_fixed(position):
                found[position] = _Constant(parameter, (node.name,), math.prod(parameter.shape))
            continue
        op = FACTS.canonical(node.op)
        if op not in EVALUATED or node.num_outputs != 1 or position in state.heads:
            continue
        if any(entry.node not in found or entry.output for entry in node.inputs):
            continue
        if state.is_fixed(position) or not graph.uses[position]:
            continue
        constant = _computed(op, node, [found[entry.node] for entry in node.inputs], budget)
        if constant is None:
            continue
        if not constant.value.is_on_disk and any(found[entry.node].value.is_on_disk for entry in node.inputs):
            budget -= math.prod(constant.value.shape)
        found[position] = constant
    return found


def _computed(op: str, node: Node, inputs: Sequence[_Constant], budget: int) -> _Constant | None:
    """Return the value of an operator; None where it is not known, or not worth being stored."""
    shape = evaluated_shape(op, [each.value.shape for each in inputs], node.attrs)
    if shape is None:
        return None
    sources = tuple(dict.fromkeys(name for each in inputs for name in each.sources))
    made_of = sum(each.size for each in inputs)
    size = math.prod(shape)
    if size > max(_GROWTH * made_of, _ON_THE_WAY):
        return None
    values = [each.value for each in inputs]
    if _is_joined(op, node, values):
        return _Constant(JoinedParameter(values, shape), sources, made_of)
    in_memory = size + sum(math.prod(value.shape) for value in values)
    if in_memory > budget and any(value.is_on_disk for value in values):
        return None
    result = evaluate(op, [value.values() for value in values], node.attrs)
    if result is None:
        return None
    # A copy where it is a view: parameters in memory may be changed by whoever owns them.
    return _Constant(ArrayParameter(np.array(result, order="C")), sources, made_of)


def _is_joined(op: str, node: Node, values: Sequence[Parameter]) -> bool:
    """Whether the result holds the values of one input after those of the other."""
    if op in KEEPS_ORDER:
        return True
    if op not in ("Concat", "_rnn_param_concat") or len({value.dtype for value in values}) != 1:
        return False
    axis = integers(node.attrs.get("dim", "1"))
    return axis is not None and len(axis) == 1 and math.prod(values[0].shape[: axis[0]]) == 1 and axis[0] >= 0
