"""Multiply and sum up by one matrix product."""

from __future__ import annotations

import math

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import is_true
from mxamp.ops.shapes.elementwise import BROADCASTING
from mxamp.passes.arranged import move, move_into
from mxamp.passes.axis_sizes import reduced_axes
from mxamp.passes.edit import GraphEdit
from mxamp.passes.matrix_product import Factor, Form, Product, factor_of, form_of, product_of
from mxamp.passes.preparation import PreparationPass, own_attributes
from mxamp.passes.records import PreparedNode
from mxamp.passes.state import Done, State

_FEW_VALUES = 1 << 11
"""Of fewer products a sum takes no longer than a matrix product does."""

_FEW_MOVED = 1 << 15
"""The same where a factor has to be turned first."""

_FEW_OF_ONE = 1 << 8
"""Products of each matrix: of fewer, starting the next one takes longer than multiplying."""

_FEW_TERMS, _MOST_TERMS = 4, 1 << 12
"""Sums of fewer terms write nearly as much as they read. Longer ones are left to MXNet, which carries what
rounding loses along."""

_SMALL = 4
"""A tensor is moved for next to nothing if there are so many products for each of its values."""

_COPIES = frozenset({"tile", "broadcast_axis", "broadcast_to"})
"""Operators that repeat a tensor along axes of length one, as a product would by itself."""

_PRODUCTS = frozenset({"broadcast_mul", "elemwise_mul"})

_MATRICES = "_linalg_gemm2"
"""A product of matrices already, but of copies, and in float32 alone."""

_FEWEST_AXES = 3


class RewriteSummedProducts(PreparationPass):
    """Replace a product of two tensors that is summed up along an axis by a product of matrices.

    Before (a vector of 8 for each of 1,152 capsules, and 160 times 8 weights for each)::

        x (2, 1152, 1, 8) -> tile {reps: (1, 1, 160, 1)}
        weight (1, 1152, 160, 8), tile -> broadcast_mul -> sum {axis: 3} (name)

    After::

        x -> transpose {axes: (1, 0, 2, 3)} -> Reshape {shape: (1152, 0, 8)} (left)
        weight -> Reshape {shape: (1152, 160, 8)} (right)
        left, right -> batch_dot {transpose_b: True} -> transpose {axes: (1, 0, 2)} (name)

    An axis that both factors have numbers the matrices; one that a single factor has is a side of the result.
    What has the order that it needs is not moved.

    Refuses: where the number of axes is not certain; axes of which it is not certain, whatever is fed, that
    both factors have them or that only one does (:mod:`mxamp.passes.axis_sizes`); sums along several axes or
    with ``exclude``, of fewer than 4 terms or more than 4,096; few products (2,048 in all, 32,768 where a
    large factor must be moved, 256 of each matrix); factors that both have every axis, where there is no
    matrix; a product that anybody else reads, or that is a graph output; other dtypes than float32; numpy's
    shape semantics; nodes that a rule of the user's picks; targets that do not name the pass; the bodies of
    control flow. The sum may be a graph output, for its name stays.

    Notes
    -----
    Why: the product is written, and read again, though only its sums count: for 8 images and 1,152 votes for
    10 capsules, copying, multiplying and adding up (by a product with ones) take 65 ms, and the product of
    matrices 2.9; weighting 128 words of 768 values 0.18 ms and 0.07 (an Intel Xeon, float32, one thread).

    Up to rounding the same, and rather closer: products are not rounded before they are added up; n terms
    differ from the exact sum by at most n roundings of the sum of their magnitudes. Infinities and NaN give
    the same, but where a product overflows that another would have brought back. Linear in nodes.
    """

    step = "summed_products"
    operators = frozenset({"sum", "sum_axis", "linalg_gemm2", "_linalg_gemm2"})
    asks_target = True

    def rewrite(self, graph: Graph, state: State) -> Done | None:
        """Return the graph with products of matrices."""
        if graph.has_numpy_shapes:
            return None
        edit = GraphEdit(graph, state.params)
        changes: list[PreparedNode] = []
        for position, node in enumerate(graph.nodes):
            if node.op not in self.operators:
                continue
            product = _summed_product(state, position)
            form = None if product is None else form_of(product)
            if product is None or form is None or not _pays(product, form):
                continue
            _write(edit, position, node, product, form)
            for drop in _unread(state, position, product):
                edit.drop(drop)
                reason = f"{node.name!r} does it with a product of matrices"
                changes.append(self.changed(graph.nodes[drop], reason, into=node.name))
            changes.append(self.changed(node, "one product of matrices multiplies and sums up"))
        return Done(edit.finish(), tuple(changes)) if changes else None


def _unread(state: State, position: int, product: Product) -> list[int]:
    """Return the nodes that nobody reads any more: the product of a sum, and copies of its factors."""
    nodes = state.graph.nodes
    is_sum = FACTS.canonical(nodes[position].op) != _MATRICES
    reader = nodes[position].inputs[0].node if is_sum else position
    copies = [
        entry.node
        for entry, factor in zip(nodes[reader].inputs, (product.left, product.right))
        if entry != factor.entry and state.only_reader(entry.node) == reader
    ]
    return sorted([*copies, reader] if is_sum else copies)


