"""What operators compute, in NumPy: for values that are known at conversion.

Those that move values, and single operations of IEEE 754 (the four basic ones, the square root and sign),
compute bit for bit what MXNet does. Sums are exact, rounded once: MXNet's own depend on the order in which
its loops go, and are off by as much as that makes. ``exp`` and the like depend on its libraries, and are left
to it.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.ops.attributes import integers, is_true
from mxamp.ops.shapes import RULES, MismatchError, Shape, ShapeCall, UnknownShapeError

_Array = NDArray[Any]
_Attrs = Mapping[str, str]
_Evaluator = Callable[[Sequence[_Array], _Attrs], "_Array | None"]


class _UnknownError(Exception):
    """Attributes that are not understood, or do not fit the inputs."""


_UNKNOWN = (
    _UnknownError,
    MismatchError,
    UnknownShapeError,
    ValueError,
    IndexError,
    TypeError,
    OverflowError,
)
"""What says that a result is not known."""


def evaluate(op: str, inputs: Sequence[_Array], attrs: _Attrs) -> _Array | None:
    """Return the first output of an operator.

    Parameters
    ----------
    op
        Its canonical name.
    inputs
        Its inputs. Arithmetic is on float32 alone.
    attrs
        Its attributes.

    Returns
    -------
    ndarray or None
        The result, which may share memory with an input; None where it is not known: the operator is not in
        :data:`EVALUATED`, or attributes, dtypes or shapes are none that it knows.
    """
    evaluator = _EVALUATORS.get(op)
    if evaluator is None:
        return None
    if op not in _MOVES and any(each.dtype != np.float32 for each in inputs):
        return None
    try:
        with np.errstate(all="ignore"):
            return evaluator(inputs, attrs)
    except _UNKNOWN:
        return None


def evaluated_shape(op: str, shapes: Sequence[tuple[int, ...]], attrs: _Attrs) -> tuple[int, ...] | None:
    """Return the shape of :func:`evaluate`'s result, without computing it; None where it is not known."""
    # One number stands for all of an array, so that the largest takes no memory.
    one = np.zeros((), np.float32)
    result = evaluate(op, [np.broadcast_to(one, shape) for shape in shapes], attrs) if op in _VIEWS else None
    if result is not None:
        return result.shape
    if op in _JOINS and shapes:
        axis = _number(attrs, "dim", 1)
        rank = len(shapes[0])
        if any(len(shape) != rank for shape in shapes) or not -rank <= axis < rank:
            return None
        axis %= rank
        if len({shape[:axis] + shape[axis + 1 :] for shape in shapes}) != 1:
            return None
        return (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
    if op in _ARITHMETIC:
        if len(set(shapes)) > 1 and (not op.startswith("broadcast") or len({len(s) for s in shapes}) != 1):
            return None
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            return None
    if op in _CONSTANTS or op == "tile":
        return _made_shape(op, shapes, attrs)
    if op in _SUMS:
        try:
            return _summed_shape(op, shapes, attrs)
        except _UNKNOWN:
            return None
    return None


# ---------------------------------------------------------------------- attributes


def _numbers(attrs: _Attrs, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
    found = default if key not in attrs else integers(attrs[key])
    if found is None:
        raise _UnknownError
    return found


def _number(attrs: _Attrs, key: str, default: int | None = None) -> int:
    found = _numbers(attrs, key, None if default is None else (default,))
    if len(found) != 1:
        raise _UnknownError
    return found[0]


def _scalar(attrs: _Attrs, key: str = "scalar") -> np.float32:
    return np.float32(float(attrs[key])) if key in attrs else np.float32(1.0)


def _ends(attrs: _Attrs, key: str) -> Sequence[int | None]:
    """Return a tuple of integers and Nones."""
    text = attrs.get(key, "()").strip("()[] ")
    return [None if item.strip() == "None" else int(item) for item in text.split(",") if item.strip()]


# ---------------------------------------------------------------------- what moves values


def _reshape(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    """Follow MXNet's codes: 0 keeps an axis, -1 is what is left, -2 the rest, -3 joins two, -4 splits."""
    (data,) = inputs
    if "target_shape" in attrs and integers(attrs["target_shape"]) not in ((), (0,), (0, 0)):
        raise _UnknownError
    wanted, sizes = list(_numbers(attrs, "shape")), list(data.shape)
    reverse = is_true(attrs, "reverse", default=False)
    if reverse:
        if -4 in wanted:
            raise _UnknownError
        wanted, sizes = wanted[::-1], sizes[::-1]
    shape: list[int] = []
    at = place = 0
    while place < len(wanted):
        code = wanted[place]
        if code == -2:
            shape += sizes[at:]
            at = len(sizes)
        elif code == -3:
            shape.append(sizes[at] * sizes[at + 1])
            at += 2
        elif code == -4:
            first, second = wanted[place + 1 : place + 3]
            if first == -1:
                first = sizes[at] // second
            elif second == -1:
                second = sizes[at] // first
            shape += [first, second]
            at += 1
            place += 2
        else:
            if code == -1 and len(shape) != place:
                raise _UnknownError  # MXNet takes the number of the code for that of the axis
            shape.append(sizes[at] if code == 0 else code)
            at += 1
        place += 1
    return data.reshape(shape[::-1] if reverse else shape)


def _flatten(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    (data,) = inputs
    return data.reshape(data.shape[0], math.prod(data.shape[1:]))


def _expand_dims(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    return np.expand_dims(inputs[0], _number(attrs, "axis"))


def _transpose(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    axes = _numbers(attrs, "axes", ())
    return inputs[0].transpose(axes or None)


def _swap_axes(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    return inputs[0].swapaxes(_number(attrs, "dim1", 0), _number(attrs, "dim2", 0))


def _slice_axis(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    (data,) = inputs
    axis = _number(attrs, "axis")
    begin, end = _number(attrs, "begin"), attrs["end"]
    size = data.shape[axis]
    last = size if end == "None" else int(end)
    begin, last = (place + size if place < 0 else place for place in (begin, last))
    if not 0 <= begin < last <= size:
        raise _UnknownError
    return _cut(data, axis, begin, last)


def _cut(data: _Array, axis: int, begin: int, end: int) -> _Array:
    cuts: list[slice] = [slice(None)] * data.ndim
    cuts[axis] = slice(begin, end)
    return data[tuple(cuts)]


def _slice(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    (data,) = inputs
    begins, ends, steps = _ends(attrs, "begin"), _ends(attrs, "end"), _ends(attrs, "step")
    if len(begins) != len(ends) or len(begins) > data.ndim or any(step not in (None, 1) for step in steps):
        raise _UnknownError
    for axis, (begin, end) in enumerate(zip(begins, ends)):
        size = data.shape[axis]
        first, last = begin or 0, size if end is None else end
        first, last = (place + size if place < 0 else place for place in (first, last))
        if not 0 <= first < last <= size:
            raise _UnknownError
        data = _cut(data, axis, first, last)
    return data


def _broadcast_to(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    (data,) = inputs
    wanted = _numbers(attrs, "shape")
    if len(wanted) != data.ndim:
        raise _UnknownError
    return np.broadcast_to(data, [own if size == 0 else size for own, size in zip(data.shape, wanted)])


def _broadcast_axes(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    (data,) = inputs
    shape = list(data.shape)
    axes, sizes = _numbers(attrs, "axis"), _numbers(attrs, "size")
    if len(axes) != len(sizes):
        raise _UnknownError
    for axis, size in zip(axes, sizes):
        if data.shape[axis] != 1:
            raise _UnknownError
        shape[axis] = size
    return np.broadcast_to(data, shape)


def _tile(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    return np.tile(inputs[0], _numbers(attrs, "reps"))


def _concat(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    if len({each.dtype for each in inputs}) != 1:
        raise _UnknownError
    return np.concatenate(inputs, _number(attrs, "dim", 1))


# ---------------------------------------------------------------------- what computes


_TWO = 2


def _binary(function: Callable[[Any, Any], Any], *, broadcasts: bool) -> _Evaluator:
    def run(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
        if len(inputs) != _TWO:
            raise _UnknownError
        one, other = inputs
        if one.shape != other.shape and (not broadcasts or one.ndim != other.ndim):
            raise _UnknownError
        result: _Array = np.asarray(function(one, other))
        return result

    return run


def _with_scalar(function: Callable[[Any, Any], Any]) -> _Evaluator:
    def run(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
        return np.asarray(function(inputs[0], _scalar(attrs)), np.float32)

    return run


def _unary(function: Callable[[Any], Any]) -> _Evaluator:
    def run(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
        return np.asarray(function(inputs[0]), np.float32)

    return run


def _filled(value: float | None) -> _Evaluator:
    def run(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
        shape = _made_shape("_full", [], attrs)
        if inputs or shape is None or attrs.get("dtype", "float32") not in ("float32", "None"):
            raise _UnknownError
        return np.full(shape, np.float32(float(attrs["value"])) if value is None else value, np.float32)

    return run


def _made_shape(op: str, shapes: Sequence[tuple[int, ...]], attrs: _Attrs) -> tuple[int, ...] | None:
    """Return the shape that attributes say; None where part of it is found at run time."""
    if op == "tile":
        reps = integers(attrs.get("reps", ""))
        if reps is None:
            return None
        rank = max(len(reps), len(shapes[0]))
        own = (1,) * (rank - len(shapes[0])) + shapes[0]
        return tuple(a * b for a, b in zip(own, (1,) * (rank - len(reps)) + reps))
    shape = integers(attrs.get("shape", ""))
    return shape if shape and min(shape) > 0 else None


# ---------------------------------------------------------------------- what sums


def _reduced(op: str, rank: int, attrs: _Attrs) -> tuple[tuple[int, ...], bool]:
    """Return the axes that an operator sums over, and whether they stay, of length one."""
    if op == "L2Normalization":
        kinds = {"channel": (1,), "spatial": tuple(range(2, rank)), "instance": tuple(range(1, rank))}
        return kinds[attrs.get("mode", "instance")], True
    axes: tuple[int, ...] = () if attrs.get("axis") == "None" else _numbers(attrs, "axis", ())
    if any(not -rank <= axis < rank for axis in axes):
        raise _UnknownError
    axes = tuple(sorted({axis % rank for axis in axes}))
    if is_true(attrs, "exclude", default=False):
        axes = tuple([axis for axis in range(rank) if axis not in axes])
    return axes or tuple(range(rank)), is_true(attrs, "keepdims", default=False)


def _summed_shape(op: str, shapes: Sequence[Shape], attrs: _Attrs) -> Shape:
    if op == "dot" and any(len(shape) != _MATRIX for shape in shapes):
        raise _UnknownError
    found = RULES[op].outputs(ShapeCall(op, attrs, shapes))
    assert isinstance(found, tuple)  # of one output
    return found


def _reduction(function: Callable[..., Any], op: str) -> _Evaluator:
    def run(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
        (data,) = inputs
        if attrs.get("dtype", "None") != "None" or attrs.get("out_dtype", "None") != "None":
            raise _UnknownError
        axes, stays = _reduced(op, data.ndim, attrs)
        result = function(data.astype(np.float64), axis=axes, keepdims=stays)
        return np.asarray(result, np.float32).reshape(_summed_shape(op, [data.shape], attrs))

    return run


def _norm(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    if _number(attrs, "ord", 2) != 2:
        raise _UnknownError
    found = _ROOT_OF_SQUARES(inputs, attrs)
    assert found is not None  # a reduction returns values, or raises
    return found


_ROOT_OF_SQUARES = _reduction(lambda data, **options: np.sqrt(np.square(data).sum(**options)), "norm")


def _l2_normalization(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    (data,) = inputs
    axes, _ = _reduced("L2Normalization", data.ndim, attrs)
    wide = data.astype(np.float64)
    epsilon = np.float32(float(attrs.get("eps", "1e-10")))
    return np.asarray(wide / np.sqrt(np.square(wide).sum(axes, keepdims=True) + epsilon), np.float32)


def _dot(inputs: Sequence[_Array], attrs: _Attrs) -> _Array:
    _summed_shape("dot", [each.shape for each in inputs], attrs)
    first, second = (
        each.astype(np.float64).T if is_true(attrs, key, default=False) else each.astype(np.float64)
        for each, key in zip(inputs, ("transpose_a", "transpose_b"))
    )
    return np.asarray(first @ second, np.float32)


_MATRIX = 2

_SUMS: Mapping[str, _Evaluator] = {
    "L2Normalization": _l2_normalization,
    "dot": _dot,
    "mean": _reduction(np.mean, "mean"),
    "norm": _norm,
    "sum": _reduction(np.sum, "sum"),
}

_VIEWS: Mapping[str, _Evaluator] = {
    "Flatten": _flatten,
    "Reshape": _reshape,
    "SwapAxis": _swap_axes,
    "_copy": lambda inputs, attrs: inputs[0],
    "BlockGrad": lambda inputs, attrs: inputs[0],
    "broadcast_axis": _broadcast_axes,
    "broadcast_to": _broadcast_to,
    "expand_dims": _expand_dims,
    "slice": _slice,
    "slice_axis": _slice_axis,
    "transpose": _transpose,
}

_JOINS: Mapping[str, _Evaluator] = {"Concat": _concat, "_rnn_param_concat": _concat}

_MOVES: Mapping[str, _Evaluator] = {**_VIEWS, **_JOINS, "tile": _tile}

_CONSTANTS: Mapping[str, _Evaluator] = {
    "_full": _filled(None),
    "_ones": _filled(1.0),
    "_zeros": _filled(0.0),
}

_ARITHMETIC: Mapping[str, _Evaluator] = {
    **{
        f"{kind}_{name}": _binary(function, broadcasts=kind == "broadcast")
        for kind in ("elemwise", "broadcast")
        for name, function in (
            ("add", np.add),
            ("sub", np.subtract),
            ("mul", np.multiply),
            ("div", np.divide),
        )
    },
    "add_n": _binary(np.add, broadcasts=False),  # of two; in which order more are added depends on how many
    "_plus_scalar": _with_scalar(np.add),
    "_minus_scalar": _with_scalar(np.subtract),
    "_rminus_scalar": _with_scalar(lambda data, scalar: scalar - data),
    "_mul_scalar": _with_scalar(np.multiply),
    "_div_scalar": _with_scalar(np.divide),
    "_rdiv_scalar": _with_scalar(lambda data, scalar: scalar / data),
    "abs": _unary(np.abs),
    "negative": _unary(np.negative),
    "rsqrt": _unary(lambda data: np.float32(1) / np.sqrt(data)),
    "sqrt": _unary(np.sqrt),
    "square": _unary(np.square),
}

_EVALUATORS: Mapping[str, _Evaluator] = {**_MOVES, **_CONSTANTS, **_ARITHMETIC, **_SUMS}

EVALUATED = frozenset(_EVALUATORS)
"""The operators, by canonical name, whose results are known here."""

KEEPS_ORDER = frozenset({"Flatten", "Reshape", "_copy", "BlockGrad", "expand_dims"})
"""Those whose result holds the values of the input in the same order."""
