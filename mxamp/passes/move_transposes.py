"""Move transposes behind what works place by place, until they meet others that undo them."""

from __future__ import annotations

import math
from typing import Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from mxamp.graph.graph import Entry, Graph, Node, Use
from mxamp.ops import FACTS
from mxamp.ops.attributes import integers, is_true
from mxamp.params.parameter import ArrayParameter
from mxamp.passes.axis_sizes import moved_axes
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass, own_attributes
from mxamp.passes.state import Done, State

Permutation = Tuple[int, ...]
"""Axis of a transposed tensor -> the axis of the tensor that it was."""

_EACH_VALUE = frozenset(
    {
        *("Activation", "BlockGrad", "_copy", "abs", "clip", "erf", "exp", "hard_sigmoid"),
        *("negative", "relu", "sigmoid", "softsign", "sqrt", "square", "tanh"),
        *(
            f"_{name}_scalar"
            for name in ("plus", "minus", "rminus", "mul", "div", "rdiv", "maximum", "minimum")
        ),
    }
)
"""Operators that look at each value for itself, whatever their attributes are."""

_ALONE = frozenset({"elu", "gelu", "leaky", "selu"})
"""Kinds of LeakyReLU without a parameter."""

TOGETHER = frozenset(
    {
        *(f"broadcast_{name}" for name in ("add", "sub", "mul", "div", "maximum", "minimum")),
        *(f"elemwise_{name}" for name in ("add", "sub", "mul", "div")),
    }
)
"""Operators of two tensors that look at both at the same place."""

_TRANSPOSES = frozenset({"SwapAxis", "transpose"})

_REDUCTIONS = frozenset({"max", "mean", "min", "sum"})

_AXIS: Mapping[str, tuple[str, str]] = {
    "Concat": ("dim", "1"),
    "slice_axis": ("axis", ""),
    "BatchNorm": ("axis", "1"),
}
"""Operators of one axis -> the attribute that says which, and its default."""


class _Turned(NamedTuple):
    """What an entry is a transpose of."""

    base: Entry
    order: Permutation


class _Plan(NamedTuple):
    """What becomes of a node.

    Attributes
    ----------
    inputs
        What it reads from then on: positions of the graph before.
    attrs
        Its attributes.
    order
        How what it read was transposed.
    """

    inputs: tuple[Entry, ...]
    attrs: Mapping[str, str]
    order: Permutation


