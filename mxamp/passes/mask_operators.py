"""What operators make of masks: an abstract interpretation of a graph, one sweep over its nodes."""

from __future__ import annotations

import math
from typing import Callable, Mapping, Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.graph.infer import EntryDtypes
from mxamp.ops import FACTS, InputRole, OperatorFacts, ValueKind
from mxamp.ops.attributes import real_number
from mxamp.ops.casts import CAST_OPERATORS
from mxamp.params.parameter import Parameter
from mxamp.passes.mask_values import (
    FLAGS,
    LARGEST_TEMPERATURE,
    OTHER,
    WILD,
    Findings,
    Form,
    Level,
    MaskFlow,
    hands_on,
)

_VALUE_ATTRIBUTES: Mapping[str, str] = {
    **dict.fromkeys(("_full", "_npi_full"), "value"),
    "_npi_full_like": "fill_value",
    "SequenceMask": "value",
    "Pad": "constant_value",
    **dict.fromkeys(
        (
            *("_mul_scalar", "_npi_multiply_scalar", "_plus_scalar", "_npi_add_scalar", "_minus_scalar"),
            *("_npi_subtract_scalar", "_rminus_scalar", "_npi_rsubtract_scalar", "_slice_assign_scalar"),
            *("_npi_where_lscalar", "_npi_where_rscalar"),
        ),
        "scalar",
    ),
}
"""Operator -> the attribute whose value its elements can be, or are scaled or moved by."""

_MOVES = frozenset(
    (
        *("Reshape", "Flatten", "expand_dims", "squeeze", "transpose", "SwapAxis", "reverse", "repeat"),
        *("tile", "broadcast_axis", "broadcast_to", "broadcast_like", "reshape_like", "slice_like", "slice"),
        *("slice_axis", "SliceChannel", "_split_v2", "Concat", "stack", "take", "gather_nd", "max", "min"),
        *("_copy", "BlockGrad", "_identity_with_attr_like_rhs", "Dropout", "SequenceReverse"),
        *("SequenceLast", "_npx_reshape", "_np_reshape", "_np_transpose", "_np_copy", "_npi_concatenate"),
        *("_npi_stack", "_npi_broadcast_to", "_npi_repeat", "_np_repeat", "_npi_tile", "_npi_swapaxes"),
        "_np_squeeze",
    )
)
"""Operators every element of whose outputs is an element of their data."""

_SATURATING_ACTIVATIONS = ("relu", "sigmoid", "tanh")


def has_masks(graph: Graph, params: Mapping[str, Parameter], dtype: DType) -> bool:
    """Tell whether a graph holds any constant beyond the dtype's range that could be a mask's."""
    limit = dtype.max_finite
    canonical = FACTS.canonical
    for node in graph.nodes:
        if node.op != VARIABLE and node.attrs and canonical(node.op) in _VALUE_ATTRIBUTES:
            value = _value(node)
            if value is not None and limit < abs(value) < math.inf:
                return True
    return any(
        _may_hold_mask(graph, position, params[name], dtype)
        for name, position in graph.variables.items()
        if name in params
    )


def find_masks(
    graph: Graph,
    dtypes: EntryDtypes,
    params: Mapping[str, Parameter],
    dtype: DType,
    is_kept: Callable[[Node], bool] = lambda node: False,
) -> Findings:
    """Find the masks of a graph, and say what can be done about each.

    Parameters
    ----------
    graph
        The graph.
    dtypes
        The dtype of every entry; only FP32 is followed.
    params
        Parameters by name.
    dtype
        The low dtype.
    is_kept
        Tells of a node whether the user keeps it in FP32.

    Notes
    -----
    Linear in nodes and inputs.
    """
    flow = MaskFlow(graph, dtypes, params, dtype)
    for position, node in enumerate(graph.nodes):
        if node.is_variable:
            form = _parameter(flow, position, node)
        else:
            form = _form(flow, position, node)
            if form.other and form.rewritten and not flow.is_capped(position) and is_kept(node):
                flow.refuse(
                    [form], f"{node.name!r} ({node.op}), which you keep in float32, joins it to scores"
                )
                form = WILD
        flow.forms.append(form)
    for head in graph.heads:
        flow.refuse([flow.forms[head.node]], "it reaches an output of the model")
    return flow.findings()


# ---------------------------------------------------------------------- one node


def _form(flow: MaskFlow, position: int, node: Node) -> Form:
    """Return what the elements of an operator's outputs can be."""
    facts = FACTS.of(node.op, node.attrs)
    op = node.op if facts is None else facts.name
    forms = [flow.forms[entry.node] for entry in node.inputs]
    if facts is not None:
        forms = [
            form if facts.role(number, node.attrs).reads_values else OTHER
            for number, form in enumerate(forms)
        ]
    if flow.dtypes[position][0] is not DType.FLOAT32 and any(form.rewritten for form in forms):
        return flow.lose(node, forms)
    handler = _HANDLERS.get(op)
    if handler is not None and (forms or op in _MAKERS):
        return handler(flow, position, node, forms)
    if facts is not None and op in _MOVES:
        return _moved(flow, node, facts, forms)
    if facts is not None and facts.kind is ValueKind.COMPARE and not any(form.rewritten for form in forms):
        return Form(False, (Level(0.0, 0.0), Level(1.0, 1.0)))
    found = flow.lose(node, forms)
    scale = real_number(node.attrs, "scalar")
    return WILD if hands_on(node) and scale is not None and flow.is_oversized(scale) else found


