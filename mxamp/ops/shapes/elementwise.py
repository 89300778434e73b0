"""Operators that return what they read, value by value, and those that broadcast."""

from __future__ import annotations

from typing import Sequence

from mxamp.ops.shapes.call import UNKNOWN, MaybeShape, Shape, ShapeCall, demand, merged, rule

_UNARY = """
    Activation BlockGrad Cast Dropout IdentityAttachKLSparseReg L2Normalization LRN LeakyReLU
    LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput MakeLoss SVMOutput SequenceMask
    SequenceReverse SoftmaxActivation SoftmaxOutput _contrib_div_sqrt_dim _contrib_gradientmultiplier
    _contrib_index_copy _contrib_quadratic _contrib_round_ste _contrib_sign_ste _copy _div_scalar
    _equal_scalar _greater_equal_scalar _greater_scalar _hypot_scalar _image_normalize _lesser_equal_scalar
    _lesser_scalar _linalg_inverse _linalg_potrf _linalg_potri _logical_and_scalar _logical_or_scalar
    _logical_xor_scalar _maximum_scalar _minimum_scalar _minus_scalar _mod_scalar _mul_scalar _mxamp_round
    _mxamp_round_both_ways _not_equal_scalar _np_copy _np_roll _npi_absolute _npi_add_scalar _npi_arccos
    _npi_arccosh _npi_arcsin _npi_arcsinh _npi_arctan _npi_arctan2_scalar _npi_arctanh _npi_around
    _npi_bitwise_and_scalar _npi_bitwise_not _npi_bitwise_or_scalar _npi_bitwise_xor_scalar _npi_cbrt
    _npi_ceil _npi_cholesky _npi_copysign_scalar _npi_cos _npi_cosh _npi_degrees _npi_equal_scalar _npi_exp
    _npi_expm1 _npi_fix _npi_flip _npi_floor _npi_full_like _npi_greater_equal_scalar _npi_greater_scalar
    _npi_isfinite _npi_isinf _npi_isnan _npi_isneginf _npi_isposinf _npi_lcm_scalar _npi_ldexp_scalar
    _npi_less_equal_scalar _npi_less_scalar _npi_log _npi_log10 _npi_log1p _npi_log2 _npi_logical_not
    _npi_mod_scalar _npi_multiply_scalar _npi_nan_to_num _npi_negative _npi_not_equal_scalar
    _npi_power_scalar _npi_radians _npi_rarctan2_scalar _npi_rcopysign_scalar _npi_reciprocal _npi_rint
    _npi_rldexp_scalar _npi_rmod_scalar _npi_rpower_scalar _npi_rsubtract_scalar _npi_rtrue_divide_scalar
    _npi_sign _npi_sin _npi_sinh _npi_sqrt _npi_square _npi_subtract_scalar _npi_tan _npi_tanh _npi_tril
    _npi_true_divide_scalar _npi_trunc _npi_where_scalar2 _npx_relu _npx_sigmoid _plus_scalar _power_scalar
    _rdiv_scalar _rminus_scalar _rmod_scalar _rpower_scalar _scatter_minus_scalar _scatter_plus_scalar abs
    amp_cast arccos arccosh arcsin arcsinh arctan arctanh cast_storage cbrt ceil clip cos cosh degrees erf
    erfinv exp expm1 fix floor gamma gammaln hard_sigmoid log log10 log1p log2 log_softmax logical_not
    make_loss negative ones_like radians rcbrt reciprocal relu reverse rint round rsqrt sigmoid sign sin
    sinh smooth_l1 softmax softmin softsign sqrt square tan tanh trunc zeros_like
"""
"""The first output is shaped as the first input."""

_BINARY = """
    _equal _greater _greater_equal _hypot _lesser _lesser_equal _logical_and _logical_or _logical_xor _maximum
    _minimum _mod _not_equal _power add_n elemwise_add elemwise_div elemwise_mul elemwise_sub
"""
"""All inputs and the output have one shape."""

