"""Write what is the same computation in other words in the words that backends run best."""

from __future__ import annotations

import math
from typing import Mapping

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import all_integers, integers, is_true, real_number
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite
from mxamp.passes.state import State

_SAME: Mapping[str, str] = {
    "_npx_relu": "relu",
    "_npx_sigmoid": "sigmoid",
    "_npi_absolute": "abs",
    **{
        f"_npi_{name}": name
        for name in (
            *("arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "ceil", "cos", "cosh"),
            *("degrees", "exp", "expm1", "fix", "floor", "log", "log10", "log1p", "log2", "negative"),
            *("radians", "reciprocal", "rint", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh"),
            *("trunc",),
        )
    },
    **{
        f"_npi_{name}_scalar": f"_{twin}_scalar"
        for name, twin in (
            ("add", "plus"),
            ("subtract", "minus"),
            ("rsubtract", "rminus"),
            ("multiply", "mul"),
            ("true_divide", "div"),
            ("rtrue_divide", "rdiv"),
            ("power", "power"),
        )
    },
}
"""Operators of one float32 input that are another whatever their attributes say."""

_REDUCED: Mapping[str, str] = {"_np_max": "max", "_np_min": "min", "_np_sum": "sum", "_npi_mean": "mean"}
"""Of one float32 input along some of its axes: of all numpy makes a scalar, and MXNet an array of one."""

_PADDED = (4, 5)
"""Axes of images and volumes, of which ``Pad`` knows the places alone."""

_BROADCAST: Mapping[str, str] = {
    "_npi_add": "broadcast_add",
    "_npi_subtract": "broadcast_sub",
    "_npi_multiply": "broadcast_mul",
    "_npi_true_divide": "broadcast_div",
}
"""Of two float32 inputs: numpy's promotion has nothing to do."""

_OF_ONE_SHAPE: Mapping[str, str] = {
    "broadcast_add": "elemwise_add",
    "broadcast_sub": "elemwise_sub",
    "broadcast_mul": "elemwise_mul",
    "broadcast_div": "elemwise_div",
}
"""Where there is nothing to broadcast."""

_WITH_NUMBER: Mapping[str, tuple[str, str]] = {
    "broadcast_add": ("_plus_scalar", "_plus_scalar"),
    "broadcast_sub": ("_minus_scalar", "_rminus_scalar"),
    "broadcast_mul": ("_mul_scalar", "_mul_scalar"),
    "broadcast_div": ("_div_scalar", "_rdiv_scalar"),
    "broadcast_power": ("_power_scalar", "_rpower_scalar"),
    "broadcast_maximum": ("_maximum_scalar", "_maximum_scalar"),
    "broadcast_minimum": ("_minimum_scalar", "_minimum_scalar"),
}
"""Of two inputs -> with a number in place of the second, and of the first."""

_BOUNDS = frozenset({"broadcast_maximum", "broadcast_minimum"})
_SUMS = frozenset({"broadcast_add", "broadcast_sub"})
_ADD_A_BIAS = frozenset(
    {"Convolution", "Deconvolution", "FullyConnected", "_linalg_gemm2", "_npi_dot", "dot"}
)
"""Layers that take one number for all of their filters as their bias (:mod:`mxamp.passes.fold_bias`)."""

_POWERS = frozenset({"_power_scalar", "_npi_power_scalar"})

_NAMES = (
    *_POWERS,
    *_SAME,
    *_REDUCED,
    *_BROADCAST,
    *_OF_ONE_SHAPE,
    *_WITH_NUMBER,
    *("_grad_add", "_maximum_scalar", "_np_reshape", "_npx_reshape", "_npi_concatenate", "_npi_pad"),
    "_split_v2",
)


class OneSpelling(NodeRewrite):
    """Replace an operator by another of the same meaning, which the backend runs faster or later passes know.

    Before, and after::

        _npx_relu                                             relu
        _npx_sigmoid                                          sigmoid
        _npi_tanh, _npi_exp, ... (numpy's of one input)       tanh, exp, ...
        _npi_mean, _np_sum, _np_max, _np_min {axis: (2, 3)}   mean, sum, max, min
        _npi_pad {pad_width: ((0, 0), (0, 0), (1, 1), (2, 2))}   Pad {pad_width: (0, 0, 0, 0, 1, 1, 2, 2)}
        _maximum_scalar {scalar: 0}                           relu
        _power_scalar {scalar: 2}                             square
        _power_scalar {scalar: 3}                             elemwise_mul with the square
        _npi_add_scalar, ... (numpy's with a number)          _plus_scalar, ...
        _npi_add, _npi_subtract, _npi_multiply,               broadcast_add, broadcast_sub, broadcast_mul,
            _npi_true_divide                                      broadcast_div
        broadcast_add, ..., _npi_add, ... of one shape        elemwise_add, ...
        broadcast_add, ..., _npi_add, ... with a              _plus_scalar, ...
            parameter of one value
        _grad_add                                             elemwise_add
        _np_reshape, _npx_reshape {newshape: (-1, 8, 4)}      Reshape {shape: (-1, 8, 4)}
        _npi_concatenate {axis: 1}                            Concat {dim: 1}
        _split_v2 {axis: 1, sections: 3} (np.split)           SliceChannel {axis: 1, num_outputs: 3}

    Refuses: inputs that are not certainly float32, since numpy's operators promote where the others refuse;
    an addition whose inputs are not certainly of one shape, whatever is fed
    (:class:`~mxamp.passes.equal_shapes.EqualShapes`), which stays one that broadcasts; ``elemwise_add`` and
    Reshape in numpy's shape semantics where the input may be empty (:mod:`mxamp.passes.never_empty`), for
    which oneDNN's kernels raise; likewise a reduction, and one that leaves no axis or is told a dtype or an
    initial value; parts that are not certainly equal, or a graph output; padding of others than the places of
    images and volumes, or in other ways than by a constant, the edge or its mirror; a newshape with 0, which
    is an empty axis to numpy and the input's axis to Reshape, or with one of the special numbers from -2
    down, another order than C, and ``reverse``; a concatenation along no axis, or of a single array, or one
    that is a graph output, whose name would change; a parameter that a layer takes as its bias, that is not
    finite, or has more axes than what is computed with it; a node that a rule of the user's picks; the bodies
    of control flow. Other nodes may be graph outputs, for their names stay.

    Notes
    -----
    Why: oneDNN's kernels and fusion know operators by their names. A residual sum written with ``mx.np``, or
    with ``broadcast_add``, is a loop over plain tensors, to which blocked ones are reordered and which
    bfloat16 slows down further; ``elemwise_add`` is fused with the convolution before it. ``_np_reshape``
    raises in bfloat16. Padding 64 channels of 48 x 48 by numpy's takes 3.0 ms with a number and 6.0 with the
    edge, and 0.19 and 0.13 as ``Pad`` (Intel Xeon, one thread). Four parts along the second of three axes, 64
    x 32 x 192, take 4.7 ms by ``_split_v2`` and 0.16 by ``SliceChannel``, along the last three 4.8 and 1.6. A
    power calls the C library for each value: 262,144 squares take 2.7 ms as ``x ** 2`` and 0.12 as ``square``
    (AMD EPYC, one thread). Models that were read from ONNX have parameters of one value for numbers, over
    which MXNet broadcasts value by value, and which no pattern knows.

    Bit-exact, NaN and the sign of zeros included: they are the same kernels, or move values. A square alone
    is the nearest value where a power of two is, in one of 2,800 (of 268,435,456 tried), its neighbour; a
    cube is rounded twice, and off by at most 2 x 2^-24 of it, where a power is by 1 x 2^-24. (What
    becomes ``Activation`` is :class:`~mxamp.passes.RewriteRelu`'s to say.) Linear in nodes.
    """

    step = "one_spelling"
    operators = FACTS.spellings(*_NAMES)

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one node in the other spelling."""
        node, dtypes = state.graph.nodes[position], state.certain_dtypes
        if any(dtypes[entry.node][entry.output] is not DType.FLOAT32 for entry in node.inputs):
            return None
        whole = node
        node = _with_number(state, whole) or whole
        if FACTS.canonical(node.op) in _POWERS and _is_scalar(node, "3.0"):
            source = node.inputs[0]
            squares = edit.part(position, "square", "square", source, like=state.usual_shape(source))
            cube = _without(node, "elemwise_mul", "scalar", "is_int")
            edit.replace(position, cube._replace(inputs=(source, squares)))
            return "a product of three is the same up to rounding, without a call of the C library"
        twin = _twin(state, node, is_output=position in state.heads) or node
        if twin is whole:
            return None
        edit.replace(position, twin)
        return f"{twin.op} computes the same, bit for bit"


def _with_number(state: State, node: Node) -> Node | None:
    """Return the node that reads a number for a parameter of one value; None where it reads none such."""
    op = FACTS.canonical(node.op)
    op = _BROADCAST.get(op, op)
    if op not in _WITH_NUMBER or len(node.inputs) != 2:
        return None
    for number in (1, 0):
        other, parameter = node.inputs[1 - number], state.parameter(node.inputs[number])
        axes = state.axes(other)
        if (
            parameter is None
            or parameter.is_sparse
            or math.prod(parameter.shape) != 1
            or state.is_fixed(node.inputs[number].node)
            or state.parameter(other) is not None
            or (axes is None and state.graph.has_numpy_shapes)
            or len(parameter.shape) > (1 if axes is None else axes)
            or (op in _SUMS and _may_be_bias(state, other))
        ):
            continue
        value = float(parameter.values().reshape(())[()])
        # The larger of 0 and -0 is the second.
        is_second = number == 1 or value != 0 or op not in _BOUNDS
        if math.isfinite(value) and is_second:
            made = node._replace(op=_WITH_NUMBER[op][1 - number], inputs=(other,))
            return made._replace(attrs={**node.attrs, "scalar": repr(value)})
    return None


def _may_be_bias(state: State, entry: Entry) -> bool:
    """Return whether a layer may take what is added to its result, which nothing else reads."""
    op = FACTS.canonical(state.graph.nodes[entry.node].op)
    return op in _ADD_A_BIAS and state.only_reader(entry.node) is not None


def _twin(state: State, node: Node, *, is_output: bool) -> Node | None:
    """Return a node of float32 of the same meaning; None where there is none, or not certainly."""
    op = FACTS.canonical(node.op)
    if op in ("_np_reshape", "_npx_reshape"):
        return _reshape(node) if node.inputs[0].node in state.never_empty else None
    if op == "_npi_pad":
        return _pad(state, node)
    if op == "_split_v2":
        return None if is_output else _split(state, node)
    if op in _REDUCED:
        return _reduction(state, node)
    if op == "_npi_concatenate":
        return None if is_output else _concat(node)
    if op == "_maximum_scalar":
        return _without(node, "relu", "scalar", "is_int") if _is_scalar(node, "0.0") else None
    if op in _POWERS and _is_scalar(node, "2.0"):
        return _without(node, "square", "scalar", "is_int")
    if op in _SAME:
        return node._replace(op=_SAME[op])
    if len(node.inputs) != 2:
        return None
    twin = "elemwise_add" if op == "_grad_add" else _BROADCAST.get(op, op)
    if twin in _OF_ONE_SHAPE and state.equal_shapes.are_equal(*node.inputs):
        twin = _OF_ONE_SHAPE[twin]
    if twin == "elemwise_add" and node.inputs[0].node not in state.never_empty:
        twin = _BROADCAST.get(op, op)
    return None if twin == op else node._replace(op=twin)


def _reshape(node: Node) -> Node | None:
    """Return a Reshape where each number is an axis's length, one of them perhaps to be found."""
    shape = integers(node.attrs.get("newshape", ""))
    if (
        not shape
        or any(size < -1 or size == 0 for size in shape)
        or shape.count(-1) > 1
        or node.attrs.get("order", "C") != "C"
        or is_true(node.attrs, "reverse", default=False)
    ):
        return None
    twin = _without(node, "Reshape", "newshape", "order", "reverse")
    return twin._replace(attrs={**twin.attrs, "shape": str(shape)})


def _reduction(state: State, node: Node) -> Node | None:
    """Return the reduction along the same axes, of which one is left at least."""
    source = node.inputs[0]
    axes, rank = integers(node.attrs.get("axis", "None")), state.axes(source)
    is_plain = all(node.attrs.get(name, "None") == "None" for name in ("dtype", "initial"))
    if not axes or rank is None or not is_plain or source.node not in state.never_empty:
        return None
    if len({axis % rank for axis in axes}) == rank and not is_true(node.attrs, "keepdims", default=False):
        return None
    twin = _without(node, _REDUCED[FACTS.canonical(node.op)], "dtype", "initial")
    return twin._replace(attrs={**twin.attrs, "axis": str(axes)})


def _split(state: State, node: Node) -> Node | None:
    """Return the SliceChannel of parts that are certainly equally long."""
    source = node.inputs[0]
    sizes, axis = state.axis_sizes.of(source), integers(node.attrs.get("axis", "1"))
    if sizes is None or not axis or not -len(sizes) <= axis[0] < len(sizes):
        return None
    size, (sections,) = sizes[axis[0]], integers(node.attrs.get("sections", "0")) or (0,)
    if not isinstance(size, int) or source.node not in state.never_empty:
        return None
    edges = (*(integers(node.attrs.get("indices", "")) or (0,)), size)
    parts = {stop - start for start, stop in zip(edges, edges[1:])}
    if size % sections if sections else (len(parts) != 1 or edges[0] != 0):
        return None
    twin = _without(node, "SliceChannel", "indices", "sections")
    return twin._replace(attrs={**twin.attrs, "num_outputs": str(sections or len(edges) - 1)})


def _pad(state: State, node: Node) -> Node | None:
    """Return the Pad of the places of images or volumes."""
    source, mode = node.inputs[0], node.attrs.get("mode", "constant")
    widths = all_integers(node.attrs.get("pad_width", ""))
    if (
        state.axes(source) not in _PADDED
        or len(widths) != 2 * (state.axes(source) or 0)
        or any(widths[:4])
        or mode not in ("constant", "edge", "reflect")
        or node.attrs.get("reflect_type", "even") != "even"
        or source.node not in state.never_empty
    ):
        return None
    twin = _without(node, "Pad", "reflect_type")
    return twin._replace(attrs={**twin.attrs, "mode": mode, "pad_width": str(widths)})


def _concat(node: Node) -> Node | None:
    """Return a Concat along the same axis."""
    axis = integers(node.attrs.get("axis", "0"))
    if axis is None or len(axis) != 1 or len(node.inputs) < 2:
        return None
    twin = _without(node, "Concat", "axis")
    return twin._replace(attrs={**twin.attrs, "dim": str(axis[0]), "num_args": str(len(node.inputs))})


def _is_scalar(node: Node, number: str) -> bool:
    # As text, for the larger of -0 and 0 is the second that MXNet looks at.
    return str(real_number(node.attrs, "scalar", 1.0)) == number


def _without(node: Node, op: str, *names: str) -> Node:
    """Return the node as another operator, without some attributes."""
    return node._replace(op=op, attrs={key: value for key, value in node.attrs.items() if key not in names})
