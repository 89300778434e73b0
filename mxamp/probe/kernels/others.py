"""Random operators beside the layers: what reduces, normalizes, moves, and goes element by element."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping

from mxamp.probe.kernels.draw import Draw
from mxamp.probe.kernels.kernel import PLAIN, Kernel, Operand, kernel


def _pooling(draw: Draw) -> Kernel:
    n, c, s, _ = draw.image()
    how, blocked = str(draw.one_of("max", "max", "avg")), draw.layout(0.8)
    if draw.chance(0.3):
        return kernel(
            "Pooling",
            "Pooling",
            [Operand((n, c, s, s))],
            layout=blocked,
            pool_type="avg",
            global_pool=True,
            kernel=(1, 1),
        )
    size, stride, pad = [(2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 2, 0), (5, 1, 2)][
        int(str(draw.one_of(0, 0, 1, 1, 2, 3, 4)))
    ]
    s = max(s, size)
    return kernel(
        "Pooling",
        "Pooling",
        [Operand((n, c, s, s))],
        layout=blocked,
        pool_type=how,
        kernel=(size, size),
        stride=(stride, stride),
        pad=(pad, pad),
        count_include_pad=draw.chance(0.5),
    )


def _rows_pooled(draw: Draw) -> Kernel:
    """Return what takes the largest of what a convolution of words finds in a sentence, or a part."""
    n, length, c = draw.batch(), draw.size(2, 256), draw.channels(512)
    while n * length * c > draw.most_elements and length > 2:
        length = max(2, length * 3 // 4)
    size = length if draw.chance(0.7) else min(length, int(str(draw.one_of(2, 3, 4, 5))))
    return kernel(
        "Pooling of rows",
        "Pooling",
        [Operand((n, c, length, 1))],
        layout=draw.layout(0.8),
        pool_type=str(draw.one_of("max", "max", "max", "avg")),
        kernel=(size, 1),
        stride=(1 if size == length else size, 1),
    )


def _regions(draw: Draw) -> Kernel:
    op = str(draw.one_of("ROIPooling", "_contrib_ROIAlign"))
    c, s, number, pooled = draw.channels(), draw.size(7, 64), draw.size(4, 300), draw.one_of(7, 14)
    bins = int(str(pooled)) ** 2
    number = max(1, min(number, int(draw.most_elements / (c * bins))))
    own: dict[str, Any] = {"sample_ratio": draw.one_of(-1, 2)} if op == "_contrib_ROIAlign" else {}
    return kernel(
        op,
        op,
        [Operand((1, c, s, s)), Operand((number, 5), "regions", s)],
        layout=draw.layout(),
        pooled_size=(pooled, pooled),
        spatial_scale=1.0,
        **own,
    )


def _batch_norm(draw: Draw) -> Kernel:
    if draw.chance(0.15):
        n, c = draw.size(1, 128), draw.channels()
        return kernel("BatchNorm", "BatchNorm", [Operand((n, c)), *_norm(c, 4)], fix_gamma=False, eps=1e-5)
    shape = draw.image()
    return kernel(
        "BatchNorm",
        "BatchNorm",
        [Operand(shape), *_norm(shape[1], 4)],
        layout=draw.layout(),
        fix_gamma=False,
        eps=1e-5,
    )


def _norm(c: int, number: int) -> list[Operand]:
    return [Operand((c,), "float32") for _ in range(number)]


def _instance_norm(draw: Draw) -> Kernel:
    shape = draw.image(256)
    return kernel(
        "InstanceNorm", "InstanceNorm", [Operand(shape), *_norm(shape[1], 2)], layout=draw.layout(), eps=1e-5
    )


def _layer_norm(draw: Draw) -> Kernel:
    n, t, c = draw.batch(), draw.size(1, 256), draw.size(16, 2048)
    return kernel("LayerNorm", "LayerNorm", [Operand((n, t, c)), *_norm(c, 2)], axis=-1, eps=1e-5)


def _feature(draw: Draw) -> tuple[tuple[int, ...], str]:
    """Return the shape of what an element-wise operator reads: of an image, a matrix or a sequence."""
    if draw.chance(0.6):
        return draw.image(), draw.layout()
    if draw.chance(0.4):
        rows, width = draw.size(1, 256), draw.size(4, 2048)
        return (max(1, min(rows, int(draw.most_elements) // width)), width), PLAIN
    steps, width = draw.size(1, 256), draw.size(8, 1024)
    return (draw.batch(), max(1, min(steps, int(draw.most_elements) // width)), width), PLAIN


def _activation(draw: Draw) -> Kernel:
    shape, layout = _feature(draw)
    kind = str(draw.one_of("relu", "relu", "sigmoid", "tanh", "softrelu"))
    return kernel(f"Activation {kind}", "Activation", [Operand(shape)], layout=layout, act_type=kind)


def _leaky(draw: Draw) -> Kernel:
    shape, layout = _feature(draw)
    kind = str(draw.one_of("leaky", "prelu", "elu", "gelu", "selu"))
    slopes = [Operand((shape[1],), "weight")] if kind == "prelu" else []
    return kernel(f"LeakyReLU {kind}", "LeakyReLU", [Operand(shape), *slopes], layout=layout, act_type=kind)


_UNARY: Mapping[str, Mapping[str, Any]] = {
    "relu": {},
    "sigmoid": {},
    "tanh": {},
    "exp": {},
    "sqrt": {},
    "square": {},
    "abs": {},
    "hard_sigmoid": {},
    "clip": {"a_min": 0, "a_max": 6},
    "_mul_scalar": {"scalar": 0.5},
    "_plus_scalar": {"scalar": 3},
    "_div_scalar": {"scalar": 6},
    "_maximum_scalar": {"scalar": 0.1},
}


def _unary(draw: Draw) -> Kernel:
    shape, layout = _feature(draw)
    op = str(draw.one_of(*_UNARY))
    return kernel(op, op, [Operand(shape)], layout=layout, **_UNARY[op])


def _cast(draw: Draw) -> Kernel:
    # Casts of what a cache does not hold take several times as long for each value.
    shape, layout = (draw.large_image(), draw.layout()) if draw.chance(0.15) else _feature(draw)
    direction = str(draw.one_of("up", "down"))
    return kernel(f"cast {direction}", "amp_cast", [Operand(shape)], layout=layout)


def _pairwise(draw: Draw) -> Kernel:
    shape, layout = _feature(draw)
    op = str(draw.one_of("elemwise_add", "elemwise_add", "elemwise_mul", "elemwise_sub", "_maximum", "where"))
    return kernel(op, op, [Operand(shape)] * (3 if op == "where" else 2), layout=layout)


def _broadcast(draw: Draw) -> Kernel:
    shape, layout = _feature(draw)
    op = str(draw.one_of("broadcast_mul", "broadcast_mul", "broadcast_add", "broadcast_sub", "broadcast_div"))
    how = draw.one_of("channel", "channel", "channel", "row", "row", "axis", "none")
    if how == "none":  # what was copied before, or is of one shape as it happens
        other: tuple[int, ...] = shape
    elif how == "axis":  # the weight of each vector, one vector for all
        axis = draw.index(len(shape))
        other = (*shape[:axis], 1, *shape[axis + 1 :])
    elif how == "channel" and len(shape) == 4:
        other = (shape[0], shape[1], 1, 1)
    else:
        other = (1,) * (len(shape) - 1) + shape[-1:]
    return kernel(op, op, [Operand(shape), Operand(other)], layout=layout)


def _concat(draw: Draw) -> Kernel:
    n, c, s, _ = draw.image(256)
    count, layout = draw.size(2, 4), draw.layout()
    operands = [Operand((n, c, s, s))]
    operands += [Operand((n, draw.channels(256) if draw.chance(0.5) else c, s, s)) for _ in range(count - 1)]
    return kernel("Concat", "Concat", operands, layout=layout, dim=1, num_args=count)


def _parts(draw: Draw) -> Kernel:
    """Return what cuts the gates of a recurrent cell apart, the steps of a sequence, or channels."""
    number = int(str(draw.one_of(2, 2, 3, 3, 4, 4, 4, draw.size(5, 100))))
    if draw.chance(0.4):
        n, c, *sides = draw.image(512)
        number = min(number, c)
        shape: tuple[int, ...] = (n, c // number * number, *sides)
        return kernel(
            "SliceChannel", "SliceChannel", [Operand(shape)], layout=draw.layout(), num_outputs=number, axis=1
        )
    n, each, inner = draw.batch(), draw.size(1, 256), draw.size(1, 256) if draw.chance(0.5) else 1
    while each > 1 and n * number * each * inner > draw.most_elements:
        each //= 2
    shape = (n, number * each, *([inner] if inner > 1 else []))
    is_step = each == 1 and inner > 1
    return kernel(
        "SliceChannel", "SliceChannel", [Operand(shape)], num_outputs=number, axis=1, squeeze_axis=is_step
    )


def _moving(draw: Draw) -> Kernel:
    shape, layout = _feature(draw)
    op = str(
        draw.one_of(
            "transpose",
            "transpose",
            "Reshape",
            "Flatten",
            "expand_dims",
            "slice_axis",
            "tile",
            "UpSampling",
            "SwapAxis",
            "Pad",
        )
    )
    attrs: dict[str, Any] = {}
    if op == "transpose":
        attrs["axes"] = (
            (0, *range(2, len(shape)), 1) if draw.chance(0.6) else tuple(reversed(range(len(shape))))
        )
    elif op == "Reshape":
        attrs["shape"] = (0, -1)
    elif op == "expand_dims":
        attrs["axis"] = 1
    elif op == "slice_axis":
        axis = draw.index(len(shape))
        attrs.update(axis=axis, begin=0, end=max(1, draw.size(1, shape[axis])))
    elif op == "tile":
        axis, times = draw.index(len(shape)), draw.size(2, 200)
        each = max(1, shape[axis] // times)
        shape = (*shape[:axis], each, *shape[axis + 1 :])
        while times > 1 and times * math.prod(shape) > draw.most_elements:
            times //= 2
        attrs["reps"] = tuple([times if one == axis else 1 for one in range(len(shape))])
    elif op == "UpSampling" or op == "Pad":
        if len(shape) != 4:
            shape, layout = draw.image(256), draw.layout()
        shape = (shape[0], shape[1], max(2, shape[2] // 2), max(2, shape[3] // 2))
        attrs = (
            {"scale": 2, "sample_type": "nearest", "num_args": 1}
            if op == "UpSampling"
            else {"mode": "constant", "pad_width": (0, 0, 0, 0, 1, 1, 1, 1)}
        )
    elif op == "SwapAxis":
        attrs.update(dim1=0, dim2=1)
    return kernel(op, op, [Operand(shape)], layout=layout, **attrs)


def _reduction(draw: Draw) -> Kernel:
    shape, layout = _feature(draw)
    op = str(draw.one_of("mean", "sum", "max", "norm", "softmax", "log_softmax", "argmax", "L2Normalization"))
    if len(shape) > 2 and draw.chance(0.2):  # vectors of which each value stands for one of a few
        shape, layout = (*shape[:-1], 1), PLAIN
    axis: object = -1 if draw.chance(0.4) else 1 if draw.chance(0.7) else len(shape) - 2
    if op in ("mean", "sum", "max") and len(shape) == 4 and draw.chance(0.5):
        axis = (2, 3)
    if op == "L2Normalization":
        return kernel(op, op, [Operand(shape)], layout=layout, mode="instance")
    return kernel(op, op, [Operand(shape)], layout=layout, axis=axis)


def _product(draw: Draw) -> Kernel:
    heads, rows, columns = draw.size(1, 32), draw.size(4, 256), draw.size(4, 256)
    inner = draw.size(16, 256) if draw.chance(0.9) else draw.size(256, 2048)
    while heads > 1 and heads * rows * inner * columns > draw.most_multiply_adds:
        heads //= 2
    while rows * inner * columns > draw.most_multiply_adds:
        rows, inner, columns = (max(1, size // 2) for size in (rows, inner, columns))
    if draw.chance(0.3):
        if draw.chance(0.4):  # with one vector, as sums are taken of many rows
            rows = max(1, min(draw.size(16, 200_000), int(draw.most_elements) // inner))
            return kernel("dot", "dot", [Operand((rows, inner)), Operand((inner,))])
        return kernel("dot", "dot", [Operand((rows, inner)), Operand((inner, columns))])
    if draw.chance(0.2):  # as sums are taken along the second axis
        return kernel(
            "batch_dot",
            "batch_dot",
            [Operand((heads, inner, rows)), Operand((heads, inner, 1))],
            transpose_a=True,
        )
    flip = draw.chance(0.5)
    second = (heads, columns, inner) if flip else (heads, inner, columns)
    return kernel(
        "batch_dot", "batch_dot", [Operand((heads, rows, inner)), Operand(second)], transpose_b=flip
    )


_USUAL_HIDDEN = (64, 128, 200, 256, 300, 512, 650, 768, 1024)
"""The sizes of what language models and recognisers remember."""


def _recurrent(draw: Draw) -> Kernel:
    mode = str(draw.one_of("lstm", "lstm", "gru", "rnn_tanh"))
    gates = {"lstm": 4, "gru": 3, "rnn_tanh": 1}[mode]
    t, n, inputs, hidden = draw.size(1, 64), draw.batch(), draw.size(8, 768), 4 * draw.size(4, 192)
    if draw.chance(0.4):  # a sentence through layers of a usual size, which lie in memory for every word
        t, n = draw.size(16, 128), int(str(draw.one_of(1, 1, n)))
        hidden = int(str(draw.one_of(*_USUAL_HIDDEN)))
    ways, layers = 2 if draw.chance(0.3) else 1, int(str(draw.one_of(1, 1, 2)))
    while t > 1 and t * n * gates * hidden * (inputs + hidden) > draw.most_multiply_adds / 2:
        t //= 2
    size = 0
    for layer in range(layers):
        width = inputs if layer == 0 else hidden * ways
        size += ways * gates * hidden * (width + hidden + 2)
    states = [Operand((layers * ways, n, hidden), "float32")]
    states += [Operand((layers * ways, n, hidden), "float32")] if mode == "lstm" else []
    return kernel(
        f"RNN {mode}",
        "RNN",
        [Operand((t, n, inputs)), Operand((size,), "weight"), *states],
        state_size=hidden,
        num_layers=layers,
        mode=mode,
        bidirectional=ways == 2,
        p=0,
        state_outputs=True,
    )


def _embedding(draw: Draw) -> Kernel:
    words, width = draw.size(16, 30000), draw.size(8, 1024)
    while words * width > 8e6:
        words = max(16, words // 2)
    rows = (draw.batch(), draw.size(1, 256))
    return kernel(
        "Embedding",
        "Embedding",
        [Operand(rows, "index", words), Operand((words, width), "weight")],
        input_dim=words,
        output_dim=width,
    )


OTHERS: Mapping[str, tuple[float, Callable[[Draw], Kernel]]] = {
    "Pooling": (3, _pooling),
    "Pooling of rows": (0.5, _rows_pooled),
    "regions": (0.7, _regions),
    "BatchNorm": (1.5, _batch_norm),
    "InstanceNorm": (0.7, _instance_norm),
    "LayerNorm": (0.7, _layer_norm),
    "Activation": (3, _activation),
    "LeakyReLU": (3, _leaky),
    "unary": (6, _unary),
    "cast": (2, _cast),
    "pairwise": (3, _pairwise),
    "broadcast": (3, _broadcast),
    "Concat": (1.5, _concat),
    "moving": (5, _moving),
    "SliceChannel": (0.7, _parts),
    "reduction": (4, _reduction),
    "product": (1.5, _product),
    "recurrent": (2, _recurrent),
    "Embedding": (0.7, _embedding),
}
"""Name -> how often it is drawn beside the others, and what draws it."""
