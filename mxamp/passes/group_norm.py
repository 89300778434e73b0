"""Compute GroupNorm by rows, with the operator that has a fast loop for them."""

from __future__ import annotations

import math
from typing import NamedTuple, Sequence, Tuple

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops.attributes import integers
from mxamp.passes.edit import GraphEdit
from mxamp.passes.instance_norm import reads_statistics
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_EPSILON = "1e-12"
"""Added to the variance of a row, so that one of equal values is divided by something: its square root is
multiplied with again."""

_USUAL_EPSILON = "1e-05"

_LEAST_EPSILON = 1e-6
"""Of a smaller one, what is added to the variance of a row would be more than rounding."""

_SMALLEST = 1 << 12
"""Values of an image below which the operator is as fast as it is: the form is two dozen small nodes."""

_SEQUENCE, _IMAGE = 1, 2
"""Axes of places."""

_LEAST_WIDTH = 32
"""Values of a row, of which fewer are not worth a row of their own."""

_Shape = Tuple[int, ...]


class RewriteGroupNorm(NodeRewrite):
    """Replace GroupNorm by a LayerNorm over rows, and what makes statistics of groups of theirs.

    Before, of an image, or of a volume, of which two axes are as one::

        x (N, C, H, W) -> GroupNorm {num_groups: G} (gamma, beta) -> y

    After, with K = C / G * H rows in a group::

        rows = Reshape(x) to (N, G, K, W)
        normal, mean, std = LayerNorm(rows, ones, zeros)
        apart = mean - the mean of mean over K; apart -= the mean of apart + std * dot(normal, 1 / W) over K
        scale = rsqrt(the mean of std^2 + apart^2 over K + eps) * gamma
        y = normal * (std * scale) + (apart * scale + beta), in the shape of x

    Of a sequence (N, C, L) a row has as many values as a group has channels, K = L, where these are 32 or
    more: a group lies side by side, so any part of it will do. Else it is the L values of a channel. Ones and
    shares are made in the graph, as long as a row is, so that the model runs for any sides.

    Refuses: an ``eps`` under 1e-6; where x is not certainly a sequence, an image or a volume, or gamma or
    beta are no float32 parameters; where the mean or variance is read; other dtypes than float32; what is
    known to be of less than 4,096 values; a node that a rule of the user's picks; targets that do not name
    the pass; the bodies of control flow. The node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet 1.9.1 computes GroupNorm by expressions that it evaluates for each value anew, in one thread
    and without vector instructions, and its sums correct for what each addition loses. 32 channels of 56 x 56
    take 1.28 ms and so 0.39, of 112 x 112 5.1 and 1.34, 256 of 14 x 14 in 32 groups 0.56 and 0.25 (AMD EPYC
    of family 26, one thread). 128 channels of 1,000 steps take 1.84 ms and so 0.77, of 16 channels 24 x 32 x
    32 in 4 groups 4.8 and 2.2 (an Intel Xeon, one thread).

    As exact where rows differ. The variance of a group is the mean of its rows' plus the variance of their
    means (Chan et al., "Updating formulae and a pairwise algorithm for computing sample variances", 1979), so
    no sum has more terms than a row, or there are rows in a group, and MXNet's mean of those corrects for
    what it loses. What the mean of a row has lost is what its normalized values have as theirs, and is added.
    Against float64, over images around 0, 5 and 100, the largest error is 0.2 to 2 times GroupNorm's own, the
    root of the mean square 0.03 to 2 times; there is no bias, where GroupNorm's mean rounds once for the
    whole group. Where most rows are of one value it is larger, up to 1e-5 of results around 1 for rows of
    2,048 values; and so in sequences with few channels a group, whose rows are long (3,000 steps: 4 times
    GroupNorm's largest error, 9 around 100). Groups that hold an infinity or NaN are NaN in either form, and
    so are here those whose squares overflow when they are added up. Linear in nodes.

    References
    ----------
    Wu and He, "Group Normalization", 2018.
    """

    step = "group_norm"
    operators = frozenset({"GroupNorm", "_npx_group_norm"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one GroupNorm."""
        node = state.graph.nodes[position]
        groups = (integers(node.attrs.get("num_groups", "1")) or (0,))[0]
        if (
            len(node.inputs) != 3
            or float(node.attrs.get("eps", _USUAL_EPSILON)) < _LEAST_EPSILON
            or node.inputs[0].node not in state.places
            or state.dtypes[position][0] is not DType.FLOAT32
            or reads_statistics(state.graph, position)
            or not all(_is_of_groups(state, entry, groups) for entry in node.inputs[1:])
        ):
            return None
        shape = state.shape(node.inputs[0])
        if shape is not None and (math.prod(shape) < _SMALLEST or shape[1] % groups):
            return None
        rows = _Rows.of(state, node.inputs[0], groups)
        _Form(edit, position, rows, shape, groups).write(own_attributes(node))
        return "LayerNorm normalizes rows several times as fast, and groups are made of them"


def _is_of_groups(state: State, entry: Entry, groups: int) -> bool:
    parameter = state.parameter(entry)
    return (
        parameter is not None
        and parameter.dtype is DType.FLOAT32
        and not parameter.is_sparse
        and parameter.shape == (groups,)
    )


class _Rows(NamedTuple):
    """How a tensor is read as rows.

    Attributes
    ----------
    before
        What it is first, and in which shape, as Reshape writes it.
    shape
        Its last shape: batch, groups, rows of a group, and the values of a row.
    width
        The values of a row, where that is no axis of the tensor.
    """

    before: Sequence[tuple[str, str]]
    shape: str
    width: int | None = None

    @classmethod
    def of(cls, state: State, entry: Entry, groups: int) -> _Rows:
        """Return how a sequence, an image or a volume is read, certainly for any sides."""
        split = f"(0, -4, {groups}, -1, 0)"
        axes = state.places[entry.node]
        if axes != _SEQUENCE:
            planes = ("planes", "(0, -3, 0, 0)")
            return cls((*[planes] * (axes - _IMAGE), ("flat", "(0, -3, 0)")), split)
        channels = state.image_origins.channels_of(entry)
        if channels is not None and not channels % groups and channels // groups >= _LEAST_WIDTH:
            return cls((), f"(0, {groups}, -1, {channels // groups})", channels // groups)
        return cls((), split)


class _Form:
    """Puts the nodes in that take a GroupNorm's place."""

    def __init__(
        self, edit: GraphEdit, position: int, rows: _Rows, shape: _Shape | None, groups: int
    ) -> None:
        self._edit = edit
        self._position = position
        self._node = edit.node(Entry(position))
        self._read = rows
        self._groups = groups
        self._shape = shape
        shape = (1, groups, 1) if shape is None else shape
        self._width = rows.width or shape[-1]
        self._batch = (shape[0], groups)
        self._rows = math.prod(shape[1:]) // groups // self._width

    def write(self, attrs: dict[str, str]) -> None:
        """Write the node anew, behind all that it reads.

        Statistics are added with ``broadcast_add``, which stays float32 on CPUs, as a sum of two need not.
        """
        image, gamma, beta = self._node.inputs
        each, group = (*self._batch, self._rows, 1), (*self._batch, 1, 1)
        rows = self._in_rows(image)
        ones = self._row_of_ones(rows)
        normal, mean, std = self._normalized(rows, ones)

        length = self._put("dot", "length", (1,), ones, ones)
        shares = self._put("broadcast_div", "shares", (self._width,), ones, length)
        rest = self._put("dot", "rest", each[:-1], normal, shares)
        lost = self._put("broadcast_mul", "lost", each, self._column("rests", rest), std)
        apart = self._put("broadcast_sub", "around", each, mean, self._mean_of("middle", mean))
        found = self._put("broadcast_add", "found", each, apart, lost)
        apart = self._put("broadcast_sub", "apart", each, apart, self._mean_of("found_middle", found))

        squares = [
            self._put("square", f"{what}_square", each, of) for what, of in (("std", std), ("apart", apart))
        ]
        moments = self._put("broadcast_add", "moments", each, *squares)
        epsilon = self._node.attrs.get("eps", _USUAL_EPSILON)
        variance = self._mean_of("moment", moments)
        positive = self._put("_plus_scalar", "variance", group, variance, scalar=epsilon)
        inverse = self._put("rsqrt", "inverse", group, positive)
        scale = self._put("broadcast_mul", "scale", group, inverse, self._of_groups("gamma", gamma))
        factors = self._put("broadcast_mul", "factors", each, std, scale)
        moved = self._put("broadcast_mul", "moved", each, apart, scale)
        terms = self._put("broadcast_add", "terms", each, moved, self._of_groups("beta", beta))
        like = (*each[:-1], self._width)
        scaled = self._put("broadcast_mul", "scaled", like, normal, factors)
        whole = self._put("broadcast_add", "whole", like, scaled, terms)
        self._edit.replace(self._position, Node("reshape_like", self._node.name, attrs, (whole, image)))

    def _put(self, op: str, what: str, like: _Shape, *inputs: Entry, **attrs: str) -> Entry:
        known = None if self._shape is None else like
        return self._edit.part(self._position, op, what, *inputs, like=known, **attrs)

    def _in_rows(self, tensor: Entry) -> Entry:
        like = self._shape or ()
        for what, shape in self._read.before:
            like = (*like[:1], math.prod(like[1:3]), *like[3:])
            tensor = self._put("Reshape", what, like, tensor, shape=shape)
        like = (*self._batch, self._rows, self._width)
        return self._put("Reshape", "rows", like, tensor, shape=self._read.shape)

    def _row_of_ones(self, rows: Entry) -> Entry:
        places = self._put("_contrib_arange_like", "places", (self._width,), rows, axis="3")
        return self._put("ones_like", "ones", (self._width,), places)

    def _normalized(self, rows: Entry, ones: Entry) -> tuple[Entry, Entry, Entry]:
        """Put in what normalizes rows; return them, their means and the roots of their variances."""
        zeros = self._put("zeros_like", "zeros", (self._width,), ones)
        attrs = {"axis": "-1", "eps": _EPSILON, "output_mean_var": "True"}
        each = (*self._batch, self._rows, 1)
        known = ((*each[:-1], self._width), each, each)
        first = self._edit.insert(
            Node("LayerNorm", f"{self._node.name}_normalized", attrs, (rows, ones, zeros), 3),
            before=self._position,
            shapes=(None,) * len(known) if self._shape is None else known,
        )
        return first, Entry(first.node, 1), Entry(first.node, 2)

    def _mean_of(self, what: str, values: Entry) -> Entry:
        """Put in the mean over the rows of each group."""
        return self._put("mean", what, (*self._batch, 1, 1), values, axis="2", keepdims="True")

    def _column(self, what: str, values: Entry) -> Entry:
        return self._put("expand_dims", what, (*self._batch, self._rows, 1), values, axis="3")

    def _of_groups(self, what: str, values: Entry) -> Entry:
        return self._put("Reshape", what, (1, self._groups, 1, 1), values, shape="(1, -1, 1, 1)")
