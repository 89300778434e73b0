"""Moving values about: reshaping, joining, cutting, repeating."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np

from tools.fuzz_conversion.draft import Draft

__all__ = ["STEPS"]


def reshape(draft: Draft) -> Any:
    """Reshape to a form that other steps like, or with MXNet's special codes."""
    x = draft.pick()
    ndim = len(x.shape)
    if draft.chance(0.3):
        shape = draft.choice([(-1,), (0, -1), (-1, 0), (0, -1, 1), (-3, -2), (0, -4, 1, -1, -2), (-2, 1)])
        return mx.sym.Reshape(x.sym, shape=shape)
    wanted = draft.choice([2, 3, 4, 4, 5])
    sizes = [1] * wanted
    left = int(np.prod(x.shape))
    for axis in range(wanted - 1):
        divisors = [size for size in range(1, min(left, 8) + 1) if left % size == 0]
        sizes[axis] = draft.choice(divisors)
        left //= sizes[axis]
    sizes[-1] = left if draft.chance() else -1
    del ndim
    return mx.sym.Reshape(x.sym, shape=tuple(sizes))


def flatten(draft: Draft) -> Any:
    """Flatten."""
    return mx.sym.Flatten(draft.pick(ndim=(2, 3, 4, 5)).sym)


def transpose(draft: Draft) -> Any:
    """Transpose, or swap two axes."""
    x = draft.pick(ndim=(2, 3, 4, 5))
    if draft.chance(0.3):
        return mx.sym.swapaxes(x.sym, dim1=0, dim2=draft.integer(1, len(x.shape) - 1))
    return mx.sym.transpose(x.sym, axes=tuple(int(axis) for axis in draft.random.permutation(len(x.shape))))


def there_and_back(draft: Draft) -> Any:
    """Transpose, do something, and transpose back."""
    x = mx.sym.transpose(draft.pick(ndim=4).sym, axes=(0, 2, 3, 1))
    if draft.chance():
        x = mx.sym.FullyConnected(x, num_hidden=draft.width(2, 4), flatten=False)
    return mx.sym.transpose(x, axes=(0, 3, 1, 2))


def axis(draft: Draft) -> Any:
    """Add an axis, or drop those of size 1."""
    x = draft.pick(ndim=(1, 2, 3, 4))
    if draft.chance(0.6):
        return mx.sym.expand_dims(x.sym, axis=draft.integer(0, len(x.shape)))
    return mx.sym.squeeze(x.sym)


def concat(draft: Draft) -> Any:
    """Join values, along an axis or a new one."""
    x = draft.pick(ndim=(2, 3, 4, 5))
    dim = draft.integer(0, len(x.shape) - 1)
    others = [
        draft.pick(
            lambda value: (
                len(value.shape) == len(x.shape)
                and value.shape[:dim] + value.shape[dim + 1 :] == x.shape[:dim] + x.shape[dim + 1 :]
            ),
            params=True,
        )
        for _ in range(draft.integer(1, 3))
    ]
    if draft.chance(0.2):
        return mx.sym.stack(x.sym, draft.alike(x).sym, axis=dim)
    return mx.sym.Concat(x.sym, *(other.sym for other in others), dim=dim)


def split(draft: Draft) -> Any:
    """Split into several outputs, all of them used or not."""
    x = draft.pick(lambda value: any(size % 2 == 0 for size in value.shape), ndim=(2, 3, 4, 5))
    along = draft.choice([number for number, size in enumerate(x.shape) if size % 2 == 0])
    if draft.chance(0.3):
        halves = mx.sym.split_v2(x.sym, 2, axis=along)
    else:
        squeeze = x.shape[along] == 2 and draft.chance(0.3)
        halves = mx.sym.SliceChannel(x.sym, num_outputs=2, axis=along, squeeze_axis=squeeze)
    return draft.choice([mx.sym.Group([halves[0], halves[1]]), halves[1], halves[0]])


def shuffle_channels(draft: Draft) -> Any:
    """Shuffle channels as ShuffleNet does."""
    x = draft.pick(lambda value: value.shape[1] % 2 == 0, ndim=4).sym
    y = mx.sym.Reshape(x, shape=(0, -4, 2, -1, -2))
    return mx.sym.Reshape(mx.sym.swapaxes(y, 1, 2), shape=(0, -3, -2))


