"""Looking up: embeddings, take, gather, pick, one-hot vectors."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np

from tools.fuzz_conversion.draft import Draft, NothingFitsError, Value

__all__ = ["STEPS"]


def _indices(draft: Draft, size: int) -> Any:
    """Return positions below a size: those of an input, computed, or by a cast."""
    whole = [
        value
        for value in draft.values
        if value.array.size <= 64
        and value.array.dtype.kind in "fiu"
        and value.array.min() >= 0
        and value.array.max() < size
        and (value.array == np.round(value.array)).all()
        and value.array.max() > 0
        and value.array.ndim <= 3
    ]
    if whole and draft.chance(0.8):
        return draft.choice(whole).sym
    x = draft.pick(lambda value: value.array.size <= 64, ndim=(1, 2, 3))
    found = mx.sym.clip(mx.sym.floor(mx.sym.abs(x.sym) * 2), a_min=0, a_max=size - 1)
    return mx.sym.Cast(found, dtype="int32") if draft.chance(0.3) else found


def _table(draft: Draft) -> Value:
    """Return a matrix to look up in: a parameter, perhaps the weight of a layer, or something computed."""
    if draft.chance(0.3):
        return draft.pick(lambda value: value.shape[0] > 1, ndim=2, params=True)
    return draft.param(draft.choice([4, 10, 12, 300]), draft.choice([2, 4, 8]), scale=0.5, shared=0.5)


def embedding(draft: Draft) -> Any:
    """Look tokens up."""
    table = _table(draft)
    rows, columns = table.shape
    return mx.sym.Embedding(_indices(draft, rows), weight=table.sym, input_dim=rows, output_dim=columns)


def tied(draft: Draft) -> Any:
    """Decode with the weight that a table is."""
    x = draft.pick(ndim=(2, 3))
    tables = [value for value in draft.values if value.is_param and value.shape[1:] == x.shape[-1:]]
    table = draft.choice([value for value in tables if len(value.shape) == 2 and value.shape[0] <= 64])
    return mx.sym.FullyConnected(
        x.sym, weight=table.sym, num_hidden=table.shape[0], no_bias=draft.chance(), flatten=False
    )


def take(draft: Draft) -> Any:
    """Take along an axis, wrapping or clipping."""
    x = draft.pick(ndim=(2, 3, 4), params=draft.chance(0.3))
    axis = draft.integer(0, len(x.shape) - 1)
    mode = draft.choice(["clip", "clip", "wrap"])
    return mx.sym.take(x.sym, _indices(draft, x.shape[axis]), axis=axis, mode=mode)


def one_hot(draft: Draft) -> Any:
    """Make one-hot vectors."""
    depth = draft.choice([3, 5, 10])
    attrs = {"on_value": 2.0, "off_value": -1.0} if draft.chance(0.2) else {}
    return mx.sym.one_hot(_indices(draft, depth), depth=depth, **attrs)


def pick(draft: Draft) -> Any:
    """Pick one value a row."""
    x = draft.pick(ndim=2)
    index = draft.constant(draft.random.integers(0, x.shape[1], x.shape[:1]).astype(np.float32))
    if draft.chance():
        chosen = mx.sym.argmax(draft.pick(lambda value: value.shape == x.shape, ndim=2).sym, axis=1)
    else:
        chosen = index.sym
    return mx.sym.pick(x.sym, chosen, axis=1, keepdims=draft.chance())


def gather(draft: Draft) -> Any:
    """Gather by positions in several axes, or scatter to them."""
    x = draft.pick(ndim=(2, 3))
    count = draft.integer(1, 4)
    rows = [draft.random.integers(0, size, count) for size in x.shape[:2]]
    index = draft.constant(np.stack(rows).astype(draft.choice(["float32", "int32", "int64"])))
    if draft.chance(0.7):
        return mx.sym.gather_nd(x.sym, index.sym)
    values = mx.sym.gather_nd(x.sym, index.sym)
    return mx.sym.scatter_nd(values, index.sym, shape=x.shape)


def batch_take(draft: Draft) -> Any:
    """Take one value a row, by INT32 positions."""
    x = draft.pick(ndim=2)
    best = mx.sym.Cast(mx.sym.argmax(x.sym, axis=1), dtype="int32")
    return mx.sym.batch_take(draft.pick(lambda value: value.shape == x.shape, ndim=2).sym, best)


def mask(draft: Draft) -> Any:
    """Add a large negative number where a mask is 0, as before a softmax."""
    x = draft.pick(ndim=(2, 3, 4))
    other = draft.pick(lambda value: value.shape == x.shape, params=True)
    kept = other.sym > draft.number(-1, 0)
    low = draft.choice([-1e9, -1e18, -1e4, -10000.0, -1e30])
    axis = len(x.shape) - 1
    if draft.chance():
        return mx.sym.softmax(x.sym + (1 - kept) * low, axis=axis)
    return mx.sym.softmax(mx.sym.where(kept, x.sym, mx.sym.ones_like(x.sym) * low), axis=axis)


def arange_like(draft: Draft) -> Any:
    """Give the values along an axis numbers, and compute with these."""
    x = draft.pick(ndim=(2, 3))
    numbers = mx.sym.contrib.arange_like(x.sym, axis=1)
    if draft.chance(0.3):
        return numbers
    steps = mx.sym.Reshape(numbers, shape=(1, -1) + (1,) * (len(x.shape) - 2))
    return mx.sym.broadcast_add(x.sym, steps * 0.1)


def tokens(draft: Draft) -> Any:
    """Compute with token numbers, which must not be rounded."""
    names = [
        value
        for value in draft.values
        if value.dtype == "float32" and draft.nodes[value.entry.node].name in draft.positions
    ]
    if not names:
        raise NothingFitsError
    x = draft.choice(names).sym
    return draft.choice(
        [
            lambda: x + 1,
            lambda: mx.sym.broadcast_equal(x, mx.sym.ones((1, 1))),
            lambda: x > 3,
            lambda: mx.sym.max(x, axis=-1),
        ]
    )()


def boolean_mask(draft: Draft) -> Any:
    """Keep the rows whose index is 1."""
    x = draft.pick(ndim=2)
    kept = draft.constant(np.asarray(draft.random.integers(0, 2, x.shape[0]), np.float32))
    if not kept.array.any():
        raise NothingFitsError
    return mx.sym.contrib.boolean_mask(x.sym, kept.sym)


STEPS = (
    *(embedding, embedding, embedding, tied, tied, take, take, one_hot, pick, gather, batch_take, mask, mask),
    *(arange_like, tokens, tokens, boolean_mask),
)
