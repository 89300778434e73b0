"""What the time of a kernel depends on: amounts that cost time each, and traits that decide which code runs.

Amounts are counted from shapes and attributes alone: operations, bytes read and written, bytes that have to
be brought into another order. Traits are what a library looks at when it picks an implementation: oneDNN
takes its vector kernels where channels fill blocks of 16 (without AVX-512 of 8), others where they fill 8,
and plain matrix products where they do not; with AMX, blocks of 32 inputs.
"""

from __future__ import annotations

import math
from typing import Dict, Mapping, Sequence

from mxamp.ops.attributes import all_integers
from mxamp.targets.image_layout import CHANNELS_LAST, PLAIN, layer_layout, stride_fits
from mxamp.targets.layout import KEEP_LAYOUT
from mxamp.targets.work import Work

LAYERS = frozenset({"Convolution", "Deconvolution", "FullyConnected"})

_FLOAT32_BYTES = 4

_CACHE = 1 << 20
"""Bytes that stay near a core; what is beyond comes from farther away."""

_SHARED_CACHE = 8 << 20
"""Bytes of which a cache that cores share keeps most; of what is beyond, more and more comes from memory."""

_FILL = 512
"""Powers of two up to this are looked for in a number of channels. Small ones fill blocks; where large ones
lie between the values of a channel these share sets of the caches."""

Amounts = Dict[str, float]
Traits = Dict[str, float]


def amounts_and_traits(op: str, work: Work, *, low: bool) -> tuple[Amounts, Traits]:
    """Return what a kernel does and what it looks like; sizes in bytes, of the dtype that it computes in.

    Parameters
    ----------
    op
        The canonical operator name.
    work
        What it does, with the shapes of its inputs and its output.
    low
        Whether it computes in the low dtype.
    """
    itemsize = 2 if low else 4
    if op in LAYERS and len(work.inputs) > 1:
        return _layer(op, work, itemsize)
    if op == "RNN":
        return _recurrent(work, itemsize)
    return _other(op, work, itemsize)


