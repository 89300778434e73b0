"""How long each axis of an entry certainly is, or which other axis it is certainly as long as.

A pass that splits or joins axes must be right for every call, though it knows the shapes of one. A size that
happens to be 1 there may be the batch's; one that a Reshape, a sum that keeps its axes or a parameter says is
always 1.
"""

from __future__ import annotations

from typing import Callable, Mapping, Sequence

from mxamp.graph.graph import VARIABLE, Entry, Graph, Node
from mxamp.ops import FACTS
from mxamp.ops.attributes import elements, integers, is_true
from mxamp.ops.shapes.elementwise import BROADCASTING
from mxamp.params.parameter import Parameter
from mxamp.passes.equal_shapes import KEEP_SHAPE
from mxamp.passes.images import is_shaped_like
from mxamp.passes.window_sizes import FoundSizes, Size, Sizes, convolved, deconvolved, padded, pooled

_MATRICES = frozenset({"batch_dot", "_linalg_gemm2"})
_WINDOWED = frozenset({"Convolution", "Deconvolution"})
REDUCTIONS = frozenset({"sum", "mean", "max", "min", "prod", "norm", "nansum", "nanprod"})
"""What takes the axes that it names."""


class AxisSizes:
    """The sizes of the axes of every entry, as far as they are the same in every call.

    Parameters
    ----------
    graph
        The graph.
    params
        Its parameters by name.
    shape
        The shape of an entry in one call; only its number of axes is looked at. None where it is not known.
    """

    def __init__(
        self,
        graph: Graph,
        params: Mapping[str, Parameter],
        shape: Callable[[Entry], tuple[int, ...] | None],
    ) -> None:
        self._shape = shape
        self._equal_parts = frozenset(
            position
            for position, node in enumerate(graph.nodes)
            if FACTS.canonical(node.op) == "SliceChannel"
        )
        self._sizes: list[Sizes | None] = []
        for position, node in enumerate(graph.nodes):
            parameter = params.get(node.name) if node.op == VARIABLE else None
            found: FoundSizes = None if node.is_variable else self._found(node)
            known = shape(Entry(position))
            if parameter is not None:
                self._sizes.append(parameter.shape)
            elif known is None and found is None:
                self._sizes.append(None)
            else:
                if found is None or (known is not None and len(found) != len(known)):
                    found = [None] * len(known or ())
                own = [("axis", position, axis) if size is None else size for axis, size in enumerate(found)]
                self._sizes.append(tuple(own))

    def of(self, entry: Entry) -> Sizes | None:
        """Return the sizes of an entry's axes; None where their number is not known."""
        if not entry.output or entry.node in self._equal_parts:
            return self._sizes[entry.node]
        known = self._shape(entry)
        return None if known is None else tuple([("axis", *entry, axis) for axis in range(len(known))])

    def _found(self, node: Node) -> FoundSizes:
        inputs = [self.of(entry) for entry in node.inputs]
        op = FACTS.canonical(node.op)
        first = inputs[0] if inputs else None
        if first is None and op in _WINDOWED and len(inputs) > 1 and inputs[1] is not None:
            # It takes nothing of another number of axes than its weight has.
            first = tuple([("axis", *node.inputs[0], axis) for axis in range(len(inputs[1]))])
        if first is None and op == "broadcast_to":
            return [size or None for size in integers(node.attrs.get("shape", "")) or ()] or None
        if first is None:
            return _reshaped(node, ()) if _says_all(node) else None
        if op in KEEP_SHAPE:
            return first
        if op in BROADCASTING:
            return None if None in inputs else _broadcast(*[sizes for sizes in inputs if sizes is not None])
        if op in _MATRICES:
            return _multiplied(node, first, inputs[1])
        if op == "dot":
            return _projected(node, first, inputs[1])
        if op == "Concat":
            return None if None in inputs else _joined_along(node, [sizes for sizes in inputs if sizes])
        if is_shaped_like(node) or (op == "broadcast_like" and "lhs_axes" not in node.attrs):
            return inputs[1]
        if op in REDUCTIONS:
            return _reduced(node, first)
        rule = _RULES.get(op)
        return None if rule is None else rule(node, first)