_BROADCASTING = """
    _npi_add _npi_arctan2 _npi_bitwise_and _npi_bitwise_or _npi_bitwise_xor _npi_copysign _npi_equal
    _npi_fmax _npi_fmin _npi_greater _npi_greater_equal _npi_hypot _npi_lcm _npi_ldexp _npi_less
    _npi_less_equal _npi_logical_and _npi_logical_or _npi_logical_xor _npi_mod _npi_multiply _npi_not_equal
    _npi_power _npi_subtract _npi_true_divide _npi_where _npi_where_lscalar _npi_where_rscalar broadcast_add
    broadcast_div broadcast_equal broadcast_greater broadcast_greater_equal broadcast_hypot broadcast_lesser
    broadcast_lesser_equal broadcast_logical_and broadcast_logical_or broadcast_logical_xor
    broadcast_maximum broadcast_minimum broadcast_mod broadcast_mul broadcast_not_equal broadcast_power
    broadcast_sub
"""

SHAPED_AS_FIRST = frozenset((*_UNARY.split(), *_BINARY.split()))
"""Operators whose first output is shaped as their first input."""

BROADCASTING = frozenset(_BROADCASTING.split())
"""Operators whose output is shaped as their inputs are where these have one shape."""


@rule(_UNARY, partial=True)
def _unary(call: ShapeCall) -> Shape:
    return call.data


@demand(_UNARY)
def _unary_inputs(call: ShapeCall, outputs: Sequence[MaybeShape]) -> Sequence[MaybeShape]:
    label = _LABELS.get(call.op)
    first = outputs[0]
    return [first] if label is None or call.inputs[0] is None else [first, label(call, call.inputs[0])]


def _softmax_label(call: ShapeCall, data: Shape) -> MaybeShape:
    if call.flag("multi_output"):
        return (data[0], -1 if UNKNOWN in data[1:] else _product(data) // data[0] // data[1])
    return data[:-1]


def _regression_label(call: ShapeCall, data: Shape) -> MaybeShape:
    return data[:1] if len(data) == 2 and data[1] == 1 else data


_LABELS = {
    "SoftmaxOutput": _softmax_label,
    "SVMOutput": lambda call, data: data[:1],
    "LinearRegressionOutput": _regression_label,
    "LogisticRegressionOutput": _regression_label,
    "MAERegressionOutput": _regression_label,
}
"""The shapes of labels, which nobody feeds in inference."""


def _product(shape: Shape) -> int:
    size = 1
    for each in shape:
        size *= each
    return size


@rule(_BINARY, partial=True)
def _binary(call: ShapeCall) -> Shape:
    shape = None
    for number, other in enumerate(call.inputs):
        both = merged(shape, other)
        if both is None and other is not None:
            call.refuse(f"input {number} has the shape {other}, and those before {shape}")
        shape = both
    return _known(call, shape)


def _known(call: ShapeCall, shape: MaybeShape) -> Shape:
    return call.data if shape is None else shape


@demand(_BINARY)
def _binary_inputs(call: ShapeCall, outputs: Sequence[MaybeShape]) -> Sequence[MaybeShape]:
    return [outputs[0]] * len(call.inputs)


@rule("_identity_with_attr_like_rhs", partial=True)
def _like_the_right(call: ShapeCall) -> Shape:
    both = merged(call.inputs[0], call.inputs[1])
    return call.data if both is None else both


@rule("amp_multicast", partial=True)
def _multicast(call: ShapeCall) -> Sequence[MaybeShape]:
    return list(call.inputs)


@rule(_BROADCASTING)
def _broadcasting(call: ShapeCall) -> Shape:
    shapes = call.shapes
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    rank = max(map(len, shapes))
    sizes = []
    for axis in range(-rank, 0):
        different = {shape[axis] for shape in shapes if -axis <= len(shape)} - {1}
        if len(different) > 1:
            shown = " and ".join(str(shape) for shape in shapes)
            call.refuse(f"the shapes {shown} cannot be broadcast together")
        sizes.append(different.pop() if different else 1)
    return tuple(sizes)


@rule("where")
def _where(call: ShapeCall) -> Shape:
    condition, one, other = call.shapes
    if one != other:
        call.refuse(f"it chooses between the shapes {one} and {other}, which differ")
    if condition != one and condition != one[:1]:
        call.refuse(f"its condition has the shape {condition}, and what it chooses from {one}")
    return one
