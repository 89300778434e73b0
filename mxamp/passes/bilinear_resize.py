"""Resize images bilinearly by two products with matrices, one for rows and one for columns."""

from __future__ import annotations

from typing import Callable, NamedTuple

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Node
from mxamp.ops.attributes import is_true
from mxamp.passes.edit import GraphEdit
from mxamp.passes.preparation import NodeRewrite, own_attributes
from mxamp.passes.state import State

_FEWEST_VALUES = 1 << 17
"""Of fewer results the matrices take as long as they save."""

_MOST_PRODUCTS = {8: 264, 16: 160}
"""Values of a vector -> so many multiply-adds a result have been seen to take less than MXNet's loop does
for one: with 8, 32 channels from 128 x 128 to 256 x 256 16.7 and 12.1 ms, from 176 x 176 to 352 x 352 33.7
and 25.2 (an AMD EPYC of family 23)."""

_LOOP_NS, _NEARLY_ALIKE_NS, _A_CHANNEL_NS = 1.75, 2.2, 0.27
"""What MXNet's loop takes for a result, and where an image is about a multiple of 4,096 bytes. Where it is
one, all channels share one set of the first cache, and each of those that find no way takes so much more."""

_NEARLY_ALIKE = 8
_WAYS, _MOST_CHANNELS = 12, 32
"""Up to so many channels find one, and beyond so many the next cache is the same to all. What was measured of
85 kinds of resizes is 1.5 to 2.1 in the usual case, 2.2 to 2.9, 2.2 to 4.0 for 12 channels and 7.6 to 8.6 for
32 and more (an AMD EPYC of family 23)."""


class _Nanoseconds(NamedTuple):
    """What the products take for a result: in any case, for each place of the image, for a multiply-add."""

    once: float
    place: float
    multiply_add: float


_OF_LAYERS, _OF_DOTS = _Nanoseconds(0.36, 0.83, 0.163), _Nanoseconds(0.92, 0.46, 0.207)
"""Two FullyConnected and two ``dot``, with moves; for so many multiply-adds as a vector has values. Fitted to
the same: off by a tenth (root mean square)."""

_CLEARLY = 1.15
"""How much longer the loop must take."""

_PAGE = 4096
_FLOAT = 4

_IMAGE = 4

_LEAST_SIZE = 2
"""Of one result there is no step from one to the next."""


