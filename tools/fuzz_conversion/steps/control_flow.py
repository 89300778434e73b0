"""Loops and conditions."""

from __future__ import annotations

from typing import Any

import mxnet as mx

from tools.fuzz_conversion.draft import Draft

__all__ = ["STEPS"]


def foreach(draft: Draft) -> Any:
    """Run a body for every slice along the first axis."""
    x = draft.pick(lambda value: value.shape[0] <= 4, ndim=(2, 3))
    hidden = draft.choice([2, 3])
    width = int(x.array[0].size if len(x.shape) == 2 else x.shape[2])
    weight = draft.param(hidden, width).sym
    if len(x.shape) == 2:
        state = mx.sym.zeros((1, hidden))
        data = mx.sym.expand_dims(x.sym, axis=1)
    else:
        state = mx.sym.zeros((x.shape[1], hidden))
        data = x.sym
    kind = draft.choice(["tanh", "relu", "sigmoid"])

    def body(item: Any, before: Any) -> Any:
        dense = mx.sym.FullyConnected(item, weight=weight, num_hidden=hidden, no_bias=True)
        after = mx.sym.Activation(dense + before, act_type=kind)
        return after * 2, after

    outputs, states = mx.sym.contrib.foreach(body, data, state)
    return mx.sym.Group([outputs, states]) if draft.chance() else outputs


def while_loop(draft: Draft) -> Any:
    """Run a body while a counter says so."""
    x = draft.pick(ndim=2)
    turns = draft.integer(1, 4)
    weight = draft.param(x.shape[1], x.shape[1]).sym

    def body(count: Any, state: Any) -> Any:
        after = mx.sym.tanh(mx.sym.FullyConnected(state, weight=weight, num_hidden=x.shape[1], no_bias=True))
        return [after], [count + 1, after]

    outputs, states = mx.sym.contrib.while_loop(
        cond=lambda count, state: count < turns,
        func=body,
        loop_vars=[mx.sym.zeros((1,)), x.sym],
        max_iterations=turns,  # beyond the last turn MXNet leaves the outputs as they come
    )
    return states[1] if draft.chance() else mx.sym.Group([outputs[0], states[1]])


def cond(draft: Draft) -> Any:
    """Choose one of two branches."""
    x = draft.pick(ndim=(2, 4))
    weight = draft.param(4, int(x.array[0].size)).sym
    threshold = draft.number(-5, 5)

    def then() -> Any:
        return mx.sym.FullyConnected(x.sym, weight=weight, num_hidden=4, no_bias=True)

    def otherwise() -> Any:
        return mx.sym.FullyConnected(x.sym * 0.5, weight=weight, num_hidden=4, no_bias=True) + 1

    return mx.sym.contrib.cond(mx.sym.sum(x.sym) > threshold, then, otherwise)


STEPS = (foreach, while_loop, cond)
