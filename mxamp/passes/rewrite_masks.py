"""Give masks a value that the low dtype holds."""

from __future__ import annotations

from functools import partial
from typing import Iterable, Sequence

import numpy as np

from mxamp.errors import PassError
from mxamp.graph.graph import Entry, Node
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.passes.base import Pass
from mxamp.passes.edit import Edited, GraphEdit
from mxamp.passes.mask_operators import find_masks, has_masks
from mxamp.passes.mask_values import SCORES_BELOW, Findings
from mxamp.passes.records import RewrittenMask
from mxamp.passes.state import Done, State
from mxamp.policy.color import Color
from mxamp.policy.policy import Policy


class RewriteMasks(Pass):
    """Replace mask values beyond the dtype's range by the dtype's most negative finite value.

    A mask is a large negative constant that makes softmax give some elements the weight zero. -1e18 is minus
    infinity in float16, and float32's minimum is minus infinity in bfloat16 too; a row of nothing else makes
    NaN, where FP32 gives a uniform row. L is the largest finite value (65504 in float16).

    Chosen::

        where(m, x, -1e18) -> softmax              where(m, x, -L) -> softmax
        (also SequenceMask, Pad, _slice_assign_scalar; Concat with a constant)

    Added, with constants::

        x + (m > 0) * -1e18 -> softmax             clip(x + (m > 0) * -L, -2^15, L) -> softmax

    Added, scaling an input::

        x + (1 - m) * -1e18 -> softmax             clip(x + clip((1 - m) * -1e18, -L, L), -2^15, L) -> softmax
        (m an input, which ought to be 0 and 1)    the product and the first clip in FP32

    The constant may be an attribute or a parameter's, its sign may come later (``x - 1e18 * m``), and casts,
    reshaping and broadcasting may lie between. The mask may end in ``softmax``, ``exp``, ``sigmoid``,
    ``relu``, ``tanh``, in ``argmax``, ``argsort`` or ``topk`` (their positions), or in a ``clip`` or maximum
    that it lies below.

    Refuses: where any reader is none of those, or the mask reaches an output (``log_softmax`` hands it on, so
    its result would change); two masks added, or two of different values in one softmax; the minus infinity
    of the user, whose fully masked rows are NaN in FP32 already; a mask added to scores that FP32 tells apart
    beside it (-1e9: scores 64 apart); a factor of what a layer computes, or one that is added to no scores,
    since ``softmax(-1e18 * x)`` picks the least x; a mask scaled down until it is not far below all scores; a
    softmax with a temperature beyond 16; a mask that a node joins to scores which a rule of the user's keeps
    in FP32, perhaps because the scores do not fit; masks in the bodies of control flow. Such nodes stay FP32,
    as they do without the pass.

    Notes
    -----
    Why the result is the same, whether a node behind the mask computes in FP32 or in the low dtype, given
    scores within half of the dtype's range (|x| < 32 600 in float16; beyond, a model is not for float16):

    - *A row with an unmasked score.* Its maximum M is such a score. A masked element is now at most half of
      -L, so M exceeds it by more than 104, and exp of less than -104 is zero in FP32 and in every shorter
      format: the weight is zero, as it was with -1e18. The unmasked elements do not change, nor their sum.
    - *A row with none.* FP32 gave equal weights: chosen elements are all the same constant, and added ones
      are too, because a score below 2^15 is less than half an ulp of a mask of 2^39 or more, and is lost.
      Chosen elements are still all the same. Added ones would not be: in float16 ``x - 65504`` keeps scores
      that are 32 apart, and overflows from x = -16. So the sum is bounded from below by -2^15: every masked
      element is less than that, minus infinity included, and becomes it. An unmasked element is greater and
      stays. bfloat16 needs no bound: half an ulp of its L is 2^119 (FP32: 2^103), so scores are
      lost beside it as beside float32's minimum.
    - *A mask that scales m, and m is not 0 or 1.* Rows with an unmasked score are as before: a product below
      -2^15 meant the weight zero and still does; a smaller one is rounded at most. Only in a row that is
      masked throughout, by different amounts, do weights change: FP32 prefers the least masked element.

    Positions by order are the same because masked elements stay below all others, and equal.

    The pass follows constants with an abstract value for each node (:mod:`mxamp.passes.mask_operators`);
    masks that meet are rewritten together or not at all. Linear in nodes and inputs.
    """

    def run(self, state: State) -> Done | None:
        """Return the graph with masks that the dtype holds."""
        graph, dtype = state.graph, state.policy.target_dtype
        if dtype.max_finite < 2 * SCORES_BELOW - 1024 or not has_masks(graph, state.params, dtype):
            return None
        is_kept = partial(_is_kept, state.policy)
        found = find_masks(graph, state.dtypes, state.arg_params, dtype, is_kept)
        refused = [
            RewrittenMask(graph.nodes[position].name, graph.nodes[position].op, before, None, reason)
            for position, (before, reason) in sorted(found.refused.items())
        ]
        if not found.masks:
            return Done(None, tuple(refused))
        edited, rewritten = _rewritten(state, found)
        return Done(edited, (*rewritten, *refused))

    def ensures(self, before: State, after: State) -> None:
        """Check that the names of inputs and outputs are kept."""
        super().ensures(before, after)
        if list(before.graph.variables) != list(after.graph.variables):
            raise PassError("The names of the graph's inputs or parameters changed.")


def _is_kept(policy: Policy, node: Node) -> bool:
    """Whether a rule of the user's keeps a node in FP32."""
    rule = next((rule for rule in policy.rules if rule.selector.picks(node)), None)
    return rule is not None and rule.color is Color.RED


def _rewritten(state: State, found: Findings) -> tuple[Edited, Sequence[RewrittenMask]]:
    graph, edit = state.graph, GraphEdit(state.graph, state.params)
    inserted: dict[int, list[str]] = {}
    limit = state.policy.target_dtype.max_finite
    bounds: dict[int, tuple[float, Iterable[int]]] = {}
    for position, mask in sorted(found.masks.items()):
        node = graph.nodes[position]
        if mask.attribute is None:
            edit.change_parameter(position, _replaced(state.params[node.name], mask.before, mask.after))
        elif not mask.capped:
            edit.replace(position, node._replace(attrs={**node.attrs, mask.attribute: repr(mask.after)}))
        if mask.capped:
            bounds[position] = (-limit, (position,))
    for position, (low, carried) in sorted({**bounds, **found.bounds}.items()):
        clip = {"a_min": repr(low), "a_max": repr(limit)}
        name = f"{graph.nodes[position].name}_bounded"
        bounded = edit.insert_behind(Node("clip", name, clip, (Entry(position),)))
        for source in carried:
            inserted.setdefault(source, []).append(edit.node(bounded).name)
    masks = [
        RewrittenMask(
            graph.nodes[position].name,
            graph.nodes[position].op,
            mask.before,
            mask.after,
            inserted=tuple(inserted.get(position, ())),
        )
        for position, mask in sorted(found.masks.items())
    ]
    return edit.finish(), masks


def _replaced(parameter: Parameter, before: float, after: float) -> Parameter:
    values = parameter.values()
    return ArrayParameter(np.where(values == np.float32(before), np.float32(after), values))