def _layer(op: str, work: Work, itemsize: int) -> tuple[Amounts, Traits]:
    data, weight = work.inputs[0], work.inputs[1]
    groups = groups_of(work.attributes)
    read, written = math.prod(data), math.prod(work.output)
    taps = math.prod(weight[2:])
    # A FullyConnected's weight, a Convolution's and a Deconvolution's: (filters, channels), the last turned.
    channels, filters = weight[1], weight[0] // groups
    if op == "Deconvolution":
        channels, filters = weight[0] // groups, weight[1]
    rows = max(
        1, (read // max(1, channels * groups)) if op != "Convolution" else written // max(1, filters * groups)
    )
    products = rows * groups * taps
    extra = max(0, work.elements - sum(math.prod(shape) for shape in work.inputs) - written)
    # A BatchNorm in the chain reads but vectors; a sum reads as much as is written.
    extra = extra if 2 * extra >= written else 0
    strides = all_integers(work.attributes.get("stride", "")) or (1,)
    stride = max(strides)
    row = work.output[-1] if len(work.output) > 2 else rows
    padded = products * _up(channels, 4) * _up(filters, work.block)
    if work.is_depthwise:
        padded = rows * taps * _up(groups, work.block)
    total = itemsize * work.elements
    arrives_in, runs_in = work.arrives_in[itemsize != _FLOAT32_BYTES], _runs_in(op, work, itemsize)
    amounts = {
        "one": 1.0,
        "multiply_adds": float(products * channels * filters),
        "padded_multiply_adds": float(padded),
        "columns": float(itemsize * products * channels if taps > 1 or stride > 1 else 0),
        # As a plain matrix product a Deconvolution writes a value for each tap, and adds them up.
        "scattered": float(itemsize * products * filters if op == "Deconvolution" else 0),
        "windows": float(products),
        "read": float(itemsize * read),
        # What comes in the order of another implementation is brought into its own first.
        "relaid": float(itemsize * read if PLAIN != arrives_in != runs_in else 0),
        "written": float(itemsize * written),
        "weights": float(itemsize * math.prod(weight)),
        "added": float(itemsize * extra),
        # Behind oneDNN's plain matrix products such values are computed one by one.
        "activated_sum": float(itemsize * extra if work.has_activation else 0),
        "groups": float(groups),
        "beyond_cache": float(max(0, total - _CACHE)),
        # Weights come from memory however few they are, and have a rate of their own.
        "beyond_shared_cache": float(max(0, total - itemsize * math.prod(weight) - _SHARED_CACHE)),
    }
    traits = {
        "filters_fill": _fill(filters * groups),
        "channels_fill": _fill(channels * groups),
        "group_fill": _fill(channels),
        "group_filters_fill": _fill(filters),
        "channels": channels * groups,
        "filters": filters * groups,
        "groups": groups,
        "taps": taps,
        "stride": stride,
        "stride_fits": float(op != "Convolution" or stride_fits(strides, data[2:], work.output[2:])),
        "dilate": max(all_integers(work.attributes.get("dilate", "")) or (1,)),
        "rows": rows,
        "row": row,
        "batch": data[0],
        "adds": float(extra > 0),
        "activates": float(work.has_activation),
        "bias": float(work.has_bias),
        "layout": _layout(work, itemsize),
        "arrives_in": arrives_in,
        "runs_in": runs_in,
        "multiply_adds": amounts["multiply_adds"],
        "weights": amounts["weights"],
        "bytes": float(total),
        "around": float(itemsize * work.around),
        "model": float(itemsize * work.model),
        "operators": work.operators,
    }
    return amounts, traits


def _recurrent(work: Work, itemsize: int) -> tuple[Amounts, Traits]:
    steps, batch, width = (*work.inputs[0], 1, 1, 1)[:3]
    attributes = work.attributes
    hidden = int(attributes.get("state_size", "1"))
    layers = int(attributes.get("num_layers", "1"))
    ways = 2 if attributes.get("bidirectional", "False") in ("True", "1", "true") else 1
    gates = {"lstm": 4, "gru": 3}.get(attributes.get("mode", "lstm"), 1)
    turns = steps * layers * ways
    below = width + (layers - 1) * hidden * ways
    amounts = {
        "one": 1.0,
        "turns": float(turns),
        "multiply_adds": float(steps * batch * below * hidden * gates * ways),
        "recurrent_multiply_adds": float(turns * batch * hidden * hidden * gates),
        "recurrent_weights": float(itemsize * turns * hidden * hidden * gates),
        # What does not stay near the core is brought anew in every turn.
        "recurrent_weights_beyond_cache": float(turns * max(0, itemsize * hidden * hidden * gates - _CACHE)),
        "weights": float(itemsize * sum(math.prod(shape) for shape in work.inputs[1:2])),
        "cells": float(turns * batch * hidden),
    }
    traits = {
        "steps": steps,
        "batch": batch,
        "channels": width,
        "hidden": hidden,
        "layers": layers,
        "ways": ways,
        "model": float(itemsize * work.model),
        "operators": work.operators,
        "multiply_adds": amounts["multiply_adds"] + amounts["recurrent_multiply_adds"],
    }
    return amounts, traits


def _other(op: str, work: Work, itemsize: int) -> tuple[Amounts, Traits]:
    first = work.inputs[0] if work.inputs else ()
    sizes = [math.prod(shape) for shape in work.inputs] or [0]
    read, rest, written = sizes[0], sum(sizes[1:]), math.prod(work.output)
    # Of a table only the rows are read that are asked for.
    table = sum(sizes[1:2]) if op == "Embedding" else 0
    layout = _layout(work, itemsize)
    channels = first[1] if len(first) > 1 else 1
    total = itemsize * (work.elements - min(table, written))
    window = _window(op, work)
    outer, reduced, inner = _axes(op, work.attributes, first)
    last = _last_axis_moves(work.attributes, len(first))
    fits = all(len(shape) > 1 and shape[1] % work.block == 0 for shape in work.inputs)
    amounts = {
        "one": 1.0,
        "read": float(itemsize * read),
        "written": float(itemsize * written),
        "others_read": float(itemsize * (rest - table)),
        "window": float(written * window),
        "reordered": float(itemsize * (read + rest - table) if layout else 0),
        "unfit": float(0 if fits else itemsize * written),
        "gathered": float(0 if op in _READ_ANY_ORDER else _gathered(work, itemsize)),
        "multiply_adds": float(work.multiply_adds),
        "lines": float(outer * inner),
        "strided": float(read if inner > 1 or last else 0),
        "inputs": float(read // max(1, written) if op == _CUTS else len(sizes)),  # what is put or cut apart
        "beyond_cache": float(max(0, total - _CACHE)),
        "beyond_shared_cache": float(max(0, total - _SHARED_CACHE)),
    }
    traits = {
        "layout": layout,
        "arrives_in": work.arrives_in[itemsize != _FLOAT32_BYTES],
        "rank": len(first),
        "channels": channels,
        "channels_fill": _fill(channels),
        "batch": first[0] if first else 1,
        "row": first[-1] if first else 1,
        "written_row": work.output[-1] if work.output else 1,
        "written_fill": _fill(work.output[1]) if len(work.output) > 1 else 1,
        "plane": math.prod(first[2:]),
        "bytes": float(total),
        "around": float(itemsize * work.around),
        "model": float(itemsize * work.model),
        "operators": work.operators,
        "others": float(rest),
        "shrinks": read / max(1, written),
        "window": window,
        "is_average": float(work.attributes.get("pool_type", "max") == "avg"),
        "is_global": float(work.attributes.get("global_pool", "False") in ("True", "1", "true")),
        "stride": max(all_integers(work.attributes.get("stride", "")) or (1,)),
        "outer": outer,
        "reduced": reduced,
        "inner": inner,
        "last_axis_moves": last,
        "fits": float(fits),
        "alike": float(len(set(work.inputs)) == 1),
        "per_channel": float(len(first) == 4 and len(work.inputs) > 1 and math.prod(work.inputs[1][2:]) == 1),
        "multiply_adds": float(work.multiply_adds),
    }
    return amounts, traits


def _window(op: str, work: Work) -> int:
    """Return over how many values a pooling goes for each that it writes; 1 for other operators."""
    if op in _REGIONS:
        return _region_window(op, work)
    if op != "Pooling":
        return 1
    if work.attributes.get("global_pool", "False") in ("True", "1", "true"):
        return math.prod(work.inputs[0][2:]) if work.inputs else 1
    return math.prod(all_integers(work.attributes.get("kernel", "")) or (1,))


_REGIONS = frozenset({"ROIPooling", "_contrib_ROIAlign"})

_REGION = 1 / 3
"""The side of a region, as a share of the image's, where its corners may be anywhere: nothing else is known
before data are."""


def _region_window(op: str, work: Work) -> int:
    """Return how many values of a region are looked at for each that is written."""
    each = max(0, (all_integers(work.attributes.get("sample_ratio", "")) or (0,))[0])
    if op != "ROIPooling" and each:
        return each * each
    pooled = all_integers(work.attributes.get("pooled_size", "")) or (1,)
    # A bin of a ROIPooling holds every pixel that it touches.
    touched = 1 if op == "ROIPooling" else 0
    sides = zip(work.inputs[0][2:], pooled * 2)
    return math.prod([touched + math.ceil(_REGION * side / max(1, bins)) for side, bins in sides])


_GO_OVER_AXES = frozenset(
    {"LayerNorm", "argmax", "argmin", "log_softmax", "max", "mean", "min", "norm", "prod", "softmax", "sum"}
)

_LIE_ALONG = {"Concat": ("dim", "1"), "slice_axis": ("axis", "0"), "stack": ("axis", "0")}
"""Operators that put together or cut along an axis: its attribute, and its default."""

_CUTS = "SliceChannel"

_FEW_PLACES = 4
"""What is left of an image's places where not eight at once are brought into plain order."""

_FAR_APART = 64
"""Channels, in a power of two, from which on the values of one lie in few sets of a cache."""

_READ_ANY_ORDER = KEEP_LAYOUT | {"transpose"}
"""Operators that need no plain order."""

_IMAGE = 4

_LAST_AXIS = frozenset({"LayerNorm", "softmax", "log_softmax"})
"""Operators that go over the last axis unless told otherwise."""


def _axes(op: str, attributes: Mapping[str, str], shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return how many values lie before, within and behind the axes that an operator goes over."""
    if op in _LIE_ALONG:
        name, default = _LIE_ALONG[op]
        axis = all_integers(attributes.get(name, default))[0] % max(1, len(shape))
        return math.prod(shape[:axis]), math.prod(shape[axis : axis + 1]), math.prod(shape[axis + 1 :])
    if op == "transpose":
        # What stays in place behind is moved as one.
        order = all_integers(attributes.get("axes", "")) or tuple(reversed(range(len(shape))))
        kept = len(shape)
        while kept and order[kept - 1] == kept - 1:
            kept -= 1
        return math.prod(shape[:kept]), 1, math.prod(shape[kept:])
    if op == "tile":
        times = all_integers(attributes.get("reps", ""))[-len(shape) :] if shape else ()
        axes = [axis + len(shape) - len(times) for axis, number in enumerate(times) if number > 1]
        return _split_at(shape, axes)
    if op not in _GO_OVER_AXES:
        return 1, 1, 1
    given = attributes.get("axis", "-1" if op in _LAST_AXIS else "")
    return _split_at(shape, [axis % len(shape) for axis in all_integers(given) if shape])


def _split_at(shape: tuple[int, ...], axes: Sequence[int]) -> tuple[int, int, int]:
    """Return how many values lie before, within and behind axes; where there are none, all lie within."""
    if not axes:
        return 1, math.prod(shape), 1
    first, last = min(axes), max(axes)
    return math.prod(shape[:first]), math.prod(shape[first : last + 1]), math.prod(shape[last + 1 :])


def _last_axis_moves(attributes: Mapping[str, str], rank: int) -> float:
    axes = all_integers(attributes.get("axes", ""))
    return float(bool(axes) and axes[-1] != rank - 1)


def _runs_in(op: str, work: Work, itemsize: int) -> int:
    """Return the order of the implementation that a layer of images takes; plain for other layers."""
    data, weight, output = work.inputs[0], work.inputs[1], work.output
    if op == "FullyConnected" or not len(data) == len(weight) == len(output) == _IMAGE:
        return PLAIN
    low = itemsize != _FLOAT32_BYTES
    return layer_layout(op, work.attributes, data, weight, output, low=low, block=work.block)


def _gathered(work: Work, itemsize: int) -> int:
    """Return how many values are gathered that share sets of a cache, times how far they lie apart.

    Of channels that lie side by side oneDNN brings some places at once into plain order, four where their
    number is no multiple of eight. The values of a channel lie as many apart as there are channels.
    """
    data = work.inputs[0] if work.inputs else ()
    if len(data) != _IMAGE or work.arrives_in[itemsize != _FLOAT32_BYTES] != CHANNELS_LAST:
        return 0
    apart, places = _fill(data[1]), math.prod(data[2:])
    return math.prod(data) * apart if apart >= _FAR_APART and places % 8 == _FEW_PLACES else 0


def _layout(work: Work, itemsize: int) -> int:
    """Return how data come: 0 in plain order, 1 in blocks of 8 channels, 2 in oneDNN's best order.

    A convolution whose filters fill neither blocks of 16 nor of 8 writes plain tensors; one in the low dtype
    knows no blocks of 8.
    """
    if not work.finds_blocks(low=itemsize != _FLOAT32_BYTES) or len(work.inputs[0]) < 2:
        return 0
    channels = work.inputs[0][1]
    if channels % work.block == 0:
        return 2
    return int(channels % 8 == 0 and itemsize == _FLOAT32_BYTES)


def groups_of(attributes: Mapping[str, str]) -> int:
    """Return into how many groups a layer's channels are cut."""
    return max(1, (all_integers(attributes.get("num_group", "")) or (1,))[0])


def _up(size: int, block: int) -> int:
    return -(-size // block) * block


def _fill(size: int) -> int:
    """Return the largest power of two that divides a size, up to :data:`_FILL`."""
    return min(_FILL, size & -size) if size else 1


def _names(number: int) -> frozenset[str]:
    """Return the names of all amounts (0) or traits (1)."""
    shape = (1, 1, 1, 1)
    work = Work(1, 3, inputs=(shape, shape), output=shape)
    return frozenset(
        name
        for op in ("Convolution", "RNN", "exp")
        for name in amounts_and_traits(op, work, low=False)[number]
    )


AMOUNTS, TRAITS = _names(0), _names(1)
"""The names that a target's document may use."""
