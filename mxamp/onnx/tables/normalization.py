"""Normalisation, activations, softmax and the heads of training graphs."""

from __future__ import annotations

import math
from typing import Sequence

import numpy as np

from mxamp.dtypes import DType
from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tensor import Tensor


@mapping("BatchNorm BatchNorm_v1 _contrib_SyncBatchNorm _contrib_BatchNormWithReLU", "BatchNormalization")
def _batch_norm(call: Call) -> Written:
    data, gamma, beta, mean, variance = call.inputs[:5]
    axis = call.axis(data, call.integer("axis", 1))
    if call.flag("fix_gamma", True):
        # MXNet takes gamma for 1, whatever the parameter holds.
        gamma = call.array(np.ones(call.shape(beta)), beta.dtype)
    low = data.dtype
    is_cast = call.gaps.norms_of_two_dtypes and low != mean.dtype
    if is_cast:
        data = call.cast(data, mean.dtype)
    order = list(range(call.rank(data)))
    if axis != 1:  # the axis and the second one change places, before and after
        order[1], order[axis] = order[axis], order[1]
    result = call.emit(
        *("BatchNormalization", call.transpose(data, order), gamma, beta, mean, variance),
        epsilon=call.number("eps", 1e-3),
    )
    result = call.transpose(result, order)
    if call.node.op.endswith("WithReLU"):
        result = call.emit("Relu", result)
    return call.cast(result, low) if is_cast else result


@mapping("LayerNorm", "LayerNormalization; Transpose for another axis than the last", opset=17)
def _layer_norm(call: Call) -> Written:
    rank = call.rank(call.data)
    axis = call.axis(call.data, call.integer("axis", -1))
    order = [number for number in range(rank) if number != axis] + [axis]
    back = [order.index(number) for number in range(rank)]
    epsilon = call.number("eps", 1e-5)
    result = call.emit(
        *("LayerNormalization", call.transpose(call.data, order), call.inputs[1], call.inputs[2]),
        epsilon=epsilon,
    )
    # Few runtimes write the other outputs of LayerNormalization; what nobody reads is left out of the file.
    mean, variance = moments(call, call.data, [axis], keepdims=True)
    deviation = call.emit("Sqrt", call.emit("Add", variance, call.scalar(epsilon, variance)))
    return call.transpose(result, back), mean, deviation


def moments(call: Call, data: Tensor, axes: Sequence[int] | None, *, keepdims: bool) -> tuple[Tensor, Tensor]:
    """Return mean and variance along axes; along all of them for None."""
    mean = call.reduce("ReduceMean", data, axes, keepdims=True)
    apart = call.emit("Sub", data, mean)
    variance = call.reduce("ReduceMean", call.emit("Mul", apart, apart), axes, keepdims=keepdims)
    return mean if keepdims else call.reduce("ReduceMean", data, axes, keepdims=False), variance


@mapping("moments", "ReduceMean, Sub, Mul")
def _moments(call: Call) -> Written:
    axes = None if call.text("axes") is None else [call.axis(call.data, axis) for axis in call.sizes("axes")]
    return moments(call, call.data, axes, keepdims=call.flag("keepdims"))


@mapping("_npi_var _npi_std", "ReduceMean, Sub, Mul, Sqrt")
def _variance(call: Call) -> Written:
    if call.integer("ddof", 0):
        call.refuse("with ddof it has no mapping.")
    axes = None if call.text("axis") is None else [call.axis(call.data, axis) for axis in call.sizes("axis")]
    mean, variance = moments(call, call.data, axes, keepdims=call.flag("keepdims"))
    return (call.emit("Sqrt", variance) if call.node.op == "_npi_std" else variance), mean


@mapping("InstanceNorm", "InstanceNormalization")
def _instance_norm(call: Call) -> Written:
    return call.emit("InstanceNormalization", *call.inputs[:3], epsilon=call.number("eps", 1e-3))


