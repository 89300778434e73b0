"""Element-wise arithmetic, comparison, logic, reductions and casts."""

from __future__ import annotations

import math
from typing import Callable

from mxamp.dtypes import DType
from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tensor import Tensor
from mxamp.ops.casts import CASTABLE, multicast_dtypes
from mxamp.ops.promotion import promoted
from mxamp.ops.rounding import ROUND, ROUND_BOTH_WAYS

Binary = Callable[[Call, Tensor, Tensor], Tensor]


def _plain(op: str) -> Binary:
    return lambda call, left, right: call.emit(op, left, right)


def _floor_mod(call: Call, left: Tensor, right: Tensor) -> Tensor:
    """Return a - floor(a / b) * b, and 0 where b is 0; ONNX's Mod of floats has the sign of a."""
    if not left.dtype.is_float:
        return call.emit("Mod", left, right)
    whole = call.emit("Floor", call.emit("Div", left, right))
    rest = call.emit("Sub", left, call.emit("Mul", whole, right))
    zero = call.scalar(0, right)
    return call.emit("Where", call.emit("Equal", right, zero), zero, rest)


def _hypot(call: Call, left: Tensor, right: Tensor) -> Tensor:
    squares = [call.emit("Mul", side, side) for side in (left, right)]
    return call.emit("Sqrt", call.emit("Add", *squares))


_ARITHMETIC: dict[str, tuple[str, Binary]] = {
    "add": ("Add", _plain("Add")),
    "sub": ("Sub", _plain("Sub")),
    "mul": ("Mul", _plain("Mul")),
    "div": ("Div", _plain("Div")),
    "power": ("Pow", _plain("Pow")),
    # Max and Min hand NaN on; MXNet's take the other side.
    "maximum": ("Max", _plain("Max")),
    "minimum": ("Min", _plain("Min")),
    "mod": ("a - Floor(a / b) * b", _floor_mod),
    "hypot": ("Sqrt(a * a + b * b)", _hypot),
}
_COMPARISON: dict[str, Binary] = {
    "equal": _plain("Equal"),
    "not_equal": lambda call, left, right: call.emit("Not", call.emit("Equal", left, right)),
    "greater": _plain("Greater"),
    "greater_equal": _plain("GreaterOrEqual"),
    "lesser": _plain("Less"),
    "lesser_equal": _plain("LessOrEqual"),
}
_LOGIC = {"and": "And", "or": "Or", "xor": "Xor"}
_NUMPY = {"add": "add", "subtract": "sub", "multiply": "mul", "mod": "mod", "power": "power"}


def _truth(call: Call, tensor: Tensor) -> Tensor:
    """Return whether values are not zero."""
    if tensor.dtype in (DType.FLOAT16, DType.BFLOAT16):  # whose Cast to bool not every runtime has
        tensor = call.cast(tensor, DType.FLOAT32)
    return call.cast(tensor, DType.BOOL)


def _arithmetic(compute: Binary) -> Callable[[Call], Written]:
    return lambda call: compute(call, call.data, call.inputs[1])


def _with_scalar(compute: Binary, reverse: bool) -> Callable[[Call], Written]:
    def write(call: Call) -> Written:
        # Integers beside a fraction are float64 in MXNet, and truth values beside an integer int64.
        data = call.cast(call.data, call.result_dtype())
        scalar = call.scalar(call.number("scalar", 1), data)
        return compute(call, scalar, data) if reverse else compute(call, data, scalar)

    return write


def _comparison(compute: Binary, with_scalar: bool) -> Callable[[Call], Written]:
    def write(call: Call) -> Written:
        right = call.scalar(call.number("scalar"), call.data) if with_scalar else call.inputs[1]
        # MXNet's result has the data's dtype.
        return call.cast(compute(call, call.data, right), call.data.dtype)

    return write


def _logic(op: str, with_scalar: bool) -> Callable[[Call], Written]:
    def write(call: Call) -> Written:
        right = call.scalar(call.number("scalar"), call.data) if with_scalar else call.inputs[1]
        result = call.emit(op, _truth(call, call.data), _truth(call, right))
        return call.cast(result, call.data.dtype)

    return write


def _promoting(compute: Binary) -> Callable[[Call], Written]:
    def write(call: Call) -> Written:
        dtype = promoted([tensor.dtype for tensor in call.inputs])
        return compute(call, *(call.cast(tensor, dtype) for tensor in call.inputs[:2]))

    return write