def _moved(flow: MaskFlow, node: Node, facts: OperatorFacts, forms: Sequence[Form]) -> Form:
    data = []
    for number, form in enumerate(forms):
        if facts.role(number, node.attrs) is InputRole.DATA:
            data.append(form)
        elif form.rewritten:
            return flow.lose(node, forms)
    return flow.union(data)


def _may_hold_mask(graph: Graph, position: int, parameter: Parameter, dtype: DType) -> bool:
    """Whether a parameter's readers can carry a mask, and it has values beyond the range."""
    return (
        parameter.dtype is DType.FLOAT32
        and _is_carried(graph, position)
        and parameter.magnitude_bound > dtype.max_finite
    )


def _is_carried(graph: Graph, position: int) -> bool:
    """Whether all that reads a variable is known here; the values of a layer's weight are not looked at."""
    places = graph.uses[position]
    for readers in places.values():
        for reader, _ in readers:
            name = FACTS.canonical(graph.nodes[reader].op)
            if name not in _MOVES and name not in _HANDLERS:
                return False
    return bool(places)


def _parameter(flow: MaskFlow, position: int, node: Node) -> Form:
    parameter = flow.params.get(node.name)
    if parameter is None:
        return FLAGS
    if not _is_carried(flow.graph, position) or parameter.dtype is not DType.FLOAT32:
        return OTHER
    values = parameter.values()
    if np.all((values == 0) | (values == 1)):
        return Form(False, (Level(0.0, 0.0), Level(1.0, 1.0)))
    beyond = values[~(np.abs(values) <= flow.dtype.max_finite)]
    if not beyond.size:
        return OTHER
    constant = float(beyond.flat[0])
    if not math.isfinite(constant) or np.any(beyond != constant):
        return WILD
    rest = values[values != constant]
    mask = flow.mask(position, None, constant)
    if np.any(rest != 0):
        return Form(True, (mask,))
    return Form(False, (mask, Level(0.0, 0.0)) if rest.size else (mask,))


def _value(node: Node) -> float | None:
    """Return the attribute that reaches a node's elements; None where it is not a number."""
    return real_number(node.attrs, _VALUE_ATTRIBUTES[FACTS.canonical(node.op)], 0.0)


# ---------------------------------------------------------------------- operators