def _summed_product(state: State, position: int) -> Product | None:
    """Return what a sum adds up."""
    node = state.graph.nodes[position]
    if state.is_fixed(position) or state.certain_dtypes[position][0] is not DType.FLOAT32:
        return None
    if FACTS.canonical(node.op) == _MATRICES:
        return _product_of_matrices(state, position)
    source = node.inputs[0].node
    product, shape = state.graph.nodes[source], state.shape(Entry(source))
    if (
        FACTS.canonical(product.op) not in _PRODUCTS
        or shape is None
        or state.only_reader(source) != position
        or state.is_fixed(source)
    ):
        return None
    summed = reduced_axes(node, len(shape))
    if summed is None or len(summed) != 1:
        return None
    places = tuple(range(len(shape)))
    left, right = [_factor(state, entry, places, len(shape)) for entry in product.inputs]
    if left is None or right is None:
        return None
    is_equal = FACTS.canonical(product.op) not in BROADCASTING
    keeps_axis = is_true(node.attrs, "keepdims", default=False)
    return product_of(left, right, shape, *summed, is_equal=is_equal, keeps_axis=keeps_axis)


def _product_of_matrices(state: State, position: int) -> Product | None:
    """Return what ``linalg_gemm2`` adds up: its axes are those of its result, and one more behind them."""
    node, shape = state.graph.nodes[position], state.shape(Entry(position))
    is_plain = node.attrs.get("axis", "-2") == "-2" and node.attrs.get("alpha", "1") in ("1", "1.0")
    if shape is None or len(shape) < _FEWEST_AXES or not is_plain:
        return None
    *others, row, column, summed = range(len(shape) + 1)
    factors = []
    for entry, side, name, comes_first in zip(
        node.inputs, (row, column), ("transpose_a", "transpose_b"), (True, False)
    ):
        is_first = comes_first != is_true(node.attrs, name, default=False)
        places = (*others, side, summed) if is_first else (*others, summed, side)
        factors.append(_factor(state, entry, places, len(shape) + 1))
    left, right = factors
    if left is None or right is None:
        return None
    whole = (*shape, left.shape[summed])
    return product_of(left, right, whole, summed, is_equal=True, keeps_axis=False)


def _factor(state: State, entry: Entry, places: tuple[int, ...], axes: int) -> Factor | None:
    """Return a factor as it is before it is copied along axes that the other one has; None if not known."""
    node = state.graph.nodes[entry.node]
    if FACTS.canonical(node.op) in _COPIES and len(node.inputs) == 1 and not state.is_fixed(entry.node):
        before, copied = state.axis_sizes.of(node.inputs[0]), state.axis_sizes.of(entry)
        is_known = before is not None and copied is not None and len(before) == len(copied)
        if is_known and all(own in (1, size) for own, size in zip(before or (), copied or ())):
            entry = node.inputs[0]
    sizes, shape = state.axis_sizes.of(entry), state.shape(entry)
    if sizes is None or shape is None or len(sizes) != len(places):
        return None
    return factor_of(entry, sizes, shape, places, axes)


def _pays(product: Product, form: Form) -> bool:
    terms, products = product.shape[product.summed], math.prod(product.shape)
    matrices = form.shape[0]
    is_moved = any(
        move.op == "transpose" and _SMALL * math.prod(move.shape) > products
        for operand in (form.left, form.right)
        for move in operand.moves
    )
    return (
        1 not in (product.left.sizes[product.summed], product.right.sizes[product.summed])
        and _FEW_TERMS <= terms <= _MOST_TERMS
        and products > matrices * terms  # a matrix has a side
        and products >= _FEW_OF_ONE * matrices
        and products >= (_FEW_MOVED if is_moved else _FEW_VALUES)
    )


def _write(edit: GraphEdit, position: int, node: Node, product: Product, form: Form) -> None:
    """Put a product of matrices in the place of a sum."""
    read = {factor.entry: _stretched(edit, position, factor) for factor in (product.left, product.right)}
    first = move(edit, position, read[form.left.entry], form.left.moves, "left")
    second = move(edit, position, read[form.right.entry], form.right.moves, "right")
    attrs = {"transpose_a": "True"} if form.left.is_turned else {}
    if not form.right.is_turned:
        attrs["transpose_b"] = "True"
    if form.moves:
        whole = edit.part(position, "batch_dot", "product", first, second, like=form.shape, **attrs)
        move_into(edit, position, whole, form.moves, "product")
    else:
        attrs.update(own_attributes(node))
        edit.replace(position, node._replace(op="batch_dot", attrs=attrs, inputs=(first, second)))


def _stretched(edit: GraphEdit, position: int, factor: Factor) -> Entry:
    """Return a factor that is as long as the other one also in a call in which it has one value for all."""
    if not factor.stretched:
        return factor.entry
    own = tuple([factor.shape[axis] for axis in factor.places])
    shape = str(factor.stretched)
    return edit.part(position, "broadcast_to", "stretched", factor.entry, like=own, shape=shape)
