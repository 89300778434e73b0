"""Recurrent networks: cells that are unrolled, and the fused operator."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy as np

from tools.fuzz_conversion.draft import Draft

__all__ = ["STEPS"]

_CELLS = {"lstm": mx.rnn.LSTMCell, "gru": mx.rnn.GRUCell, "rnn": mx.rnn.RNNCell}
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def unrolled(draft: Draft) -> Any:
    """Unroll a cell over a sequence, with the default states."""
    x = draft.pick(lambda value: value.shape[1] <= 8, ndim=3)
    prefix = f"cell{len(draft.nodes)}_"
    cell = _CELLS[draft.choice(sorted(_CELLS))](draft.choice([2, 4]), prefix=prefix)
    if draft.chance(0.2):
        cell = mx.rnn.ResidualCell(_CELLS["gru"](x.shape[2], prefix=prefix))
    elif draft.chance(0.2):
        cell = mx.rnn.ZoneoutCell(cell, zoneout_outputs=0.2)
    merge = draft.chance(0.7)
    outputs, states = cell.unroll(x.shape[1], inputs=x.sym, merge_outputs=merge)
    found = [outputs] if merge else list(outputs[-2:])
    return mx.sym.Group([*found, *states] if draft.chance(0.3) else found)


def fused(draft: Draft) -> Any:
    """Run the fused operator, with its states as outputs or without."""
    x = draft.pick(lambda value: value.shape[0] <= 24, ndim=3)
    _, batch, width = x.shape
    mode = draft.choice(sorted(_GATES))
    layers, both, hidden = draft.choice([1, 1, 2]), draft.chance(0.3), draft.choice([2, 3, 4])
    directions = 2 if both else 1
    size = 0
    for layer in range(layers):
        reads = width if layer == 0 else hidden * directions
        size += directions * _GATES[mode] * hidden * (reads + hidden + 2)
    weights = draft.constant(draft.normal(size, scale=0.4))
    shape = (layers * directions, batch, hidden)
    states = {
        "state": draft.constant(np.zeros(shape, np.float32)).sym if draft.chance(0.3) else mx.sym.zeros(shape)
    }
    if mode == "lstm":
        states["state_cell"] = mx.sym.zeros(shape)
    outputs = draft.chance(0.3)
    y = mx.sym.RNN(
        x.sym,
        parameters=weights.sym,
        state_size=hidden,
        num_layers=layers,
        mode=mode,
        bidirectional=both,
        state_outputs=outputs,
        **states,
    )
    return mx.sym.Group([y[0], y[1]]) if outputs else y


def layer(draft: Draft) -> Any:
    """Run a Gluon layer, whose parameters are joined when it runs."""
    x = draft.pick(lambda value: value.shape[0] <= 24, ndim=3)
    kind = draft.choice([mx.gluon.rnn.LSTM, mx.gluon.rnn.GRU, mx.gluon.rnn.RNN])
    block = kind(draft.choice([2, 4]), input_size=x.shape[2], prefix=f"layer{len(draft.nodes)}_")
    return block(x.sym)


STEPS = (unrolled, unrolled, fused, layer)