@mapping("GroupNorm", "InstanceNormalization of the groups, Mul, Add")
def _group_norm(call: Call) -> Written:
    data, gamma, beta = call.inputs[:3]
    groups = call.integer("num_groups", 1)
    channels, rank = call.size(data, 1), call.rank(data)
    one, zero = (call.array(np.full(groups, value), data.dtype) for value in (1, 0))
    parts = call.reshape(data, [0, groups, -1])
    parts = call.emit("InstanceNormalization", parts, one, zero, epsilon=call.number("eps", 1e-5))
    # Its parameters are one a group.
    parts = call.emit("Mul", parts, call.reshape(gamma, [groups, 1]))
    parts = call.emit("Add", parts, call.reshape(beta, [groups, 1]))
    return call.reshape(parts, [0, channels, *(call.size(data, axis) for axis in range(2, rank))])


@mapping("L2Normalization", "x / Sqrt(ReduceSum(x * x) + eps)")
def _l2_normalization(call: Call) -> Written:
    mode = call.text("mode", "instance")
    rank = call.rank(call.data)
    axes = {"channel": [1], "spatial": list(range(2, rank))}.get(str(mode), list(range(1, rank)))
    squares = call.reduce("ReduceSum", call.emit("Mul", call.data, call.data), axes, keepdims=True)
    norm = call.emit("Sqrt", call.emit("Add", squares, call.scalar(call.number("eps", 1e-10), squares)))
    return call.emit("Div", call.data, norm)


@mapping("LRN", "LRN")
def _lrn(call: Call) -> Written:
    return call.emit(
        *("LRN", call.data),
        alpha=call.number("alpha", 1e-4),
        beta=call.number("beta", 0.75),
        bias=call.number("knorm", 2.0),
        size=call.integer("nsize"),
    )


# ---------------------------------------------------------------------- activations

_ACTIVATIONS = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "softrelu": "Softplus",
    "softsign": "Softsign",
}


@mapping("Activation", "Relu, Sigmoid, Tanh, Softplus, Softsign")
def _activation(call: Call) -> Written:
    name = str(call.text("act_type"))
    if name not in _ACTIVATIONS:
        call.refuse(f"its act_type {name!r} has no mapping.")
    return call.emit(_ACTIVATIONS[name], call.data)


@mapping("relu _npx_relu", "Relu")
def _relu(call: Call) -> Written:
    return call.emit("Relu", call.data)


@mapping("sigmoid _npx_sigmoid LogisticRegressionOutput", "Sigmoid")
def _sigmoid(call: Call) -> Written:
    return call.emit("Sigmoid", call.data)


@mapping("softsign", "Softsign")
def _softsign(call: Call) -> Written:
    return call.emit("Softsign", call.data)


@mapping("hard_sigmoid", "HardSigmoid")
def _hard_sigmoid(call: Call) -> Written:
    return call.emit("HardSigmoid", call.data, alpha=call.number("alpha", 0.2), beta=call.number("beta", 0.5))


@mapping("LeakyReLU", "LeakyRelu, PRelu, Elu, Selu; gelu: Gelu from opset 20, before it with Erf")
def _leaky_relu(call: Call) -> Written:
    kind, slope = call.text("act_type", "leaky"), call.number("slope", 0.25)
    if kind == "prelu":
        # One slope a channel, which is axis 1 of the data.
        gamma = call.inputs[1]
        rank = call.rank(call.data)
        if call.rank(gamma) == 1 and rank > 2:
            gamma = call.reshape(gamma, [call.size(gamma, 0), *([1] * (rank - 2))])
        return call.emit("PRelu", call.data, gamma)
    if kind == "elu":
        return call.emit("Elu", call.data, alpha=slope)
    if kind == "selu":
        return call.emit("Selu", call.data)
    if kind == "gelu":
        return _gelu(call, call.data)
    if kind == "rrelu":  # in inference the mean of the two slopes
        slope = (call.number("lower_bound", 0.125) + call.number("upper_bound", 0.334)) / 2
    return call.emit("LeakyRelu", call.data, alpha=slope)


