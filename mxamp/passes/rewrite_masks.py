"""Give masks a value that the low dtype holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Sequence

import numpy as np

from mxamp.errors import PassError
from mxamp.graph.graph import Entry, Graph, Node
from mxamp.graph.infer import infer_dtypes, variable_dtypes
from mxamp.graph.output_names import output_names
from mxamp.params.parameter import ArrayParameter, Parameter
from mxamp.passes.base import GraphPass
from mxamp.passes.edit import GraphEdit
from mxamp.passes.mask_operators import find_masks, has_masks
from mxamp.passes.mask_values import SCORES_BELOW, Findings
from mxamp.policy.color import Color
from mxamp.policy.policy import Policy

__all__ = ["RewriteMasks", "RewrittenMask"]


@dataclass(frozen=True)
class RewrittenMask:
    """What became of one constant beyond the dtype's range.

    Attributes
    ----------
    node
        The node whose attribute it is, or the parameter that holds it.
    op
        The operator; ``null`` for a parameter.
    before
        The value it had.
    after
        The value it has now; None where it stays.
    reason
        Why it stays; empty where it does not.
    inserted
        The nodes put in for it: each bounds the values of the node it follows.
    """

    node: str
    op: str
    before: float
    after: float | None
    reason: str = ""
    inserted: tuple[str, ...] = ()


class RewriteMasks(GraphPass):
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

    Parameters
    ----------
    arg_params, aux_params
        The parameters.
    policy
        The policy: its dtype, and the user's wishes.

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

    def __init__(
        self, arg_params: Mapping[str, Parameter], aux_params: Mapping[str, Parameter], policy: Policy
    ) -> None:
        self._params = {**arg_params, **aux_params}
        self._policy = policy
        self._dtype = policy.target_dtype
        self.arg_params = arg_params
        """The parameters after. Set by :meth:`run`."""
        self.positions: Sequence[int] = ()
        """For every node of the new graph the node before whose values it has. Set by :meth:`run`."""
        self.masks: tuple[RewrittenMask, ...] = ()
        """What became of each constant. Set by :meth:`run`."""

    def run(self, graph: Graph) -> Graph:
        """Return the graph with masks that the dtype holds."""
        self.positions = range(len(graph.nodes))
        if self._dtype.max_finite < 2 * SCORES_BELOW - 1024 or not has_masks(
            graph, self._params, self._dtype
        ):
            return graph
        stored = {name: parameter.dtype for name, parameter in self._params.items()}
        dtypes = infer_dtypes(graph, variable_dtypes(graph, stored))
        found = find_masks(graph, dtypes, self.arg_params, self._dtype, self._is_kept)
        after = self._rewrite(graph, found) if found.masks else graph
        self._note_refusals(graph, found)
        return after

    def ensures(self, before: Graph, after: Graph) -> None:
        """Check that the names of inputs and outputs are kept."""
        if output_names(before) != output_names(after) or list(before.variables) != list(after.variables):
            raise PassError("The names of the graph's inputs or outputs changed.")

    def _is_kept(self, node: Node) -> bool:
        """Whether a rule of the user's keeps a node in FP32."""
        rule = next((rule for rule in self._policy.rules if rule.selector.picks(node)), None)
        return rule is not None and rule.color is Color.RED

    def _rewrite(self, graph: Graph, found: Findings) -> Graph:
        edit = GraphEdit(graph, self._params)
        inserted: dict[int, list[str]] = {}
        limit = self._dtype.max_finite
        for position, mask in sorted(found.masks.items()):
            node = graph.nodes[position]
            if mask.attribute is None:
                edit.change_parameter(position, _replaced(self._params[node.name], mask.before, mask.after))
            elif not mask.capped:
                edit.replace(position, node._replace(attrs={**node.attrs, mask.attribute: repr(mask.after)}))
        capped = {position: (-limit, (position,)) for position, mask in found.masks.items() if mask.capped}
        for position, (low, carried) in sorted({**capped, **found.bounds}.items()):
            clip = {"a_min": repr(low), "a_max": repr(limit)}
            name = f"{graph.nodes[position].name}_bounded"
            bounded = edit.insert(Node("clip", name, clip, (Entry(position),)), after=position)
            for use in graph.uses_of(Entry(position)):
                edit.connect(use, bounded)
            for source in carried:
                inserted.setdefault(source, []).append(edit.node(bounded).name)
        edited = edit.finish()
        self.positions = edited.nodes.origins
        self.arg_params = {name: edited.params.get(name, value) for name, value in self.arg_params.items()}
        self.masks = tuple(
            RewrittenMask(
                graph.nodes[position].name,
                graph.nodes[position].op,
                mask.before,
                mask.after,
                inserted=tuple(inserted.get(position, ())),
            )
            for position, mask in sorted(found.masks.items())
        )
        return edited.graph

    def _note_refusals(self, graph: Graph, found: Findings) -> None:
        refused = [
            RewrittenMask(graph.nodes[position].name, graph.nodes[position].op, before, None, reason)
            for position, (before, reason) in sorted(found.refused.items())
        ]
        self.masks = (*self.masks, *refused)


def _replaced(parameter: Parameter, before: float, after: float) -> Parameter:
    values = parameter.values()
    return ArrayParameter(np.where(values == np.float32(before), np.float32(after), values))
