"""Let a layer multiply by a number that its result is multiplied by."""

from __future__ import annotations

import math
from typing import Mapping

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true, real_number
from mxamp.ops.parameters import LAYERS
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.params.scaled import ScaledParameter
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import PreparationPass
from mxamp.passes.state import Done, State

_NORM = "BatchNorm"

_SCALED = LAYERS | {_NORM}

LARGEST_FACTOR = 2.0**20
"""No factor is larger, or smaller than one over it: weights are to stay well within every dtype's range."""


class FoldScale(PreparationPass):
    """Multiply the weight and the bias of a layer by a number, instead of its result.

    Before::

        x -> Convolution(weight, bias) -> _mul_scalar {scalar: 0.17} -> y

    After::

        x -> Convolution(0.17 weight, 0.17 bias) -> y

    Likewise ``_div_scalar`` and ``negative``, a FullyConnected, a Deconvolution, and a BatchNorm, whose scale
    and shift are multiplied. Products one after the other become one number.

    Refuses: where anything else reads the layer or its parameters; where layer or product are a graph output;
    parameters that are not dense float32; factors beyond 2^20 or below 2^-20; other dtypes than float32;
    nodes that a rule of the user's picks; the bodies of control flow.

    Notes
    -----
    Why: MXNet multiplies in a loop over plain tensors, to which what the layer wrote is brought, and the
    layer is not fused with what is behind. Residual networks that scale what they add are made so: in blocks
    of Inception-ResNet, 128 channels of 64 x 64, each product takes 2.1 of 7.5 ms (an Intel Xeon, float32,
    one thread).

    Up to rounding the same: each product of a weight is rounded once, where that of a result was; exact for
    powers of two. Linear in nodes and parameters.
    """

    step = "fold_scale"
    operators = frozenset({"_mul_scalar", "_MulScalar", "_div_scalar", "_DivScalar", "negative"})

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph in which layers multiply."""
        edit, changes = GraphEdit(graph, state.params), []
        for position, node in enumerate(graph.nodes):
            products = _products(state, position)
            factor = math.prod(products.values())
            scaled = _scaled(state, position, factor) if products and _is_near_one(factor) else {}
            if not scaled:
                continue
            for parameter, values in scaled.items():
                edit.change_parameter(parameter, values)
            if FACTS.canonical(node.op) == _NORM and is_true(node.attrs, "fix_gamma", default=True):
                edit.replace(position, node._replace(attrs={**node.attrs, "fix_gamma": "False"}))
            for product in products:
                edit.drop(product, Entry(position))
                reason = f"{node.name!r} multiplies by {factor:.6g}"
                changes.append(self.changed(graph.nodes[product], reason, into=node.name))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _products(state: State, position: int) -> Mapping[int, float]:
    """Return the nodes that multiply a layer's result, one after the other: a node -> by what."""
    if FACTS.canonical(state.graph.nodes[position].op) not in _SCALED:
        return {}
    found: dict[int, float] = {}
    reader = state.only_reader(position)
    while reader is not None and reader not in state.heads and not state.is_fixed(reader):
        node = state.graph.nodes[reader]
        factor = _factor(node) if node.op in FoldScale.operators else None
        if factor is None:
            break
        found[reader] = factor
        reader = state.only_reader(reader)
    return found


def _factor(node: Node) -> float | None:
    """Return what a node multiplies by; None where that is no number near one."""
    if FACTS.canonical(node.op) == "negative":
        return -1.0
    number = real_number(node.attrs, "scalar")
    if not number:
        return None
    factor = number if "mul" in node.op.lower() else 1 / number
    return factor if _is_near_one(factor) else None


def _is_near_one(factor: float) -> bool:
    return math.isfinite(factor) and 1 / LARGEST_FACTOR <= abs(factor) <= LARGEST_FACTOR


def _scaled(state: State, position: int, factor: float) -> Mapping[int, Parameter]:
    """Return the parameters of a layer times a factor; none where they cannot be multiplied."""
    graph, node = state.graph, state.graph.nodes[position]
    op = FACTS.canonical(node.op)
    if op == _NORM:
        entries = node.inputs[1:3]
        is_fine = len(node.inputs) > 2 and not set(graph.uses[position]) - {0}
    else:
        entries = node.inputs[1:]
        is_fine = op in LAYERS and bool(entries)
    found: dict[int, Parameter] = {}
    for number, entry in enumerate(entries if is_fine else ()):
        parameter = state.own_parameter(entry)
        if parameter is None or not parameter.shape:
            return {}
        rows = parameter.shape[0]
        if op == _NORM and number == 0 and is_true(node.attrs, "fix_gamma", default=True):
            found[entry.node] = ArrayParameter(np.full(rows, factor, np.float32))
            continue
        factors = np.full((rows, *(1,) * (len(parameter.shape) - 1)), factor)
        found[entry.node] = ScaledParameter(parameter, factors)
    is_float = state.dtypes[position][0] is DType.FLOAT32
    return found if is_float and not state.is_fixed(position, updating=False) else {}
