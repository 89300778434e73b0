"""Products of matrices, and attention."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np

from tools.fuzz_conversion.draft import Draft

__all__ = ["STEPS"]


def dot(draft: Draft) -> Any:
    """Multiply matrices, transposed or not."""
    x = draft.pick(ndim=2)
    turned = draft.chance()
    inner = x.shape[0] if turned else x.shape[1]
    if draft.chance():
        y = draft.pick(lambda value: value.shape[0] == inner, ndim=2, params=True)
    else:
        y = draft.param(inner, draft.choice([2, 4, 5]))
    return mx.sym.dot(x.sym, y.sym, transpose_a=turned)


def batch_dot(draft: Draft) -> Any:
    """Multiply batches of matrices."""
    x = draft.pick(ndim=3)
    y = draft.pick(lambda value: value.shape[::2] == x.shape[::2], ndim=3)
    return mx.sym.batch_dot(x.sym, y.sym, transpose_b=True)


def gemm(draft: Draft) -> Any:
    """Multiply with the linear algebra operators."""
    x = draft.pick(ndim=(2, 3))
    y = draft.pick(lambda value: value.shape[:-2] == x.shape[:-2] and value.shape[-1] == x.shape[-1])
    return mx.sym.linalg.gemm2(x.sym, y.sym, transpose_b=True, alpha=draft.choice([1.0, 0.5]))


def attention(draft: Draft) -> Any:
    """Attend, from primitive operators: scores, a mask or none, a softmax, a weighted sum."""
    x = draft.pick(ndim=3)
    width = draft.choice([2, 4])
    query, key, value = (
        mx.sym.FullyConnected(x.sym, num_hidden=width, flatten=False, no_bias=draft.chance())
        for _ in range(3)
    )
    scores = mx.sym.batch_dot(query, key, transpose_b=True) / np.sqrt(width)
    if draft.chance(0.4):
        length = x.shape[1]
        triangle = np.tril(np.ones((1, length, length), np.float32))
        kept = draft.constant(triangle).sym
        scores = mx.sym.broadcast_add(scores, (1 - kept) * draft.choice([-1e9, -1e4, -1e18]))
    weights = mx.sym.softmax(scores, axis=-1)
    return mx.sym.batch_dot(mx.sym.Dropout(weights, p=0.1), value)


def interleaved(draft: Draft) -> Any:
    """Attend with the operators of BERT."""
    heads, width = draft.choice([(1, 4), (2, 2), (2, 4)])
    x = draft.pick(ndim=3)
    joint = mx.sym.FullyConnected(x.sym, num_hidden=3 * heads * width, flatten=False)
    scores = mx.sym.contrib.interleaved_matmul_selfatt_qk(joint, heads=heads)
    weights = mx.sym.softmax(scores, axis=-1)
    return mx.sym.contrib.interleaved_matmul_selfatt_valatt(joint, weights, heads=heads)


def encoder_decoder(draft: Draft) -> Any:
    """Attend from one sequence to another, with the operators of BERT."""
    heads, width = draft.choice([(1, 4), (2, 2)])
    x = draft.pick(ndim=3)
    y = draft.pick(lambda value: value.shape[1] == x.shape[1], ndim=3)
    query = mx.sym.FullyConnected(x.sym, num_hidden=heads * width, flatten=False)
    joint = mx.sym.FullyConnected(y.sym, num_hidden=2 * heads * width, flatten=False)
    scores = mx.sym.contrib.interleaved_matmul_encdec_qk(query, joint, heads=heads)
    weights = mx.sym.softmax(scores, axis=-1)
    return mx.sym.contrib.interleaved_matmul_encdec_valatt(joint, weights, heads=heads)


def scaled(draft: Draft) -> Any:
    """Divide by the root of the last size."""
    return mx.sym.contrib.div_sqrt_dim(draft.pick(ndim=(2, 3)).sym)


def transformer_layer(draft: Draft) -> Any:
    """Apply the feed-forward part of a transformer, with its residual and its norm."""
    x = draft.pick(ndim=3)
    hidden = mx.sym.FullyConnected(x.sym, num_hidden=8, flatten=False)
    hidden = (
        mx.sym.LeakyReLU(hidden, act_type="gelu")
        if draft.chance()
        else mx.sym.Activation(hidden, act_type="relu")
    )
    y = mx.sym.FullyConnected(hidden, num_hidden=x.shape[2], flatten=False)
    return mx.sym.LayerNorm(y + x.sym)


STEPS = (dot, batch_dot, gemm, attention, attention, interleaved, encoder_decoder, scaled, transformer_layer)