def _numpy_comparison(compute: Binary, with_scalar: bool) -> Callable[[Call], Written]:
    def write(call: Call) -> Written:
        left = call.data
        if with_scalar:
            number = call.number("scalar")
            if left.dtype is DType.BOOL:  # beside which a number is a truth value
                left, number = call.cast(left, DType.INT32), float(number != 0)
            elif not left.dtype.is_float and not number.is_integer():
                left = call.cast(left, DType.FLOAT64)
            right = call.scalar(number, left)
        else:
            right = call.inputs[1]
        dtype = promoted([left.dtype, right.dtype])
        return compute(call, call.cast(left, dtype), call.cast(right, dtype))

    return write


for _name, (_text, _compute) in _ARITHMETIC.items():
    _prefixed = "elemwise_" if _name in ("add", "sub", "mul", "div") else "_"
    mapping(f"{_prefixed}{_name} broadcast_{_name}", _text)(_arithmetic(_compute))
    _scalar_name = {"add": "plus", "sub": "minus"}.get(_name, _name)
    mapping(f"_{_scalar_name}_scalar", _text)(_with_scalar(_compute, reverse=False))
    if _name in ("sub", "div", "mod", "power"):
        mapping(f"_r{_scalar_name}_scalar", _text)(_with_scalar(_compute, reverse=True))
for _name, _compute in _COMPARISON.items():
    mapping(f"broadcast_{_name} _{_name}", "a comparison, Cast")(_comparison(_compute, False))
    mapping(f"_{_name}_scalar", "a comparison, Cast")(_comparison(_compute, True))
    _twin = _name.replace("lesser", "less")
    mapping(f"_npi_{_twin}", "a comparison")(_numpy_comparison(_compute, False))
    mapping(f"_npi_{_twin}_scalar", "a comparison")(_numpy_comparison(_compute, True))
for _name, _op in _LOGIC.items():
    mapping(f"broadcast_logical_{_name} _logical_{_name}", f"{_op}, Cast")(_logic(_op, False))
    mapping(f"_logical_{_name}_scalar", f"{_op}, Cast")(_logic(_op, True))
for _name, _twin in _NUMPY.items():
    _text, _compute = _ARITHMETIC[_twin]
    mapping(f"_npi_{_name}", _text)(_promoting(_compute))
    mapping(f"_npi_{_name}_scalar", _text)(_with_scalar(_compute, reverse=False))
    if _name in ("subtract", "mod", "power"):
        mapping(f"_npi_r{_name}_scalar", _text)(_with_scalar(_compute, reverse=True))


@mapping("_npi_true_divide", "Div, of integers after Cast")
def _true_divide(call: Call) -> Written:
    dtype = promoted([tensor.dtype for tensor in call.inputs])
    dtype = dtype if dtype.is_float else DType.FLOAT32
    return call.emit("Div", *(call.cast(tensor, dtype) for tensor in call.inputs[:2]))


@mapping("_npi_true_divide_scalar _npi_rtrue_divide_scalar", "Div, of integers after Cast")
def _true_divide_scalar(call: Call) -> Written:
    data = call.data if call.data.dtype.is_float else call.cast(call.data, DType.FLOAT32)
    scalar = call.scalar(call.number("scalar", 1), data)
    return call.emit("Div", *((scalar, data) if "rtrue" in call.node.op else (data, scalar)))


@mapping("add_n", "Sum")
def _add_n(call: Call) -> Written:
    return call.emit("Sum", *call.inputs) if len(call.inputs) > 1 else call.data


# ---------------------------------------------------------------------- functions of one value

_UNARY = {
    "Neg": "negative _npi_negative",
    "Abs": "abs _npi_absolute",
    "Floor": "floor _npi_floor",
    "Ceil": "ceil _npi_ceil",
    "Exp": "exp _npi_exp",
    "Log": "log _npi_log",
    "Sqrt": "sqrt _npi_sqrt",
    "Reciprocal": "reciprocal _npi_reciprocal",
    "Sign": "sign _npi_sign _contrib_sign_ste",
    "Sin": "sin _npi_sin",
    "Cos": "cos _npi_cos",
    "Tan": "tan _npi_tan",
    "Asin": "arcsin _npi_arcsin",
    "Acos": "arccos _npi_arccos",
    "Atan": "arctan _npi_arctan",
    "Sinh": "sinh _npi_sinh",
    "Cosh": "cosh _npi_cosh",
    "Tanh": "tanh _npi_tanh",
    "Asinh": "arcsinh _npi_arcsinh",
    "Acosh": "arccosh _npi_arccosh",
    "Atanh": "arctanh _npi_arctanh",
    "Erf": "erf",
}


def _unary(op: str) -> Callable[[Call], Written]:
    return lambda call: call.emit(op, call.data)


for _op, _names in _UNARY.items():
    mapping(_names, _op)(_unary(_op))


