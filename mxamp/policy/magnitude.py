"""Where values too large for the dtype go: an attention mask of -1e18 must not become minus infinity.

The rules keep the node that makes such a value in FP32 (:class:`mxamp.policy.rules.ScalarRange`,
:class:`mxamp.policy.rules.ParameterRange`). That is of no use when the value is cast just after: a softmax
over a row of minus infinities is NaN, where FP32 gives a uniform row. So FP32 spreads forward to what reads
the value, and on through moves and through arithmetic that keeps values large. It ends at the first operator
of any other kind, which reads FP32 too: how large its results are is not known, and most that follow a mask
(softmax, sigmoid, exp, comparisons) are bounded.

Likewise what is within the range alone and not in a sum: two masks of -65504 that are added up, or one and
the scores that it is added to.
"""

from __future__ import annotations

import re
from typing import Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops import OperatorFacts, ValueKind
from mxamp.policy.color import Color, Verdict
from mxamp.policy.context import ColoringContext

_MAKES_LARGE: Mapping[str, str] = {
    "_full": "value",
    "_mul_scalar": "scalar",
    "_minus_scalar": "scalar",
    "_npi_add_scalar": "scalar",
    "_npi_boolean_mask_assign_scalar": "value",
    "_npi_full_like": "fill_value",
    "_npi_insert_scalar": "val",
    "_npi_insert_slice": "val",
    "_npi_insert_tensor": "val",
    "_npi_multiply_scalar": "scalar",
    "_npi_pad": "constant_value",
    "_npi_rsubtract_scalar": "scalar",
    "_npi_rtrue_divide_scalar": "scalar",
    "_npi_subtract_scalar": "scalar",
    "_npi_where_lscalar": "scalar",
    "_npi_where_rscalar": "scalar",
    "_npi_where_scalar2": "x y",
    "_plus_scalar": "scalar",
    "_rdiv_scalar": "scalar",
    "_rminus_scalar": "scalar",
    "_scatter_minus_scalar": "scalar",
    "_scatter_plus_scalar": "scalar",
    "_slice_assign_scalar": "scalar",
    "Pad": "constant_value",
    "SequenceMask": "value",
}
"""Operator -> the attribute that reaches its values, or several."""
_BOUNDS: Mapping[str, Sequence[str]] = {"clip": ("a_min", "a_max")}
"""Operator -> the attributes that its values stay between."""
_HANDS_ON = frozenset({ValueKind.MOVE, ValueKind.AFFINE})
_SUMS = re.compile(
    r"(elemwise|broadcast)_(add|sub|plus|minus)|_(plus|minus|grad_add)|add_n|_npi_(add|subtract)"
)
"""Operators that add two tensors or more."""
_SCALED = frozenset({"_mul_scalar", "_npi_multiply_scalar"})
"""Those of :data:`_MAKES_LARGE` whose values are as large as their number, if a mask is multiplied."""
_SHIFTED = frozenset({"_plus_scalar", "_minus_scalar", "_npi_add_scalar", "_npi_subtract_scalar"})
_MASKS_FROM = 1.0 / 64
"""Numbers that are taken for those of masks, as shares of the dtype's largest value."""
_SCORES = 1024.0
"""How large what a mask is added to may be: so much is left to the dtype's largest value."""


