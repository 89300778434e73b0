"""Abstract values of tensors that may hold mask constants, and the arithmetic of such values.

Every node gets a :class:`Form`: which constants its elements can be, and whether there are other values that
nobody knows. :mod:`mxamp.passes.mask_operators` says what each operator makes of the forms it reads;
:class:`mxamp.passes.rewrite_masks.RewriteMasks` acts on what was found, and argues why that is right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Mapping, NamedTuple, Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.graph.graph import Graph, Node
from mxamp.graph.infer import EntryDtypes
from mxamp.ops import FACTS, ValueKind
from mxamp.params.parameter import Parameter

SCORES_BELOW = 2.0**15
"""Scores beyond half the range of float16 are not for float16."""
_MOST_LEVELS = 8
"""More constants than this in one tensor are no mask."""
_VANISHING_EXPONENT = 104.0
"""exp(-104) is zero in float32: less than half of its smallest subnormal, 2**-149."""
LARGEST_TEMPERATURE = 16.0
"""A softmax that divides by more than this brings a mask too near to the scores."""


class Level(NamedTuple):
    """One constant that elements can be.

    Attributes
    ----------
    before
        Its value in FP32, in the graph as it is.
    after
        Its value where the mask is rewritten.
    source
        The position of the node it comes from; -1 for one that no rewriting touches.
    scales
        Whether it is the factor of values that nobody knows, and so far added to no scores. Beside scores a
        factor of -1e18 can only say which of them count; alone it may be there to tell the values apart.
    """

    before: float
    after: float
    source: int = -1
    scales: bool = False

    @property
    def rewritten(self) -> bool:
        """Whether rewriting changes it."""
        return self.source >= 0 and self.before != self.after


class Form(NamedTuple):
    """What the elements of a tensor can be.

    Attributes
    ----------
    other
        Whether some can be values that nobody knows, of a size that the dtype holds.
    levels
        The constants that the rest are.
    flags
        Whether the values that nobody knows can be the zeros and ones of a mask: those of an input of the
        model, moved, multiplied and subtracted from one, and no layer's.
    """

    other: bool
    levels: tuple[Level, ...] = ()
    flags: bool = False

    @property
    def rewritten(self) -> tuple[Level, ...]:
        """The constants that rewriting changes."""
        return tuple([level for level in self.levels if level.rewritten])


OTHER = Form(True)
"""Values that nobody knows."""
FLAGS = Form(True, (), flags=True)
"""Values that nobody knows of an input, which may be a mask."""
WILD = Form(True, (Level(-math.inf, -math.inf),))
"""Values beyond the range that stay as they are."""


@dataclass(frozen=True)
class MaskConstant:
    """One constant to be replaced.

    Attributes
    ----------
    attribute
        The attribute that holds it; None where it is a parameter's.
    before, after
        The value, and what takes its place.
    capped
        Whether the attribute stays and the node's values are clipped instead, because it scales values that
        nobody knows.
    """

    attribute: str | None
    before: float
    after: float
    capped: bool = False


@dataclass(frozen=True)
class Findings:
    """What was found about the masks of a graph.

    Attributes
    ----------
    masks
        Node position -> the constant to be replaced there.
    bounds
        Position of an addition whose result must be bounded -> the bound, and the masks it carries.
    refused
        Position of a node with a constant beyond the range -> the constant, and why it stays.
    """

    masks: Mapping[int, MaskConstant]
    bounds: Mapping[int, tuple[float, frozenset[int]]]
    refused: Mapping[int, tuple[float, str]]


class MaskFlow:
    """The forms of a graph's nodes, as far as they are known, and the masks found on the way.

    Parameters
    ----------
    graph
        The graph.
    dtypes
        The dtype of every entry.
    params
        Parameters by name.
    dtype
        The low dtype.
    """

    def __init__(
        self,
        graph: Graph,
        dtypes: EntryDtypes,
        params: Mapping[str, Parameter],
        dtype: DType,
    ) -> None:
        self.graph, self.dtypes, self.params = graph, dtypes, params
        self.dtype = dtype
        self.forms: list[Form] = []
        self._absorbs_scores = _half_ulp(dtype.max_finite) >= SCORES_BELOW
        self._masks: dict[int, MaskConstant] = {}
        self._bounded: dict[int, tuple[float, tuple[int, ...]]] = {}
        self._parents: dict[int, int] = {}
        self._reasons: dict[int, str] = {}
        self._reached: set[int] = set()

    # ------------------------------------------------------------------ masks that stand or fall together

    def _root(self, source: int) -> int:
        parents = self._parents
        while source in parents:
            above = parents[source]
            if above in parents:
                parents[source] = parents[above]
            source = above
        return source

    def _join(self, levels: Sequence[Level]) -> int:
        """Let the masks behind some levels stand or fall together; return any of them, or -1."""
        roots = list(dict.fromkeys([self._root(level.source) for level in levels if level.source >= 0]))
        for root in roots[1:]:
            self._parents[root] = roots[0]
        return roots[0] if roots else -1

    def refuse(self, forms: Sequence[Form], reason: str) -> None:
        """Give up the masks that some forms carry."""
        for form in forms:
            for level in form.rewritten:
                self._reasons.setdefault(level.source, reason)

    def lose(self, node: Node, forms: Sequence[Form], why: str = "") -> Form:
        """Refuse what a node reads; its values stay beyond the range unless the operator ends that."""
        carried = any(form.rewritten for form in forms)
        self.refuse(forms, why or f"{node.name!r} ({node.op}) reads it, and might give another result")
        return WILD if carried and hands_on(node) else self.unknown(node, forms)

    def unknown(self, node: Node, forms: Sequence[Form]) -> Form:
        """Return what an operator makes of which no more is known than its facts."""
        wild = hands_on(node) and any(self.is_wild(level) for form in forms for level in form.levels)
        return WILD if wild else OTHER

    def findings(self) -> Findings:
        """Return what was found."""
        why: dict[int, str] = {}
        for source, reason in self._reasons.items():
            why.setdefault(self._root(source), reason)
        reached = {self._root(source) for source in self._reached}
        kept: dict[int, MaskConstant] = {}
        refused: dict[int, tuple[float, str]] = {}
        for source, mask in self._masks.items():
            root = self._root(source)
            if root in why:
                refused[source] = (mask.before, why[root])
            elif root in reached:
                kept[source] = mask
        bounds = {}
        for position, (bound, sources) in self._bounded.items():
            roots = {self._root(source) for source in sources}
            carried = frozenset(source for source in kept if self._root(source) in roots)
            if carried:
                bounds[position] = (bound, carried)
        return Findings(kept, bounds, refused)

    # ------------------------------------------------------------------ constants

    def is_oversized(self, value: float | None) -> bool:
        """Whether a constant is beyond the dtype's range; infinity is not."""
        return value is not None and self.dtype.max_finite < abs(value) < math.inf

    def is_wild(self, level: Level) -> bool:
        """Whether a constant is beyond the dtype's range and stays."""
        return not level.rewritten and not abs(level.before) <= self.dtype.max_finite

    def constant(self, position: int, attribute: str, value: float) -> Form:
        """Return the form of an attribute: a mask's where it is beyond the range."""
        if self.is_oversized(value) and self.dtypes[position][0] is DType.FLOAT32:
            return Form(False, (self.mask(position, attribute, value),))
        return Form(False, (Level(value, value),))

    def is_capped(self, position: int) -> bool:
        """Whether a node scales what nobody knows, and its values will be clipped."""
        return position in self._masks and self._masks[position].capped

    def mask(self, position: int, attribute: str | None, before: float, *, capped: bool = False) -> Level:
        """Enter a constant to be replaced."""
        after = math.copysign(self.dtype.max_finite, before)
        self._masks[position] = MaskConstant(attribute, before, after, capped)
        return Level(float(np.float32(before)), after, position, capped)

    # ------------------------------------------------------------------ arithmetic

    def union(self, forms: Sequence[Form]) -> Form:
        """Return the form of elements from any of some tensors."""
        levels = {(level.before, level.after, level.scales): level for form in forms for level in form.levels}
        other = any(form.other for form in forms)
        flags = other and all(form.flags or (not form.other and _is_flag(form)) for form in forms)
        found = Form(other, tuple(levels.values()), flags)
        if len(levels) > _MOST_LEVELS:
            self.refuse(forms, "it meets too many other constants")
            return WILD if found.rewritten or any(map(self.is_wild, found.levels)) else OTHER
        self._join([level for form in forms for level in form.rewritten])
        return found

    def pairwise(
        self, node: Node, combine: Callable[[np.float32, np.float32], np.float32], left: Form, right: Form
    ) -> Form:
        """Combine two tensors of constants."""
        found = []
        with np.errstate(all="ignore"):
            for one in left.levels:
                for two in right.levels:
                    before = float(combine(np.float32(one.before), np.float32(two.before)))
                    after = float(combine(np.float32(one.after), np.float32(two.after)))
                    source = self._join([level for level in (one, two) if level.rewritten])
                    found.append(Level(before, after, source, one.scales or two.scales))
        if any(level.rewritten and not abs(level.after) <= self.dtype.max_finite for level in found):
            reason = f"{node.name!r} ({node.op}) would make its replacement leave {self.dtype}'s range again"
            return self.lose(node, [left, right], reason)
        return self.union([Form(False, tuple(found))])

    def scaled(self, node: Node, form: Form, factor: float, *, divide: bool = False) -> Form:
        """Return a form times, or divided by, a factor of ordinary size."""
        constants = self.pairwise(
            node,
            np.divide if divide else np.multiply,
            Form(False, form.levels),
            Form(False, (Level(factor, factor),)),
        )
        return Form(form.other or constants.other, constants.levels, form.flags and abs(factor) == 1)

    def product(self, node: Node, left: Form, right: Form) -> Form:
        """Return the form of a product of two tensors."""
        if not left.other and not right.other:
            return self.pairwise(node, np.multiply, left, right)
        return FLAGS if _are_flags(left, right) else self.lose(node, [left, right])

    def sum(self, position: int, node: Node, left: Form, right: Form) -> Form:
        """Return the form of a sum of two tensors; one of scores and a mask is bounded where need be."""
        if not left.other and not right.other:
            return self.pairwise(node, np.add, left, right)
        masks = (*left.rewritten, *right.rewritten)
        if not masks:
            return FLAGS if _are_flags(left, right) else self.unknown(node, [left, right])
        if (left.rewritten and right.rewritten) or any(map(self.is_wild, (*left.levels, *right.levels))):
            reason = f"{node.name!r} ({node.op}) adds another value beyond {self.dtype}'s range to it"
            return self.lose(node, [left, right], reason)
        if any(level.before > 0 for level in masks):
            return self.lose(node, [left, right])
        for level in masks:
            lost_below = _half_ulp(level.before)
            if lost_below < SCORES_BELOW:
                reason = (
                    f"{node.name!r} ({node.op}) adds it to scores: beside {level.before:.4g} float32 "
                    f"still tells apart what differs by {2 * lost_below:.3g}, and {self.dtype} cannot"
                )
                return self.lose(node, [left, right], reason)
        if not self._absorbs_scores:
            bound = _half(max(level.after for level in masks))
            self._bounded[position] = (bound, tuple([level.source for level in masks]))
            masks = tuple([level._replace(after=bound) for level in masks])
        if (right if left.rewritten else left).other:
            masks = tuple([level._replace(scales=False) for level in masks])
        return self.union([Form(True, masks)])

    # ------------------------------------------------------------------ where a mask ends

    def end(self, node: Node, forms: Sequence[Form]) -> Form:
        """Check what an operator reads that makes nothing of a value far below all others."""
        form = forms[0]
        self.refuse(forms[1:], f"{node.name!r} ({node.op}) reads it, and might give another result")
        masks = form.rewritten
        if not masks:
            return OTHER
        self._reached.update(level.source for level in masks)
        first = masks[0]
        nearest = first.after + _VANISHING_EXPONENT * LARGEST_TEMPERATURE
        if any(level.scales for level in masks):
            self.refuse([form], f"{node.name!r} ({node.op}) may tell apart what it scales")
        elif len({(level.before, level.after) for level in masks}) > 1:
            self.refuse([form], f"{node.name!r} ({node.op}) reads masks of different values")
        elif any(map(self.is_wild, form.levels)):
            reason = f"{node.name!r} ({node.op}) reads other values beyond {self.dtype}'s range, too"
            self.refuse([form], reason)
        elif not first.before <= first.after <= -self.dtype.max_finite / 4 or any(
            level.before < nearest for level in form.levels if not level.rewritten
        ):
            reason = f"{node.name!r} ({node.op}) would read {first.after:.5g}, not far below all scores"
            self.refuse([form], reason)
        return OTHER


def _is_flag(form: Form) -> bool:
    """Whether all constants are those that masks are computed from."""
    return all(level.before in (-1.0, 0.0, 1.0) and not level.rewritten for level in form.levels)


def _are_flags(left: Form, right: Form) -> bool:
    """Whether a sum or product of two tensors may be a mask still: ``1 - m``, ``m * n``."""
    return all(_is_flag(form) and (form.flags or not form.other) for form in (left, right))


def hands_on(node: Node) -> bool:
    """Whether an operator's values may be as large as those it reads."""
    facts = FACTS.of(node.op, node.attrs)
    return facts is None or facts.kind in (ValueKind.MOVE, ValueKind.AFFINE)


def _half_ulp(value: float) -> float:
    """Return what FP32 loses when it is added to ``value``, at least."""
    return float(math.ldexp(1.0, math.frexp(value)[1] - 25))


def _half(level: float) -> float:
    """Return the least power of two that is half of a negative level or more, negative too."""
    significand, exponent = math.frexp(-level)
    return -math.ldexp(1.0, exponent - (2 if significand == 0.5 else 1))