class RewriteBilinearResize(NodeRewrite):
    """Replace BilinearResize2D by products with two matrices of weights.

    Before::

        x -> _contrib_BilinearResize2D {height: 480, width: 640} -> y

    After, where ``w(x, axis, size)`` has a row for each result along an axis, in which the two places that it
    lies between have their weights, and all others zero::

        x -> transpose (t) -> FullyConnected(w(t, 3, 480)) -> transpose -> FullyConnected(w(t, 2, 640)) -> y

        w: relu(1 - |min(arange(size) * last / (size - 1), last) - places|)
        places: arange_like(x, axis), last: max(places)

    With ``align_corners=False`` results lie at (arange(size) + 0.5) * (last + 1) / size - 0.5, from 0 to last
    at most.

    The matrices are made in the graph, so that images of every size are resized. Where sizes are so many
    times those of the image (``scale_height`` and ``scale_width``), the products are ``dot``, and places are
    repeated as often for as many results.

    Refuses: sizes that are 1, or are given in another way; scales that are no whole numbers, or not given
    for both; where no shape is known, there are fewer than 2^17 results, or the products would take
    longer, or are more for each than were timed; other dtypes than float32; numpy's shape semantics; a
    node that a rule of the user's picks; targets that do not name the pass; the bodies of control flow.
    The node may be a graph output, for its name stays.

    Notes
    -----
    Why: MXNet's loop goes over the channels of one place after the other, which lie a whole image apart. 19
    channels from 96 x 96 to 768 x 768 take 34 ms and so 11, 21 from 60 x 60 to 480 x 480 16 and 3.1, of eight
    images 255 and 26, 128 from 24 x 24 to 96 x 96 8.3 and 0.5 (AMD EPYC of family 26, float32, one thread).
    All these results have planes of a multiple of 4,096 bytes, where the loop is slow. 64 channels from 56 x
    56 to 112 x 112, which have not, take 1.6 ms and would take 1.9, with scales 2.4, without AVX-512 (family
    23); 64 from 20 x 20 to 80 x 80 0.73 and 0.37.

    The same up to rounding: of two products that are not zero each sum has no more than two terms, and
    weights differ from MXNet's by 2^-25 at most (with ``align_corners=False``, where a position is rounded
    otherwise, by 2^-24 of it; neither is nearer to the exact value). Where x holds an infinity or NaN, its
    whole row and column become NaN, and not its neighbours alone. What positions make is exact, so the
    weights, and with them the products, stay float32. Linear in nodes.

    References
    ----------
    ``SpatialUpSamplingBilinearUpdateOutput`` and ``area_pixel_compute_source_index`` in
    src/operator/contrib/bilinear_resize.cc of apache/mxnet 1.9.1: places and weights.
    """

    step = "bilinear_resize"
    operators = frozenset({"_contrib_BilinearResize2D"})
    asks_target = True

    def rewrite_node(self, state: State, edit: GraphEdit, position: int) -> str | None:
        """Write one resize."""
        graph, node = state.graph, state.graph.nodes[position]
        wanted = _wanted(node)
        if wanted is None or graph.has_numpy_shapes or state.certain_dtypes[position][0] is not DType.FLOAT32:
            return None
        x = node.inputs[0]
        shape = state.usual_shape(x)
        if shape is None or len(shape) != _IMAGE or not _pays(shape, wanted, state.target.block):
            return None
        is_known = state.shape(x) is not None
        (height, width), (n, c, rows, columns) = wanted.sizes(shape), shape

        def put(op: str, what: str, like: tuple[int, ...], *inputs: Entry, **attrs: str) -> Entry:
            return edit.part(position, op, what, *inputs, like=like if is_known else None, **attrs)

        op, by_height, by_width = wanted.products
        turned = put("transpose", "turned", (n, c, columns, rows), x, axes="(0, 1, 3, 2)")
        # What a layer wrote would be brought into plain order for each that asks for its shape.
        by_row = _weights(put, "row", turned, 3, (rows, height), wanted)
        tall = put(op, "tall", (n, c, columns, height), turned, by_row, **by_height)
        back = put("transpose", "back", (n, c, height, columns), tall, axes="(0, 1, 3, 2)")
        by_column = _weights(put, "column", turned, 2, (columns, width), wanted)
        attrs = {**own_attributes(node), **by_width}
        edit.replace(position, node._replace(op=op, attrs=attrs, inputs=(back, by_column)))
        return "products with two matrices of weights are the same, with a kernel of the backend"


_Put = Callable[..., Entry]


