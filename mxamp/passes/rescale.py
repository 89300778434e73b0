"""Move powers of two from layer to layer, so that what lies in between fits the low dtype."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from mxamp.dtypes import DType
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.ops.parameters import LAYERS
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.params.scaled import ScaledParameter
from mxamp.passes.base import Pass
from mxamp.passes.edit import GraphEdit
from mxamp.passes.records import PreparedNode, RescaledEntries
from mxamp.passes.state import Done, State

RESCALE = "rescale"
"""What the report calls the pass."""

_SINGLE = frozenset(
    {
        *("Flatten", "Reshape", "transpose", "relu", "SliceChannel", "mean", "sum", "max", "min", "SwapAxis"),
        *("slice_axis", "slice", "squeeze", "expand_dims", "Dropout", "_copy", "BlockGrad"),
        *("negative", "abs", "_contrib_AdaptiveAvgPooling2D", "_contrib_BilinearResize2D", "_mul_scalar"),
        *("_div_scalar", "slice_like", "tile", "repeat"),
    }
)
"""What hands a factor of its first input on to all its outputs, whatever its attributes."""

_SEVERAL = frozenset(
    {
        *("elemwise_add", "elemwise_sub", "broadcast_add", "broadcast_sub", "add_n", "Concat", "stack"),
        *("broadcast_maximum", "broadcast_minimum"),
    }
)
"""What hands on a factor that all its inputs have."""

_PRODUCTS = frozenset({"elemwise_mul", "broadcast_mul"})
_QUOTIENTS = frozenset({"elemwise_div", "broadcast_div"})

_FIXED = Entry(-1)
"""Stands for what keeps its scale."""


@dataclass(frozen=True)
class _Boundary:
    """A node whose parameters take up the difference of two scales."""

    node: int
    weight: int
    bias: int | None
    norm: bool = False


class RescaleOverflows(Pass):
    """Scale tensors that would overflow by a power of two, and the parameters around them.

    Before::

        x -> Convolution(w, b) -> relu -> Pooling -> Convolution(v, c) -> y

    where what the first hands on is beyond the dtype's range. After::

        x -> Convolution(w / 2^k, b / 2^k) -> relu -> Pooling -> Convolution(v * 2^k, c) -> y

    Between two such layers everything must be positively homogeneous: relu, LeakyReLU and PReLU, maximum and
    average pooling, moves, sums, maxima and concatenations of tensors that are scaled alike (a parameter
    that is added is scaled with them), products and quotients with tensors that are not scaled. BatchNorm is
    a boundary on either side: its mean is scaled as what it reads, its beta as what it hands on, and its
    gamma by the quotient.

    Refuses: tensors that reach an output, an input or any other operator without a layer in between; layers
    whose parameters are no float32 parameters, or are read by other nodes too; parameters that would lose
    bits.

    Parameters
    ----------
    largest
        Returns for a state entry -> the largest magnitude it was observed to have.
    headroom
        How many times larger values may be than was observed, and fit.

    Notes
    -----
    In float32 no bit of any other tensor changes, and those that are scaled are what they were times the
    power of two: multiplication by one is exact, and commutes with rounding, products and sums. Except where
    a value is so small that it becomes subnormal, below 2^-126 times the factor.

    The same idea with any factors, for integers: Nagel, van Baalen, Blankevoort, Welling, "Data-free
    quantization through weight equalization and bias correction", ICCV 2019, section 4.1.

    Linear in nodes and inputs.
    """

    def __init__(self, largest: Callable[[State], Mapping[Entry, float]], headroom: float) -> None:
        self._observed = largest
        self._headroom = headroom

    def run(self, state: State) -> Done | None:
        """Return the graph with other parameters; only an attribute of a BatchNorm may be another."""
        largest, limit = self._observed(state), state.policy.target_dtype.max_finite
        if not any(value * self._headroom > limit for value in largest.values()):
            return None
        graph, scales = state.graph, _Scales(state.graph, state.params)
        wanted = self._wanted(scales, largest, limit)
        while wanted:
            # A parameter that would lose bits keeps what is around it as it is.
            lossy = {
                side
                for boundary in scales.boundaries
                if not _is_exact(state, _factors(graph, boundary, scales, wanted))
                for side in scales.sides(boundary)
                if side in wanted
            }
            lossy.update(
                root
                for name, root in scales.summands
                if root in wanted and not _is_exact(state, {name: -wanted[root]})
            )
            if not lossy:
                return _rescaled(state, scales, wanted)
            wanted = {root: exponent for root, exponent in wanted.items() if root not in lossy}
        return None

    def _wanted(self, scales: _Scales, largest: Mapping[Entry, float], limit: float) -> dict[Entry, int]:
        """Return the exponent of each set of entries that are to be scaled."""
        wanted: dict[Entry, int] = {}
        for entry, value in largest.items():
            excess = value * self._headroom / limit
            if excess > 1.0 and math.isfinite(value):
                root = scales.root(entry)
                if root != scales.root(_FIXED):
                    wanted[root] = max(wanted.get(root, 0), math.ceil(math.log2(excess)))
        return wanted


def _factors(
    graph: Graph, boundary: _Boundary, scales: _Scales, wanted: Mapping[Entry, int]
) -> dict[str, int]:
    """Return parameter -> exponent of the power of two that it is multiplied by."""
    node = graph.nodes[boundary.node]
    before, after = (wanted.get(side, 0) for side in scales.sides(boundary))

    def name(number: int) -> str:
        return graph.nodes[node.inputs[number].node].name

    if boundary.norm:
        found = {name(1): before - after, name(2): -after, name(3): -before}
    else:
        found = {name(1): before - after}
        if boundary.bias is not None:
            found[name(2)] = -after
    return {name: exponent for name, exponent in found.items() if exponent}


def _is_exact(state: State, factors: Mapping[str, int]) -> bool:
    """Return whether parameters lose no bit when they are multiplied by powers of two."""
    for name, exponent in factors.items():
        for part in state.params[name].parts():
            with np.errstate(all="ignore"):
                scaled = np.ldexp(part, exponent)
                if not np.array_equal(np.ldexp(scaled, -exponent), part, equal_nan=True):
                    return False
    return True


def _rescaled(state: State, scales: _Scales, wanted: Mapping[Entry, int]) -> Done:
    graph, params, edit = state.graph, state.params, GraphEdit(state.graph, state.params)
    changes: list[PreparedNode | RescaledEntries] = []
    for boundary in scales.boundaries:
        factors = _factors(graph, boundary, scales, wanted)
        if not factors:
            continue
        node = graph.nodes[boundary.node]
        gamma = graph.nodes[node.inputs[1].node].name
        if boundary.norm and gamma in factors and is_true(node.attrs, "fix_gamma", default=True):
            edit.replace(boundary.node, node._replace(attrs={**node.attrs, "fix_gamma": "False"}))
            ones: NDArray[np.float32] = np.ones(params[gamma].shape, np.float32)
            edit.change_parameter(graph.variables[gamma], ArrayParameter(np.ldexp(ones, factors.pop(gamma))))
        for name, exponent in factors.items():
            edit.change_parameter(graph.variables[name], _scaled(params[name], exponent))
        changes.append(_told(node, factors))
    for name, root in scales.summands:
        if root in wanted:
            edit.change_parameter(graph.variables[name], _scaled(params[name], -wanted[root]))
    exponents = {
        entry: wanted[scales.root(entry)] for entry in scales.entries if scales.root(entry) in wanted
    }
    return Done(edit.finish(), (*changes, RescaledEntries(exponents)))


def _told(node: Node, factors: Mapping[str, int]) -> PreparedNode:
    powers = ", ".join(f"{name} by 2^{exponent}" for name, exponent in factors.items())
    return PreparedNode(
        node.name,
        node.op,
        RESCALE,
        node.name,
        f"multiplied {powers or 'its scale by a power of two'}, for values between layers that would "
        "overflow; no bit of the result changes",
    )


def _scaled(parameter: Parameter, exponent: int) -> Parameter:
    shape = (1,) * len(parameter.shape)
    return ScaledParameter(parameter, np.full(shape, 2.0**exponent))


class _Scales:
    """Which entries of a graph have the same scale, whatever it is."""

    def __init__(self, graph: Graph, params: Mapping[str, Parameter]) -> None:
        self._graph, self._params = graph, params
        self._parents: dict[Entry, Entry] = {}
        self.boundaries: list[_Boundary] = []
        self._summands: list[tuple[str, Entry]] = []
        products = []
        for position, node in enumerate(graph.nodes):
            if node.op == VARIABLE:
                if node.name not in params:
                    self._join(_FIXED, Entry(position))
                continue
            op = FACTS.canonical(node.op)
            if node.control_deps or node.subgraphs:
                self._fix(position, node)
            elif self._is_boundary(op, position, node):
                continue
            elif op in _PRODUCTS or op in _QUOTIENTS:
                products.append((position, node, op in _QUOTIENTS))
            elif op == "LeakyReLU" and not all(map(self._is_parameter, node.inputs[1:])):
                self._fix(position, node)  # slopes that are computed
            elif (op in _SINGLE or _is_homogeneous(op, node)) and not self._is_parameter(node.inputs[0]):
                for output in range(node.num_outputs):
                    self._join(node.inputs[0], Entry(position, output))
            elif op in _SEVERAL:
                self._add_several(position, node)
            else:
                self._fix(position, node)
        for head in graph.heads:
            self._join(_FIXED, head)
        self._add_products(products)

    @property
    def entries(self) -> list[Entry]:
        """The entries that anything is known of."""
        return list(self._parents)

    def root(self, entry: Entry) -> Entry:
        """Return what stands for all entries of the same scale."""
        found = entry
        while self._parents.get(found, found) != found:
            found = self._parents[found]
        while self._parents.get(entry, entry) != entry:
            self._parents[entry], entry = found, self._parents[entry]
        return found

    def sides(self, boundary: _Boundary) -> tuple[Entry, Entry]:
        """Return the roots of what a boundary reads and hands on."""
        return (
            self.root(self._graph.nodes[boundary.node].inputs[0]),
            self.root(Entry(boundary.node)),
        )

    @property
    def summands(self) -> list[tuple[str, Entry]]:
        """The parameters that are added to something, and the root of that."""
        return [(name, self.root(entry)) for name, entry in self._summands]

    # ------------------------------------------------------------------ what belongs together

    def _join(self, one: Entry, other: Entry) -> None:
        for entry in (one, other):
            self._parents.setdefault(entry, entry)
        self._parents[self.root(other)] = self.root(one)

    def _fix(self, position: int, node: Node) -> None:
        for entry in node.inputs:
            self._join(_FIXED, entry)
        for output in range(node.num_outputs):
            self._join(_FIXED, Entry(position, output))

    def _is_parameter(self, entry: Entry) -> bool:
        node = self._graph.nodes[entry.node]
        return node.op == VARIABLE and node.name in self._params

    def _is_own(self, entry: Entry, position: int) -> bool:
        """Whether an entry is a float32 parameter that this node alone reads, once."""
        if not self._is_parameter(entry):
            return False
        parameter = self._params[self._graph.nodes[entry.node].name]
        uses = self._graph.uses_of(entry)
        alone = len(uses) == 1 and uses[0].node == position and entry not in self._graph.heads
        return alone and parameter.dtype is DType.FLOAT32 and not parameter.is_sparse

    def _is_boundary(self, op: str, position: int, node: Node) -> bool:
        """Return whether parameters of a node can take up a difference of scales; then it is noted."""
        if op in LAYERS:
            return self._add_layer(position, node)
        return op == "BatchNorm" and self._add_norm(position, node)

    def _add_layer(self, position: int, node: Node) -> bool:
        parameters = node.inputs[1:]
        if not 1 <= len(parameters) <= 2 or self._is_parameter(node.inputs[0]):
            return False
        if not all(self._is_own(entry, position) for entry in parameters):
            return False
        self._touch(node.inputs[0], Entry(position))
        self.boundaries.append(_Boundary(position, 1, 2 if len(parameters) == 2 else None))
        return True

    def _add_norm(self, position: int, node: Node) -> bool:
        if len(node.inputs) != 5 or set(self._graph.uses[position]) - {0}:
            return False
        if any(head.node == position and head.output for head in self._graph.heads):
            return False
        if self._is_parameter(node.inputs[0]):
            return False
        if not all(self._is_own(entry, position) for entry in node.inputs[1:]):
            return False
        self._touch(node.inputs[0], Entry(position))
        self.boundaries.append(_Boundary(position, 1, 2, norm=True))
        return True

    def _touch(self, *entries: Entry) -> None:
        for entry in entries:
            self._parents.setdefault(entry, entry)

    def _add_several(self, position: int, node: Node) -> None:
        for entry in node.inputs:
            if self._is_parameter(entry):
                if not self._is_own(entry, position):
                    self._fix(position, node)
                    return
                self._summands.append((self._graph.nodes[entry.node].name, Entry(position)))
                continue
            self._join(entry, Entry(position))

    def _add_products(self, products: list[tuple[int, Node, bool]]) -> None:
        """Join a product with the one factor that is scaled, once it is known that the other is not."""
        waiting = products
        while waiting:
            left = []
            for position, node, is_quotient in waiting:
                first, second = node.inputs
                output = Entry(position)
                if self._is_fixed(second):
                    self._join(first, output)
                elif self._is_fixed(first) and not is_quotient:
                    self._join(second, output)
                else:
                    left.append((position, node, is_quotient))
            if len(left) == len(waiting):
                # Nothing says which of the two might be scaled: the first that comes is not.
                position, node, _ = left.pop(0)
                self._fix(position, node)
            waiting = left

    def _is_fixed(self, entry: Entry) -> bool:
        return self._is_parameter(entry) or self.root(entry) == self.root(_FIXED)


def _is_homogeneous(op: str, node: Node) -> bool:
    """Return whether an operator is positively homogeneous with its attributes."""
    attrs = node.attrs
    if op == "Activation":
        return attrs.get("act_type") == "relu"
    if op == "LeakyReLU":
        return attrs.get("act_type", "leaky") in ("leaky", "prelu")
    if op == "Pooling":
        return attrs.get("pool_type", "max") in ("max", "avg", "sum")
    if op == "UpSampling":
        return len(node.inputs) == 1
    if op == "Pad":
        return attrs.get("mode") != "constant" or float(attrs.get("constant_value", "0")) == 0.0
    return False