def _gelu(call: Call, data: Tensor) -> Tensor:
    if call.opset >= 20:
        return call.emit("Gelu", data)
    error = call.emit("Erf", call.emit("Mul", data, call.scalar(math.sqrt(0.5), data)))
    half = call.emit("Mul", data, call.scalar(0.5, data))
    return call.emit("Mul", half, call.emit("Add", error, call.scalar(1, data)))


# ---------------------------------------------------------------------- softmax


@mapping("softmax log_softmax softmin", "Softmax, LogSoftmax; lengths as a mask")
def _softmax(call: Call) -> Written:
    data = call.data
    axis = call.axis(data, call.integer("axis", -1))
    temperature = call.number("temperature", 1)
    if temperature != 1:
        data = call.emit("Div", data, call.scalar(temperature, data))
    if "softmin" in call.node.op:
        data = call.emit("Neg", data)
    op = "LogSoftmax" if "log" in call.node.op else "Softmax"
    if len(call.inputs) < 2 or not call.flag("use_length"):
        return call.cast(call.emit(op, data, axis=axis), call.dtype())
    inside = positions_before(call, call.inputs[1], call.size(data, axis), axis, call.rank(data))
    lowest = call.scalar(-data.dtype.max_finite, data)
    result = call.emit(op, call.emit("Where", inside, data, lowest), axis=axis)
    # MXNet leaves zeros behind the length, also where the length is 0.
    return call.cast(call.emit("Where", inside, result, call.scalar(0, result)), call.dtype())


def positions_before(call: Call, lengths: Tensor, size: int, axis: int, rank: int) -> Tensor:
    """Return whether a position along ``axis`` lies before the length; lengths have all other axes."""
    shape = [1] * rank
    shape[axis] = size
    positions = call.indices(np.arange(size).reshape(shape))
    return call.emit("Less", positions, call.unsqueeze(call.cast(lengths, DType.INT64), axis))


@mapping("SoftmaxActivation", "Softmax")
def _softmax_activation(call: Call) -> Written:
    if call.text("mode", "instance") == "channel":
        return call.emit("Softmax", call.data, axis=1)
    if call.rank(call.data) != 2:
        call.refuse("of more than two axes MXNet takes the last on CPUs, and all but the first on GPUs.")
    return call.emit("Softmax", call.data, axis=1)


@mapping("SoftmaxOutput", "Softmax; its label is no input")
def _softmax_output(call: Call) -> Written:
    if call.flag("multi_output"):
        return call.emit("Softmax", call.data, axis=1)
    if call.flag("preserve_shape"):
        return call.emit("Softmax", call.data, axis=-1)
    return _softmax_per_sample(call)


def _softmax_per_sample(call: Call) -> Tensor:
    """Softmax over everything but the first axis."""
    if call.rank(call.data) == 2:
        return call.emit("Softmax", call.data, axis=1)
    flat = call.emit("Softmax", call.emit("Flatten", call.data, axis=1), axis=1)
    sizes = [call.size(call.data, axis) for axis in range(1, call.rank(call.data))]
    return call.reshape(flat, [0, *sizes])


@mapping(
    "BlockGrad _copy _np_copy MakeLoss make_loss LinearRegressionOutput MAERegressionOutput SVMOutput "
    "_identity_with_attr_like_rhs _contrib_gradientmultiplier cast_storage IdentityAttachKLSparseReg",
    "nothing (Identity where it is an output)",
)
def _identity(call: Call) -> Written:
    return call.data


@mapping("Dropout", "nothing (Identity where it is an output)")
def _dropout(call: Call) -> Written:
    if call.text("mode", "training") == "always":
        call.refuse("with mode=always it drops values in inference, at random.")
    return call.data