class MoveTransposes(PreparationPass):
    """Compute in the order that tensors had before a transpose, where a transpose behind undoes it.

    Before::

        x -> transpose {axes: (0, 2, 3, 1)} -> broadcast_add(c) -> relu -> transpose {axes: (0, 3, 1, 2)} -> y

    After::

        x -> broadcast_add(transposed c) -> relu -> y

    A SwapAxis is a transpose, where the number of axes is certain. Also through sums and products of two
    tensors that were transposed alike, arrays of parameters among them, Concat, slices, BatchNorm and
    reductions, whose axes are named anew.

    Refuses: where no fewer values are transposed afterwards; BatchNorms whose channels would not be axis 1,
    for which alone backends have kernels, unless a FullyConnected takes them into itself; graph outputs;
    nodes that a rule of the user's picks; targets that do not name the pass; the bodies of control flow.

    Notes
    -----
    Why: models with their channels last are run by convolutions with channels first, each between two
    transposes. What stands between two layers keeps a bias, a BatchNorm and an activation from being part of
    the layer, and MXNet cannot transpose in bfloat16. A ResNet-20 that was built with Keras runs 2.2 of FP32
    in float32 without them, and 2.6 in bfloat16 (AMD EPYC of family 26, one thread, random weights).

    Bit-exact, but for the order of summation in reductions. Linear in nodes and inputs.
    """

    step = "move_transposes"
    operators = frozenset({*_TRANSPOSES, "swapaxes"})
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph in which fewer values are transposed."""
        found = _Found(graph, state)
        if found.transposed_after() >= found.transposed_before():
            return None
        return found.carried_out(self)


class _Found:
    """Which nodes can compute in the order before, and what they read then."""

    def __init__(self, graph: Graph, state: State) -> None:
        self.graph, self.state = graph, state
        self.turned: dict[Entry, _Turned] = {}
        self.own: dict[int, _Turned] = {}
        """What the transposes of the graph do, each for itself."""
        self.moved: dict[int, _Plan] = {}
        self.names = [FACTS.canonical(node.op) for node in graph.nodes]
        for position, node in enumerate(graph.nodes):
            if node.is_variable or position in state.heads or state.is_fixed(position, updating=False):
                continue
            if self.names[position] in _TRANSPOSES:
                self._transpose(position, node)
            else:
                orders = [self.turned[entry].order for entry in node.inputs if entry in self.turned]
                if orders and not _is_as_before(orders[0]):
                    self._move(position, node, orders[0])
        self.read = self._entries_read()

    # ------------------------------------------------------------------ what can be moved

    def _transpose(self, position: int, node: Node) -> None:
        source = node.inputs[0]
        given = integers(node.attrs.get("axes", ""))
        axes = len(given) if given else self.state.axes(source)  # without axes it turns all of them around
        moved = None if axes is None else moved_axes(node, axes)
        if not moved:
            return
        order = tuple(moved)
        self.own[position] = _Turned(source, order)
        before = self.turned.get(source)
        if before is None:
            self.turned[Entry(position)] = _Turned(source, order)
        elif len(before.order) == len(order):
            self.turned[Entry(position)] = _Turned(before.base, tuple([before.order[axis] for axis in order]))

    def _move(self, position: int, node: Node, order: Permutation) -> None:
        if set(self.graph.uses[position]) - {0}:
            return
        name = self.names[position]
        attrs, inputs = dict(node.attrs), None
        if is_of_each_value(node):
            inputs = self._alike(node.inputs, order)
        elif name in TOGETHER:
            inputs = self._alike(node.inputs, order, arrays=True)
        elif name in _AXIS:
            count = 1 if name == "BatchNorm" else len(node.inputs)
            given = integers(node.attrs.get(_AXIS[name][0], _AXIS[name][1]))
            if given is not None and len(given) == 1 and -len(order) <= given[0] < len(order):
                axis = order[given[0]]
                attrs[_AXIS[name][0]] = str(axis if axis + 1 < len(order) else -1)
                inputs = self._alike(node.inputs[:count], order)
                inputs = inputs and (*inputs, *node.inputs[count:])
                if name == "BatchNorm" and inputs and axis != 1 and not self._is_dense(node.inputs[0]):
                    inputs = None
        elif name in _REDUCTIONS:
            self._reduce(position, node, order)
            return
        if inputs:
            self.moved[position] = _Plan(inputs, attrs, order)
            self.turned[Entry(position)] = _Turned(Entry(position), order)

    def _is_dense(self, turned: Entry) -> bool:
        """Return whether it is a layer that was transposed, and takes a BatchNorm of its last axis."""
        base = self.turned[turned].base
        is_layer = self.names[base.node] == "FullyConnected"
        return is_layer and len(self.graph.uses_of(base)) == len(self.graph.uses_of(turned)) == 1

    def _reduce(self, position: int, node: Node, order: Permutation) -> None:
        axes = integers(node.attrs.get("axis", ""))
        inputs = self._alike(node.inputs, order)
        if not axes or not inputs or is_true(node.attrs, "exclude", default=False):
            return
        if not all(-len(order) <= axis < len(order) for axis in axes):
            return
        reduced = {axis % len(order) for axis in axes}
        rest = [order[axis] for axis in range(len(order)) if axis not in reduced]
        keeps = is_true(node.attrs, "keepdims", default=False)
        if keeps or rest == sorted(rest):
            axis = str(tuple(sorted(order[axis] for axis in reduced)))
            self.moved[position] = _Plan(inputs, {**node.attrs, "axis": axis}, order)
            if keeps:
                self.turned[Entry(position)] = _Turned(Entry(position), order)

    def _alike(
        self, inputs: Sequence[Entry], order: Permutation, *, arrays: bool = False
    ) -> tuple[Entry, ...] | None:
        """Return what is read instead of inputs that were all transposed alike, but for parameters."""
        found = []
        for entry in inputs:
            turned = self.turned.get(entry)
            if turned is not None and turned.order == order:
                found.append(turned.base)
                continue
            parameter = self.state.parameter(entry) if arrays else None
            if parameter is None or parameter.is_sparse or len(parameter.shape) > len(order):
                return None
            found.append(entry)  # brought into that order later
        return tuple(found)

    # ------------------------------------------------------------------ what is read

    def _entries_read(self) -> Mapping[Entry, Sequence[Use]]:
        """Return which transposed entries are read as they are, and where."""
        found: dict[Entry, list[Use]] = {}
        for position, node in enumerate(self.graph.nodes):
            if position in self.moved or Entry(position) in self.turned:
                continue
            for number, entry in enumerate(node.inputs):
                if entry in self.turned:
                    found.setdefault(entry, []).append(Use(position, number))
        return found

    def _size(self, entry: Entry) -> int:
        shape = self.state.usual_shape(entry)
        return 1 if shape is None else math.prod(shape)

    def transposed_before(self) -> int:
        """Return how many values are transposed."""
        return sum(self._size(Entry(position)) for position in self.own if Entry(position) in self.turned)

    def transposed_after(self) -> int:
        """Return how many values would be."""
        return sum(self._size(entry) for entry in self.read if not _is_as_before(self.turned[entry].order))

    # ------------------------------------------------------------------ the new graph

    def carried_out(self, step: MoveTransposes) -> Done:
        """Return the graph, and what became of its nodes."""
        graph, edit, changes = self.graph, GraphEdit(self.graph, self.state.params), []
        reason = "computes in the order that its inputs had before they were transposed"
        for position, plan in self.moved.items():
            node, entry, order = graph.nodes[position], Entry(position), plan.order
            inputs = plan.inputs
            if self.names[position] in TOGETHER:
                inputs = tuple(
                    [
                        read if own in self.turned else self._array(edit, read, order, position)
                        for read, own in zip(plan.inputs, node.inputs)
                    ]
                )
            shape = self.state.usual_shape(entry)
            shapes = None
            if shape is not None and entry in self.turned:
                shapes = (tuple([shape[order.index(axis)] for axis in range(len(order))]),)
            edit.replace(position, node._replace(attrs=plan.attrs, inputs=inputs), shapes=shapes)
            changes.append(step.changed(node, reason))
        for entry, turned in self.turned.items():
            position, node = entry.node, graph.nodes[entry.node]
            if position in self.moved:
                if entry in self.read:
                    self._turn(edit, entry)
            elif entry not in self.read or _is_as_before(turned.order):
                edit.drop(position, turned.base)
                into = graph.nodes[turned.base.node].name
                changes.append(step.changed(node, "is undone behind, or done there", into=into))
            elif turned != self.own[position]:
                attrs = {**own_attributes(node), "axes": str(turned.order)}
                edit.replace(position, Node("transpose", node.name, attrs, (turned.base,)))
                changes.append(step.changed(node, "does what several transposes did"))
        return Done(edit.finish(), tuple(changes))

    def _turn(self, edit: GraphEdit, entry: Entry) -> None:
        """Put a transpose behind a node that was moved, for what reads it as it was."""
        shape = self.state.usual_shape(entry)
        back = Node(
            "transpose",
            f"{self.graph.nodes[entry.node].name}_turned",
            {"axes": str(self.turned[entry].order)},
            (entry,),
        )
        put = edit.insert(back, after=entry.node, shapes=None if shape is None else (shape,))
        for use in self.read[entry]:
            edit.connect(use, put)

    def _array(self, edit: GraphEdit, entry: Entry, order: Permutation, reader: int) -> Entry:
        """Return an array of parameters in the order before."""
        parameter = self.state.parameter(entry)
        assert parameter is not None  # nothing else is read beside what was transposed
        whole = (1,) * (len(order) - len(parameter.shape)) + parameter.shape

        def make() -> Entry:
            back = [order.index(axis) for axis in range(len(order))]
            values = np.ascontiguousarray(parameter.values().reshape(whole).transpose(back))
            name = self.graph.nodes[entry.node].name
            return edit.add_parameter(f"{name}_turned", ArrayParameter(values), [name], before=reader)

        return edit.once((entry, order), make)


def is_of_each_value(node: Node) -> bool:
    """Return whether a node looks at each value of one tensor for itself, wherever it stands."""
    name = FACTS.canonical(node.op)
    if name == "LeakyReLU":
        return node.attrs.get("act_type", "leaky") in _ALONE
    if name == "Dropout":  # one that drops whole axes minds which
        return not integers(node.attrs.get("axes", "()"))
    return name in _EACH_VALUE


def _is_as_before(order: Permutation) -> bool:
    return list(order) == sorted(order)