def _weights(
    put: _Put, what: str, image: Entry, axis: int, lengths: tuple[int, int], wanted: _Wanted
) -> Entry:
    """Put in the weights of all places along an axis for each result, and return them: (size, places)."""
    places, size = lengths
    own = put("_contrib_arange_like", f"{what}_places", (places,), image, axis=str(axis))
    last = put("max", f"{what}_last", (1,), own, axis="0", keepdims="True")
    # Between the first and the last of both, or of all places with half of one at either end.
    whole = last if wanted.are_aligned else put("_plus_scalar", f"{what}_whole", (1,), last, scalar="1")
    if wanted.are_scales:
        repeated = put("tile", f"{what}_repeated", (size,), own, reps=str((size // places,)))
        results = put("_contrib_arange_like", f"{what}_results", (size,), repeated, axis="0")
        end = put("max", f"{what}_end", (1,), results, axis="0", keepdims="True")
        if not wanted.are_aligned:
            end = put("_plus_scalar", f"{what}_size", (1,), end, scalar="1")
        step = put("broadcast_div", f"{what}_step", (1,), whole, end)
    else:
        ends = size - 1 if wanted.are_aligned else size
        step = put("_div_scalar", f"{what}_step", (1,), whole, scalar=str(ends))
        results = put("_arange", f"{what}_results", (size,), start="0", stop=str(size), dtype="float32")
    if wanted.are_aligned:
        far = put("broadcast_mul", f"{what}_far", (size,), results, step)
    else:
        middles = put("_plus_scalar", f"{what}_middles", (size,), results, scalar="0.5")
        moved = put("broadcast_mul", f"{what}_moved", (size,), middles, step)
        around = put("_minus_scalar", f"{what}_around", (size,), moved, scalar="0.5")
        far = put("Activation", f"{what}_far", (size,), around, act_type="relu")
    # The last one's is rounded, too, and must not lie beyond the last place.
    near = put("broadcast_minimum", f"{what}_near", (size,), far, last)
    lines = put("Reshape", f"{what}_lines", (size, 1), near, shape="(-1, 1)")
    line = put("Reshape", f"{what}_line", (1, places), own, shape="(1, -1)")
    apart = put("broadcast_sub", f"{what}_apart", (size, places), lines, line)
    distance = put("abs", f"{what}_distance", (size, places), apart)
    nearness = put("_rminus_scalar", f"{what}_nearness", (size, places), distance, scalar="1")
    return put("Activation", f"{what}_weights", (size, places), nearness, act_type="relu")


class _Wanted(NamedTuple):
    """What a resize makes.

    Attributes
    ----------
    height, width
        The sizes of its result, or how many times those of the image they are.
    are_scales
        Whether they are so many times those.
    are_aligned
        Whether the corners of both lie upon each other, or else the edges of what is around them.
    """

    height: int
    width: int
    are_scales: bool
    are_aligned: bool

    def sizes(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the height and width of the result for an image."""
        rows, columns = shape[2:] if self.are_scales else (1, 1)
        return self.height * rows, self.width * columns

    @property
    def products(self) -> tuple[str, dict[str, str], dict[str, str]]:
        """The operator that multiplies with weights, and its attributes for rows and for columns.

        A FullyConnected says how many results there are.
        """
        if self.are_scales:
            attrs = {"transpose_b": "True"}
            return "dot", attrs, attrs
        by_height, by_width = (
            {"num_hidden": str(size), "no_bias": "True", "flatten": "False"}
            for size in (self.height, self.width)
        )
        return "FullyConnected", by_height, by_width


def _wanted(node: Node) -> _Wanted | None:
    """Return what a resize makes; None where it is another kind."""
    attrs = node.attrs
    if len(node.inputs) != 1 or attrs.get("mode", "size") != "size":
        return None
    scales = [attrs.get(name, "None") for name in ("scale_height", "scale_width")]
    are_scales = scales != ["None", "None"]
    given = tuple(map(_whole, scales if are_scales else [attrs.get("height", ""), attrs.get("width", "")]))
    are_aligned = is_true(attrs, "align_corners", default=True)
    return _Wanted(given[0], given[1], are_scales, are_aligned) if min(given) >= _LEAST_SIZE else None


def _whole(given: str) -> int:
    """Return a size, or a scale, that is a whole number; 0 where it is none."""
    try:
        value = float(given)
    except ValueError:
        return 0
    return int(value) if value.is_integer() else 0


def _pays(shape: tuple[int, ...], wanted: _Wanted, vector: int) -> bool:
    """Return whether products take less than MXNet's loop, with vectors of so many float32."""
    (n, c, rows, columns), (height, width) = shape, wanted.sizes(shape)
    products = columns + rows * columns / width
    if n * c * height * width < _FEWEST_VALUES or products > _MOST_PRODUCTS[vector]:
        return False
    ns = _OF_DOTS if wanted.are_scales else _OF_LAYERS
    return _CLEARLY * (ns.once + ns.place * columns / width + ns.multiply_add / vector * products) < _loop_ns(
        c, height * width
    )


def _loop_ns(channels: int, places: int) -> float:
    """Return what MXNet's loop takes for a result."""
    beyond = _FLOAT * places % _PAGE
    if min(beyond, _PAGE - beyond) > _NEARLY_ALIKE:
        return _LOOP_NS
    without = max(0, min(channels, _MOST_CHANNELS) - _WAYS) if beyond == 0 else 0
    return _NEARLY_ALIKE_NS + _A_CHANNEL_NS * without
