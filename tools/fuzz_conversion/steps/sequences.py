"""Operators over sequences of several lengths."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np

from tools.fuzz_conversion.draft import Draft, Value

__all__ = ["STEPS"]


def _lengths(draft: Draft, x: Value) -> Value:
    name = f"length{len(draft.nodes)}"
    return draft.input(
        name,
        lambda: draft.random.integers(1, x.shape[0] + 1, x.shape[1]).astype(np.float32),
        positions=True,
    )


def sequence_mask(draft: Draft) -> Any:
    """Replace what is beyond the end."""
    x = draft.pick(ndim=(2, 3, 4))
    value = draft.choice([0.0, 0.0, -1.0, -1e9])
    y = mx.sym.SequenceMask(x.sym, _lengths(draft, x).sym, use_sequence_length=True, value=value)
    return mx.sym.softmax(y, axis=0) if value < -1 else y


def sequence_last(draft: Draft) -> Any:
    """Take what is last."""
    x = draft.pick(ndim=(2, 3, 4))
    if draft.chance(0.3):
        return mx.sym.SequenceLast(x.sym)
    return mx.sym.SequenceLast(x.sym, _lengths(draft, x).sym, use_sequence_length=True)


def sequence_reverse(draft: Draft) -> Any:
    """Reverse up to the end."""
    x = draft.pick(ndim=(2, 3, 4))
    return mx.sym.SequenceReverse(x.sym, _lengths(draft, x).sym, use_sequence_length=True)


def softmax_length(draft: Draft) -> Any:
    """Take a softmax over as much as there is."""
    x = draft.pick(ndim=2)
    lengths = draft.constant(np.asarray(draft.random.integers(1, x.shape[1] + 1, x.shape[0]), np.int32))
    return mx.sym.softmax(x.sym, lengths.sym, use_length=True, axis=1)


STEPS = (sequence_mask, sequence_last, sequence_reverse, softmax_length)