def _times(factor: float, op: str) -> Callable[[Call], Written]:
    def write(call: Call) -> Written:
        data = call.emit(op, call.data) if op else call.data
        return call.emit("Mul", data, call.scalar(factor, data))

    return write


mapping("log2 _npi_log2", "Log * (1 / ln 2)")(_times(1 / math.log(2), "Log"))
mapping("log10 _npi_log10", "Log * (1 / ln 10)")(_times(1 / math.log(10), "Log"))
mapping("degrees _npi_degrees", "Mul")(_times(180 / math.pi, ""))
mapping("radians _npi_radians", "Mul")(_times(math.pi / 180, ""))


@mapping("square _npi_square", "Mul")
def _square(call: Call) -> Written:
    return call.emit("Mul", call.data, call.data)


@mapping("rsqrt", "Reciprocal(Sqrt)")
def _rsqrt(call: Call) -> Written:
    return call.emit("Reciprocal", call.emit("Sqrt", call.data))


@mapping("cbrt _npi_cbrt rcbrt", "Sign * Pow(Abs, 1/3)")
def _cbrt(call: Call) -> Written:
    root = cube_root(call, call.data)
    return call.emit("Reciprocal", root) if call.node.op == "rcbrt" else root


def cube_root(call: Call, data: Tensor) -> Tensor:
    """Return the third root, that of negative values too."""
    size = call.emit("Pow", call.emit("Abs", data), call.scalar(1 / 3, data))
    return call.emit("Mul", call.emit("Sign", data), size)


@mapping("log1p _npi_log1p", "2 * Atanh(x / (2 + x)) of small values, Log(1 + x) of others")
def _log1p(call: Call) -> Written:
    # Log(1 + x) would lose the digits of a small x, and Atanh those of a large one, whose share is nearly 1.
    two = call.scalar(2, call.data)
    share = call.emit("Div", call.data, call.emit("Add", call.data, two))
    of_small = call.emit("Mul", call.emit("Atanh", share), two)
    of_others = call.emit("Log", call.emit("Add", call.data, call.scalar(1, call.data)))
    is_small = call.emit("Less", call.emit("Abs", call.data), call.scalar(0.5, call.data))
    return call.emit("Where", is_small, of_small, of_others)


@mapping("expm1 _npi_expm1", "Tanh(x / 2) * (Exp(x) + 1)")
def _expm1(call: Call) -> Written:
    # Exp(x) - 1 would lose the digits of a small x.
    half = call.emit("Mul", call.data, call.scalar(0.5, call.data))
    sum_ = call.emit("Add", call.emit("Exp", call.data), call.scalar(1, call.data))
    return call.emit("Mul", call.emit("Tanh", half), sum_)


@mapping("round _contrib_round_ste", "Sign * Floor(Abs + 0.5)")
def _round(call: Call) -> Written:  # halves go away from zero, which ONNX's Round does not do
    size = call.emit("Add", call.emit("Abs", call.data), call.scalar(0.5, call.data))
    return call.emit("Mul", call.emit("Sign", call.data), call.emit("Floor", size))


@mapping("fix trunc _npi_fix _npi_trunc", "Sign * Floor(Abs)")
def _trunc(call: Call) -> Written:
    whole = call.emit("Floor", call.emit("Abs", call.data))
    return call.emit("Mul", call.emit("Sign", call.data), whole)


@mapping("rint _npi_rint", "Ceil(x - 0.5)")
def _rint(call: Call) -> Written:  # halves go down, which ONNX's Round does not do
    return call.emit("Ceil", call.emit("Sub", call.data, call.scalar(0.5, call.data)))


@mapping("clip", "Clip")
def _clip(call: Call) -> Written:
    return call.clip(call.data, call.number("a_min"), call.number("a_max"))


@mapping("smooth_l1", "Where(Abs(x) < 1 / s^2, (s * x)^2 / 2, Abs(x) - 1 / (2 * s^2))")
def _smooth_l1(call: Call) -> Written:
    square = call.number("scalar", 1) ** 2
    size = call.emit("Abs", call.data)
    inner = call.emit("Mul", call.emit("Mul", size, size), call.scalar(square / 2, size))
    outer = call.emit("Sub", size, call.scalar(0.5 / square, size))
    return call.emit("Where", call.emit("Less", size, call.scalar(1 / square, size)), inner, outer)


@mapping("logical_not _npi_logical_not", "Not, Cast")
def _logical_not(call: Call) -> Written:
    result = call.emit("Not", _truth(call, call.data))
    return result if call.node.op.startswith("_np") else call.cast(result, call.data.dtype)