def _joined_along(node: Node, inputs: Sequence[Sizes]) -> FoundSizes:
    """Return the sizes of what is put together along an axis; MXNet refuses others that differ."""
    place = _one_axis(node, "dim", len(inputs[0]), "1")
    if place is None or len({len(sizes) for sizes in inputs}) != 1:
        return None
    found = [_longest(sizes) or sizes[0] for sizes in zip(*inputs)]
    along = [sizes[place] for sizes in inputs]
    numbers = [size for size in along if isinstance(size, int)]
    return [*found[:place], sum(numbers) if len(numbers) == len(along) else None, *found[place + 1 :]]


def _broadcast(*inputs: Sizes) -> FoundSizes:
    axes = max(map(len, inputs))
    return [_longest(sizes) for sizes in zip(*[(1,) * (axes - len(sizes)) + sizes for sizes in inputs])]


def _longest(sizes: Sequence[Size]) -> Size | None:
    """Return the size of an axis along which tensors are broadcast."""
    if len(set(sizes)) == 1:
        return sizes[0]
    longer = {size for size in sizes if size != 1}
    # An axis of unknown size beside a number above 1 is of that length, or 1.
    numbers = [size for size in longer if isinstance(size, int)]
    return longer.pop() if len(longer) == 1 else numbers[0] if numbers else None


def _projected(node: Node, rows: Sizes, matrix: Sizes | None) -> FoundSizes:
    """Return the sizes of rows times a matrix."""
    if matrix is None or len(matrix) != 2 or len(rows) < 2:
        return None
    if is_true(node.attrs, "transpose_a", default=False):
        return None
    return [*rows[:-1], matrix[0 if is_true(node.attrs, "transpose_b", default=False) else 1]]


def _multiplied(node: Node, left: Sizes, right: Sizes | None) -> FoundSizes:
    if right is None or len(left) != len(right) or len(left) < 2 or node.attrs.get("axis", "-2") != "-2":
        return None
    row = left[-1 if is_true(node.attrs, "transpose_a", default=False) else -2]
    column = right[-2 if is_true(node.attrs, "transpose_b", default=False) else -1]
    return [*left[:-2], row, column]


def _reduced(node: Node, sizes: Sizes) -> FoundSizes:
    axes = reduced_axes(node, len(sizes))
    if axes is None:
        return None
    if is_true(node.attrs, "keepdims", default=False):
        return [1 if axis in axes else size for axis, size in enumerate(sizes)]
    return [size for axis, size in enumerate(sizes) if axis not in axes] or [1]


def reduced_axes(node: Node, rank: int) -> frozenset[int] | None:
    """Return the axes that a reduction goes over, from the front; None where that is not said in numbers."""
    given = node.attrs.get("axis", "None")
    axes = () if given in ("None", "()", "[]") else integers(given)
    if axes is None or any(not -rank <= axis < rank for axis in axes):
        return None
    found = frozenset(axis % rank for axis in axes)
    if not found:
        return frozenset(range(rank))
    return frozenset(range(rank)) - found if is_true(node.attrs, "exclude", default=False) else found


def _says_all(node: Node) -> bool:
    """Return whether a node is a Reshape that makes the same axes of whatever it reads."""
    codes = integers(node.attrs.get("shape", "")) if FACTS.canonical(node.op) == "Reshape" else None
    is_read_forwards = not is_true(node.attrs, "reverse", default=False)
    return bool(codes) and is_read_forwards and all(code > 0 or code == -1 for code in codes or ())


def _reshaped(node: Node, sizes: Sizes) -> FoundSizes:
    codes = integers(node.attrs.get("shape", ""))
    if not codes or is_true(node.attrs, "reverse", default=False):
        return None
    found: list[Size | None] = []
    place, numbers = 0, iter(codes)
    for code in numbers:
        if code == -1 and codes.index(code) != len(found):
            return None  # MXNet takes the number of the code for that of the axis
        if code == _ALL_OTHERS:
            found += sizes[place:]
            place = len(sizes)
            continue
        read = sizes[place : place + (2 if code == _BOTH else 1)]
        place += max(1, len(read))
        if code == _SPLIT:
            found += _split(read, next(numbers, 0), next(numbers, 0))
        elif code == _BOTH:
            found.append(joined(read) if read else None)
        else:
            found.append(code if code > 0 else read[0] if read and code == 0 else None)
    return _with_rest(found, sizes)


_ALL_OTHERS, _BOTH, _SPLIT = -2, -3, -4
"""What Reshape copies, joins and splits in two."""


_JOINED = "joined"


def joined(sizes: Sequence[Size]) -> Size:
    """Return how long the axis is that axes are joined to."""
    number, others = _parted(sizes)
    if not others:
        return number
    return others[0] if number == 1 == len(others) else (_JOINED, number, *others)