def _full(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    value = _value(node)
    return WILD if value is None else flow.constant(position, _attribute(node), value)


def _ones(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    return Form(False, (Level(1.0, 1.0),))


def _zeros(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    return Form(False, (Level(0.0, 0.0),))


def _cast(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    # To float32, or there is no mask in it.
    return forms[0]


def _where(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    # A condition that is not zero stays so.
    return flow.union(forms[1:])


def _put(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    """Let a constant take the place of some elements: ``SequenceMask``, ``Pad``, ``where`` with a scalar."""
    value = _value(node)
    if value is None:
        return flow.lose(node, forms)
    return flow.union([forms[-1 if _is_where(node) else 0], flow.constant(position, _attribute(node), value)])


def _is_where(node: Node) -> bool:
    return "where" in node.op


def _attribute(node: Node) -> str:
    return _VALUE_ATTRIBUTES[FACTS.canonical(node.op)]


def _add(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    return flow.sum(position, node, forms[0], forms[1])


def _subtract(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    return flow.sum(position, node, forms[0], flow.scaled(node, forms[1], -1.0))


def _multiply(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    return flow.product(node, forms[0], forms[1])


def _negate(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    return flow.scaled(node, forms[0], -1.0)


def _plus_scalar(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    return _with_scalar(flow, position, node, forms[0], 1.0, 1.0)


def _minus_scalar(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    return _with_scalar(flow, position, node, forms[0], 1.0, -1.0)


def _scalar_minus(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    return _with_scalar(flow, position, node, forms[0], -1.0, 1.0)


def _with_scalar(
    flow: MaskFlow, position: int, node: Node, form: Form, own_sign: float, scalar_sign: float
) -> Form:
    value = _value(node)
    if value is None or (flow.is_oversized(value) and form.other):
        # It moves every element out of the range: no mask.
        flow.lose(node, [form])
        return WILD
    scalar = flow.constant(position, _attribute(node), value)
    if own_sign < 0:
        form = flow.scaled(node, form, own_sign)
    if scalar_sign < 0:
        scalar = flow.scaled(node, scalar, scalar_sign)
    return flow.sum(position, node, form, scalar)


def _times_scalar(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    """Scale constants; where nobody knows what is scaled, the product is bounded before it is cast."""
    value, form = _value(node), forms[0]
    if value is None:
        return flow.lose(node, forms)
    if not flow.is_oversized(value):
        return flow.scaled(node, form, value)
    if not form.other:
        return flow.product(node, form, flow.constant(position, _attribute(node), value))
    if not form.flags or not _is_float32(flow, position):
        flow.lose(node, forms)
        return WILD
    if _is_bounded(flow, position):
        return OTHER
    return Form(True, (flow.mask(position, _attribute(node), value, capped=True),))


def _over_scalar(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    value = real_number(node.attrs, "scalar", 1.0)
    if not value or not math.isfinite(value):
        return flow.lose(node, forms)
    return flow.scaled(node, forms[0], value, divide=True)


def _is_float32(flow: MaskFlow, position: int) -> bool:
    return flow.dtypes[position][0] is DType.FLOAT32


def _is_bounded(flow: MaskFlow, position: int) -> bool:
    """Whether everything that reads a node brings its values back into the range at once."""
    readers = [flow.graph.nodes[use.node] for use in flow.graph.uses_of(Entry(position))]
    return bool(readers) and all(
        FACTS.canonical(reader.op) == "clip" and all(_holds(flow, reader, key) for key in ("a_min", "a_max"))
        for reader in readers
    )


def _holds(flow: MaskFlow, node: Node, key: str) -> bool:
    bound = real_number(node.attrs, key)
    return bound is not None and abs(bound) <= flow.dtype.max_finite


def _clip(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    return _bounded_below(flow, node, forms, "a_min")


def _maximum_scalar(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    return _bounded_below(flow, node, forms, "scalar")


def _bounded_below(flow: MaskFlow, node: Node, forms: Sequence[Form], key: str) -> Form:
    """Return what is left of a mask above a lower bound: nothing, where it lay below it and still does."""
    low = real_number(node.attrs, key)
    if low is None or not _holds(flow, node, key) or any(level.after > low for level in forms[0].rewritten):
        return flow.lose(node, forms)
    bounds_both = key == "a_min" and _holds(flow, node, "a_max")
    return WILD if any(map(flow.is_wild, forms[0].levels)) and not bounds_both else OTHER


def _softmax(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    temperature = real_number(node.attrs, "temperature")
    if temperature is not None and not 0 < temperature <= LARGEST_TEMPERATURE:
        flow.refuse(forms, f"{node.name!r} ({node.op}) divides it by a temperature of {temperature:g}")
    return flow.end(node, forms)


def _function(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    return flow.end(node, forms)


def _activation(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    if node.attrs.get("act_type") in _SATURATING_ACTIVATIONS:
        return flow.end(node, forms)
    return flow.lose(node, forms)


def _topk(flow: MaskFlow, position: int, node: Node, forms: Sequence[Form]) -> Form:
    if node.attrs.get("ret_typ", "indices") not in ("indices", "mask"):
        return flow.lose(node, forms, f"{node.name!r} ({node.op}) hands on the values themselves")
    return flow.end(node, forms)


_Handler = Callable[[MaskFlow, int, Node, Sequence[Form]], Form]
_MAKERS: Mapping[str, _Handler] = {
    **dict.fromkeys(("_full", "_npi_full", "_npi_full_like"), _full),
    **dict.fromkeys(("_ones", "_npi_ones", "ones_like"), _ones),
    **dict.fromkeys(("_zeros", "_npi_zeros", "zeros_like"), _zeros),
}
_HANDLERS: Mapping[str, _Handler] = {
    **_MAKERS,
    **dict.fromkeys(CAST_OPERATORS, _cast),
    **dict.fromkeys(("where", "_npi_where"), _where),
    **dict.fromkeys(("SequenceMask", "Pad", "_slice_assign_scalar"), _put),
    **dict.fromkeys(("_npi_where_lscalar", "_npi_where_rscalar"), _put),
    **dict.fromkeys(("broadcast_add", "elemwise_add", "_npi_add"), _add),
    **dict.fromkeys(("broadcast_sub", "elemwise_sub", "_npi_subtract"), _subtract),
    **dict.fromkeys(("broadcast_mul", "elemwise_mul", "_npi_multiply"), _multiply),
    **dict.fromkeys(("negative", "_npi_negative"), _negate),
    **dict.fromkeys(("_plus_scalar", "_npi_add_scalar"), _plus_scalar),
    **dict.fromkeys(("_minus_scalar", "_npi_subtract_scalar"), _minus_scalar),
    **dict.fromkeys(("_rminus_scalar", "_npi_rsubtract_scalar"), _scalar_minus),
    **dict.fromkeys(("_mul_scalar", "_npi_multiply_scalar"), _times_scalar),
    **dict.fromkeys(("_div_scalar", "_npi_true_divide_scalar"), _over_scalar),
    "clip": _clip,
    "_maximum_scalar": _maximum_scalar,
    **dict.fromkeys(("softmax", "SoftmaxActivation", "SoftmaxOutput", "_npx_softmax"), _softmax),
    **dict.fromkeys(("exp", "sigmoid", "tanh", "relu"), _function),
    "Activation": _activation,
    **dict.fromkeys(("argmax", "argmin", "argsort", "argmax_channel"), _function),
    "topk": _topk,
}
"""Operator -> what it makes of masks."""