@mapping("where _npi_where", "Where")
def _where(call: Call) -> Written:
    condition, left, right = call.inputs
    if call.rank(condition) == 1 and call.rank(left) > 1 and not call.node.op.startswith("_np"):
        # It chooses rows.
        condition = call.reshape(condition, [0, *([1] * (call.rank(left) - 1))])
    return call.emit("Where", _truth(call, condition), left, right)


@mapping("_npi_where_lscalar _npi_where_rscalar", "Where")
def _where_scalar(call: Call) -> Written:
    condition, other = call.inputs
    scalar = call.scalar(call.number("scalar"), other)
    sides = (scalar, other) if call.node.op == "_npi_where_lscalar" else (other, scalar)
    return call.emit("Where", _truth(call, condition), *sides)


@mapping("_contrib_quadratic", "(a * x + b) * x + c")
def _quadratic(call: Call) -> Written:
    a, b, c = (call.scalar(call.number(key, 0), call.data) for key in "abc")
    inner = call.emit("Add", call.emit("Mul", call.data, a), b)
    return call.emit("Add", call.emit("Mul", inner, call.data), c)


# ---------------------------------------------------------------------- casts


@mapping("amp_cast", "Cast; nothing for what it hands on")
def _amp_cast(call: Call) -> Written:
    return call.cast(call.data, call.dtype()) if call.data.dtype in CASTABLE else call.data


@mapping("amp_multicast", "Cast of those that differ")
def _amp_multicast(call: Call) -> Written:
    wanted = multicast_dtypes(call.node.attrs, [tensor.dtype for tensor in call.inputs])
    return tuple(call.cast(tensor, dtype or tensor.dtype) for tensor, dtype in zip(call.inputs, wanted))


@mapping("Cast", "Cast")
def _cast(call: Call) -> Written:
    wanted = call.dtype()
    return _truth(call, call.data) if wanted is DType.BOOL else call.cast(call.data, wanted)


@mapping(f"{ROUND} {ROUND_BOTH_WAYS}", "Cast to the format and back")
def _emulated_rounding(call: Call) -> Written:
    wanted = DType.parse(call.text("format"), emulated=True, aliases=False)
    if wanted.is_emulated_only:
        call.refuse(f"ONNX has no {wanted} that a Cast could round to.")
    if call.text("overflow", "inf") != "inf":
        call.refuse("a Cast does not saturate.")
    return call.cast(call.cast(call.data, wanted), call.data.dtype)


# ---------------------------------------------------------------------- reductions


def _reduced_axes(call: Call) -> list[int] | None:
    """Return the axes to reduce over; None for all."""
    rank = call.rank(call.data)
    axes = [call.axis(call.data, axis) for axis in call.sizes("axis", ())]
    if call.flag("exclude"):
        return [axis for axis in range(rank) if axis not in axes]
    return axes or None


def _reduction(op: str) -> Callable[[Call], Written]:
    def write(call: Call) -> Written:
        data = call.data
        dtype = call.result_dtype() if call.node.op.startswith("_np") else data.dtype
        if data.dtype is not dtype:
            data = call.cast(data, dtype)
        return call.reduce(op, data, _reduced_axes(call), keepdims=call.flag("keepdims"))

    return write


for _op, _names in (
    ("ReduceSum", "sum _np_sum"),
    ("ReduceMean", "mean _npi_mean"),
    ("ReduceMax", "max _np_max"),
    ("ReduceMin", "min _np_min"),
    ("ReduceProd", "prod _np_prod"),
):
    mapping(_names, _op)(_reduction(_op))


def _reduction_of_numbers(op: str, instead: float) -> Callable[[Call], Written]:
    def write(call: Call) -> Written:
        nothing = call.scalar(instead, call.data)
        numbers = call.emit("Where", call.emit("IsNaN", call.data), nothing, call.data)
        return call.reduce(op, numbers, _reduced_axes(call), keepdims=call.flag("keepdims"))

    return write


mapping("nansum", "ReduceSum of what is not NaN")(_reduction_of_numbers("ReduceSum", 0))
mapping("nanprod", "ReduceProd of what is not NaN")(_reduction_of_numbers("ReduceProd", 1))


@mapping("norm", "ReduceL1, ReduceL2")
def _norm(call: Call) -> Written:
    op = {1: "ReduceL1", 2: "ReduceL2"}.get(call.integer("ord", 2))
    if op is None:
        call.refuse(f"its ord {call.text('ord')} has no mapping.")
    return _reduction(op)(call)


@mapping("_np_cumsum", "CumSum")
def _cumulative_sum(call: Call) -> Written:
    data = call.cast(call.data, call.dtype())
    axis = call.text("axis")
    if axis is None:
        data, axis = call.reshape(data, [-1]), "0"
    return call.emit("CumSum", data, call.indices(call.axis(data, int(axis))))