def oversized_region(context: ColoringContext, verdicts: Sequence[Verdict]) -> dict[int, str]:
    """Return the nodes that must be FP32 because they read values beyond the dtype's range, with the reason.

    Parameters
    ----------
    context
        The graph and what is known about it.
    verdicts
        The verdict of every node by the rules; ignored for variables.

    Returns
    -------
    dict
        Node position -> reason. Only nodes that are not RED already; a user's own color is not overridden.

    Notes
    -----
    Linear in nodes and uses: one sweep over the topological order.
    """
    region: dict[int, str] = {}
    # Entry that holds such values -> the node that made them.
    oversized: dict[Entry, int] = {}
    # Entry that holds the numbers of masks, within the range -> how large they are.
    reaches: dict[Entry, float] = {}
    dtype = context.policy.target_dtype
    for position, node in enumerate(context.graph.nodes):
        facts = context.facts[position]
        if facts is None:
            continue
        origin = next(
            (
                oversized[entry]
                for number, entry in enumerate(node.inputs)
                if entry in oversized and facts.role(number, node.attrs).shares_dtype
            ),
            None,
        )
        verdict = verdicts[position]
        if origin is not None and verdict.color is not Color.RED and not verdict.by_user:
            maker = context.graph.nodes[origin]
            region[position] = (
                f"it reads values that {maker.name!r} ({maker.op}) makes beyond {dtype}'s largest value "
                f"{dtype.max_finite:.5g}"
            )
        if origin is None and _makes_oversized(context, position, verdict):
            origin = position
        if origin is None and not verdict.by_user:
            reach = _reach(context, position, facts, reaches)
            if reach > dtype.max_finite:
                origin = position
                if verdict.color is not Color.RED:
                    region[position] = (
                        f"masks that it adds up may reach {reach:.5g}, beyond {dtype}'s largest value "
                        f"{dtype.max_finite:.5g}"
                    )
            elif reach:
                reaches.update((Entry(position, output), reach) for output in range(node.num_outputs))
        if origin is not None and (facts.kind in _HANDS_ON or origin == position):
            if _keeps_within(node, facts, dtype):
                continue
            for output in range(node.num_outputs):
                oversized[Entry(position, output)] = origin
    return region


def _reach(
    context: ColoringContext, position: int, facts: OperatorFacts, reaches: Mapping[Entry, float]
) -> float:
    """Return how large the numbers of masks are in a node's values, 0 where there are none.

    A mask of zeros and ones times a number is as large as that, and two that are added up are as large as
    both: -65504 twice, for what is padded and what comes later, is minus infinity in float16.
    """
    node, name = context.graph.nodes[position], context.names[position]
    largest = context.policy.target_dtype.max_finite
    if name in _SCALED or name in _SHIFTED:
        number = _number(node, "scalar")
        own = number if number > _MASKS_FROM * largest else 0.0
        read = sum(reaches.get(entry, 0.0) for entry in node.inputs)
        if name in _SCALED:
            return own or read * number
        return read + own + (_SCORES if own else 0.0)
    if facts.kind not in _HANDS_ON:
        return 0.0
    known = [reaches[entry] for entry in node.inputs if entry in reaches]
    if not known or _is_clipped(context, position):
        return 0.0
    if _SUMS.fullmatch(name) is None:
        return max(known) if not _keeps_within(node, facts, context.policy.target_dtype) else 0.0
    return sum(known) + (_SCORES if len(known) < len(node.inputs) else 0.0)


def _is_clipped(context: ColoringContext, position: int) -> bool:
    """Whether all that read a node bound its values, as :class:`mxamp.passes.RewriteMasks` has them do."""
    uses = [use for places in context.graph.uses[position].values() for use in places]
    readers = [(context.graph.nodes[use.node], context.facts[use.node]) for use in uses]
    dtype = context.policy.target_dtype
    return bool(readers) and all(
        facts is not None and _keeps_within(node, facts, dtype) for node, facts in readers
    )


def _makes_oversized(context: ColoringContext, position: int, verdict: Verdict) -> bool:
    """Whether a node's own attribute or parameter makes its values too large."""
    attributes = _MAKES_LARGE.get(context.names[position], "")
    if not attributes and not verdict.of_range:
        return False
    node, facts, dtype = context.graph.nodes[position], context.facts[position], context.policy.target_dtype
    if any(_beyond(node, attribute, dtype) for attribute in attributes.split()):
        return True
    if facts is None or not verdict.of_range or facts.kind not in _HANDS_ON:
        return False
    losses = [
        parameter.range_loss(dtype)
        for entry in node.inputs
        for parameter in [context.parameter(entry.node)]
        if parameter is not None and context.graph.nodes[entry.node].name not in context.saturated
    ]
    return any(loss is not None and loss.largest is not None for loss in losses)


def _keeps_within(node: Node, facts: OperatorFacts, dtype: DType) -> bool:
    """Whether the attributes of an operator bound its values."""
    bounds = _BOUNDS.get(facts.name, ())
    return bool(bounds) and not any(_beyond(node, bound, dtype) for bound in bounds)


def _beyond(node: Node, attribute: str, dtype: DType) -> bool:
    return _number(node, attribute) > dtype.max_finite


def _number(node: Node, attribute: str) -> float:
    """Return how large the number in an attribute is."""
    try:
        return abs(float(node.attrs.get(attribute, "0")))
    except ValueError:
        return 0.0