def _parted(sizes: Sequence[Size]) -> tuple[int, list[Size]]:
    """Return the product of the sizes that are numbers, and the others, in one order whatever theirs is."""
    number = 1
    others: list[Size] = []
    for size in sizes:
        if isinstance(size, int):
            number *= size
        elif isinstance(size, tuple) and size[0] == _JOINED:
            number *= size[1]
            others += size[2:]
        else:
            others.append(size)
    return number, sorted(others, key=str)


def _split(read: Sequence[Size], one: int, other: int) -> Sequence[Size | None]:
    """Return the two axes that one is split into; at most one of the numbers is -1."""
    size = read[0] if read else None
    given = [number if number > 0 else None for number in (one, other)]
    known = [number for number in given if number is not None]
    if len(known) == 1 and known[0] == 1:
        return [size if number is None else number for number in given]
    if len(known) == 1 and isinstance(size, int) and size % known[0] == 0:
        return [size // known[0] if number is None else number for number in given]
    return given


def _with_rest(found: list[Size | None], sizes: Sizes) -> FoundSizes:
    """Return the sizes with the one that is not known, where it is what the others leave."""
    if found.count(None) != 1 or not sizes:
        return found
    number, rest = _parted(sizes)
    divisor, others = _parted([size for size in found if size is not None])
    for size in others:
        if size not in rest:
            return found
        rest.remove(size)
    if number % max(1, divisor):
        return found
    left = joined([number // max(1, divisor), *rest])
    return [left if size is None else size for size in found]


def moved_axes(node: Node, rank: int) -> Sequence[int] | None:
    """Return where each axis of a transpose or a SwapAxis comes from; None where that is not said."""
    axes = list(range(rank))
    if FACTS.canonical(node.op) == "transpose":
        order = integers(node.attrs.get("axes", "()")) or tuple(reversed(axes))
        return order if sorted(order) == axes else None
    one, other = (_one_axis(node, name, rank, "0") for name in ("dim1", "dim2"))
    if one is None or other is None:
        return None
    axes[one], axes[other] = axes[other], axes[one]
    return axes


def taken_axes(node: Node, rank: int) -> frozenset[int] | None:
    """Return the axes that a squeeze takes away, from the front; None where that is not said."""
    axes = integers(node.attrs.get("axis", ""))
    if not axes or not all(-rank <= axis < rank for axis in axes):
        return None
    return frozenset(axis % rank for axis in axes)


def added_axis(node: Node, rank: int) -> int | None:
    """Return the place of the axis that an expand_dims adds, from the front; None where that is not said."""
    axes = integers(node.attrs.get("axis", ""))
    if axes is None or len(axes) != 1 or not -rank - 1 <= axes[0] <= rank:
        return None
    return axes[0] % (rank + 1)


def _moved(node: Node, sizes: Sizes) -> FoundSizes:
    order = moved_axes(node, len(sizes))
    return None if order is None else [sizes[axis] for axis in order]


def _expanded(node: Node, sizes: Sizes) -> FoundSizes:
    place = added_axis(node, len(sizes))
    return None if place is None else [*sizes[:place], 1, *sizes[place:]]


def _cut(node: Node, sizes: Sizes) -> FoundSizes:
    """Return the sizes of a part along one axis, counted from the front to where there are values."""
    place = _one_axis(node, "axis", len(sizes))
    if place is None:
        return None
    begin, end = (integers(node.attrs.get(name, "")) for name in ("begin", "end"))
    length = None
    if begin and end and 0 <= begin[0] < end[0]:
        length = end[0] - begin[0]
    return [*sizes[:place], length, *sizes[place + 1 :]]


def _sliced(node: Node, sizes: Sizes) -> FoundSizes:
    """Return the sizes of a part along several axes: of those along which all is taken."""
    if any(len(elements(node.attrs.get(key, "()"))) > len(sizes) for key in ("begin", "end", "step")):
        return None
    return [size if takes_all(node, axis) else None for axis, size in enumerate(sizes)]


def takes_all(node: Node, axis: int) -> bool:
    """Return whether a ``slice`` takes all along an axis, counted from the first."""
    begin, end, step = (
        elements(node.attrs.get(key, "()"))[axis : axis + 1] for key in ("begin", "end", "step")
    )
    return begin in ((), ("None",), ("0",)) and end in ((), ("None",)) and step in ((), ("None",), ("1",))


def _parts(node: Node, sizes: Sizes) -> FoundSizes:
    """Return the sizes of each of the equal parts along an axis."""
    place, count = _one_axis(node, "axis", len(sizes), "1"), integers(node.attrs.get("num_outputs", ""))
    if place is None or not count:
        return None
    if is_true(node.attrs, "squeeze_axis", default=False):
        return [*sizes[:place], *sizes[place + 1 :]]
    size = sizes[place]
    return [*sizes[:place], size // count[0] if isinstance(size, int) else None, *sizes[place + 1 :]]


def _squeezed(node: Node, sizes: Sizes) -> FoundSizes:
    gone = taken_axes(node, len(sizes))
    return None if gone is None else [size for axis, size in enumerate(sizes) if axis not in gone]


def _one_axis(node: Node, name: str, rank: int, default: str = "") -> int | None:
    """Return the one axis that an attribute says, from the front."""
    axis = integers(node.attrs.get(name, default))
    if axis is None or len(axis) != 1 or not -rank <= axis[0] < rank:
        return None
    return axis[0] % rank


def _tiled(node: Node, sizes: Sizes) -> FoundSizes:
    times = integers(node.attrs.get("reps", ""))
    if times is None or len(times) > len(sizes):
        return None
    times = (1,) * (len(sizes) - len(times)) + times
    return [
        size if number == 1 else size * number if isinstance(size, int) else None
        for size, number in zip(sizes, times)
    ]


def _stretched(node: Node, sizes: Sizes) -> FoundSizes:
    axes, given = integers(node.attrs.get("axis", "()")), integers(node.attrs.get("size", "()"))
    if axes is None or given is None or len(axes) != len(given):
        return None
    found: list[Size | None] = list(sizes)
    for axis, size in zip(axes, given):
        if not -len(sizes) <= axis < len(sizes):
            return None
        found[axis] = size
    return found


def _stretched_to(node: Node, sizes: Sizes) -> FoundSizes:
    shape = integers(node.attrs.get("shape", ""))
    if shape is None or len(shape) != len(sizes):
        return None
    return [own if size == 0 else size for own, size in zip(sizes, shape)]


def _repeated(node: Node, sizes: Sizes) -> FoundSizes:
    place, times = _one_axis(node, "axis", len(sizes), ""), integers(node.attrs.get("repeats", ""))
    if place is None or times is None or len(times) != 1:
        return None
    size = sizes[place]
    grown = size * times[0] if isinstance(size, int) else None
    return [*sizes[:place], grown, *sizes[place + 1 :]]


def _dense(node: Node, sizes: Sizes) -> FoundSizes:
    hidden = integers(node.attrs.get("num_hidden", ""))
    if hidden is None or len(hidden) != 1:
        return None
    return [*(sizes[:1] if is_true(node.attrs, "flatten", default=True) else sizes[:-1]), hidden[0]]


def _embedded(node: Node, sizes: Sizes) -> FoundSizes:
    width = integers(node.attrs.get("output_dim", ""))
    return None if width is None or len(width) != 1 else [*sizes, width[0]]


def _resized(node: Node, sizes: Sizes) -> FoundSizes:
    """Return the sizes of what an operator makes that keeps batch and channels, and may change all else."""
    return [*sizes[:2], *[None] * (len(sizes) - 2)] if len(node.inputs) == 1 else None


_RULES: Mapping[str, Callable[[Node, Sizes], FoundSizes]] = {
    "Convolution": convolved,
    "Deconvolution": deconvolved,
    "Embedding": _embedded,
    "Flatten": lambda node, sizes: [sizes[0], None],
    "FullyConnected": _dense,
    "Pad": padded,
    "Pooling": pooled,
    "Reshape": _reshaped,
    "SliceChannel": _parts,
    "SwapAxis": _moved,
    "UpSampling": _resized,
    "_contrib_AdaptiveAvgPooling2D": _resized,
    "_contrib_BilinearResize2D": _resized,
    "broadcast_axis": _stretched,
    "broadcast_to": _stretched_to,
    "expand_dims": _expanded,
    "ones_like": lambda node, sizes: sizes,
    "repeat": _repeated,
    "slice": _sliced,
    "slice_axis": _cut,
    "squeeze": _squeezed,
    "tile": _tiled,
    "transpose": _moved,
    "zeros_like": lambda node, sizes: sizes,
}
"""Operators of one input, or whose first says all."""