def cut(draft: Draft) -> Any:
    """Cut a part out."""
    x = draft.pick(ndim=(2, 3, 4, 5))
    if draft.chance():
        along = draft.integer(0, len(x.shape) - 1)
        begin = draft.integer(0, x.shape[along] - 1)
        end = draft.choice([None, draft.integer(begin + 1, x.shape[along])])
        return mx.sym.slice_axis(x.sym, axis=along, begin=begin, end=end)
    begin = tuple(draft.integer(0, size - 1) for size in x.shape)
    end = tuple(draft.integer(low + 1, size) for low, size in zip(begin, x.shape))
    if draft.chance(0.2):
        step = tuple(draft.choice([1, 2]) for _ in x.shape)
        return mx.sym.slice(x.sym, begin=begin, end=end, step=step)
    return mx.sym.slice(x.sym, begin=begin, end=end)


def repeat(draft: Draft) -> Any:
    """Repeat, tile, reverse, or take a diagonal."""
    x = draft.pick(ndim=(2, 3, 4))
    along = draft.integer(0, len(x.shape) - 1)
    return draft.choice(
        [
            lambda: mx.sym.repeat(x.sym, repeats=2, axis=along),
            lambda: mx.sym.tile(x.sym, reps=(2,)),
            lambda: mx.sym.reverse(x.sym, axis=along),
            lambda: mx.sym.diag(draft.pick(ndim=2).sym),
        ]
    )()


def depth_and_space(draft: Draft) -> Any:
    """Move channels to space, or back."""
    if draft.chance(0.7):
        x = draft.pick(lambda value: value.shape[1] % 4 == 0, ndim=4)
        if draft.chance():
            return mx.sym.depth_to_space(x.sym, block_size=2)
        parts = mx.sym.Reshape(
            mx.sym.Reshape(x.sym, shape=(0, -4, -1, 4, 0, 0)), shape=(0, 0, -4, 2, 2, 0, 0)
        )
        return mx.sym.Reshape(mx.sym.transpose(parts, axes=(0, 1, 4, 2, 5, 3)), shape=(0, 0, -3, -3))
    x = draft.pick(lambda value: value.shape[2] % 2 == 0 == value.shape[3] % 2, ndim=4)
    return mx.sym.space_to_depth(x.sym, block_size=2)


def broadcast_shape(draft: Draft) -> Any:
    """Broadcast to the shape of something else, or reshape or cut like it."""
    x = draft.pick(ndim=(2, 3, 4))
    kind = draft.choice(["to", "like", "axis", "reshape", "slice"])
    if kind == "reshape":
        other = draft.pick(lambda value: value.array.size == x.array.size)
        return mx.sym.reshape_like(x.sym, other.sym)
    if kind == "slice":
        other = draft.pick(
            lambda value: (
                len(value.shape) == len(x.shape) and all(a <= b for a, b in zip(value.shape, x.shape))
            )
        )
        return mx.sym.slice_like(x.sym, other.sym)
    small = draft.param(*(size if draft.chance() else 1 for size in x.shape), scale=1.0)
    if kind == "to":
        return mx.sym.broadcast_to(small.sym, shape=x.shape)
    if kind == "axis":
        small = draft.pick(lambda value: 1 in value.shape, ndim=(2, 3, 4), params=True)
        return mx.sym.broadcast_axis(small.sym, axis=small.shape.index(1), size=draft.integer(2, 4))
    return mx.sym.broadcast_like(small.sym, x.sym)


def crop(draft: Draft) -> Any:
    """Crop like something smaller, as segmentation networks do."""
    x = draft.pick(ndim=4)
    other = draft.pick(lambda value: value.shape[2] <= x.shape[2] and value.shape[3] <= x.shape[3], ndim=4)
    return mx.sym.Crop(x.sym, other.sym, num_args=2)


def shape_of(draft: Draft) -> Any:
    """Ask for a shape, and compute with it."""
    x = draft.pick()
    shape = mx.sym.shape_array(x.sym)
    return shape if draft.chance(0.3) else mx.sym.Cast(shape, dtype="float32") * 0.1


def columns(draft: Draft) -> Any:
    """Unfold into columns."""
    return mx.sym.im2col(draft.pick(ndim=4).sym, kernel=(3, 3), stride=(1, 1), dilate=(1, 1), pad=(1, 1))


STEPS = (
    *(reshape, reshape, reshape, flatten, transpose, transpose, there_and_back, axis, concat, concat, split),
    *(split, shuffle_channels, cut, cut, repeat, depth_and_space, broadcast_shape, crop, shape_of, columns),
)
