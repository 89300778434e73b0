"""The fused recurrent operator."""

from __future__ import annotations

from typing import Any

from mxamp.dtypes import DType
from mxamp.onnx.call import Call
from mxamp.onnx.mapping import Written, mapping
from mxamp.onnx.tensor import Tensor

_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
"""Where ONNX's gates are among MXNet's: LSTM i o f c among i f g o, GRU z r h among r z n."""

_OPS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


@mapping("RNN", "LSTM, GRU or RNN, one a layer; the packed parameters are cut into parts")
def _rnn(call: Call) -> Written:
    mode, size, layers = str(call.text("mode")), call.integer("state_size"), call.integer("num_layers")
    if call.text("projection_size") is not None:
        call.refuse("ONNX's LSTM has no projection.")
    if call.text("lstm_state_clip_min") is not None or call.text("lstm_state_clip_max") is not None:
        call.refuse("ONNX's LSTM does not clip states.")
    directions = 2 if call.flag("bidirectional") else 1
    is_lstm = mode == "lstm"
    data, packed = call.inputs[:2]
    states = call.inputs[2 : 4 if is_lstm else 3]
    lengths = None
    if call.flag("use_sequence_length"):
        lengths = call.cast(call.inputs[-1], DType.INT32)
    parts = _Packed(call, packed, mode, size, layers, directions)
    finals: list[list[Tensor]] = [[], []]
    for layer in range(layers):
        weights = parts.layer(layer, call.size(data, 2))
        first, last = layer * directions, (layer + 1) * directions
        initial = [call.slice(state, [first], [last], [0]) for state in states]
        attributes: dict[str, Any] = {
            "hidden_size": size,
            "direction": "bidirectional" if directions == 2 else "forward",
            "linear_before_reset": 1 if mode == "gru" else None,
            "activations": ["Relu"] * directions if mode == "rnn_relu" else None,
        }
        outputs = call.emit_several(
            _OPS[mode], *(data, *weights, lengths, *initial), outputs=3 if is_lstm else 2, **attributes
        )
        for kept, output in zip(finals, outputs[1:]):
            kept.append(output)
        # (steps, directions, samples, size) becomes (steps, samples, directions * size).
        data = call.reshape(call.transpose(outputs[0], [0, 2, 1, 3]), [0, 0, directions * size])
    if not call.flag("state_outputs"):
        return data
    return (data, *(call.emit("Concat", *kept, axis=0) if layers > 1 else kept[0] for kept in finals if kept))


class _Packed:
    """MXNet's one parameter vector: the weights of all layers, then the biases of all layers."""

    def __init__(
        self, call: Call, packed: Tensor, mode: str, size: int, layers: int, directions: int
    ) -> None:
        self._call, self._packed = call, packed
        self._gates, self._size, self._directions = _GATES[mode], size, directions
        self._offset = 0
        rows = len(self._gates) * size
        self._biases = call.size(packed, 0) - layers * directions * 2 * rows

    def layer(self, layer: int, inputs: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return ONNX's W, R and B of a layer."""
        rows = len(self._gates) * self._size
        weights: list[Tensor] = []
        recurrences: list[Tensor] = []
        biases: list[Tensor] = []
        for direction in range(self._directions):
            weights.append(self._part(self._offset, rows, inputs))
            recurrences.append(self._part(self._offset + rows * inputs, rows, self._size))
            self._offset += rows * (inputs + self._size)
            start = self._biases + (layer * self._directions + direction) * 2 * rows
            both = [self._part(start, rows, 1), self._part(start + rows, rows, 1)]
            biases.append(self._call.reshape(self._call.emit("Concat", *both, axis=1), [1, 2 * rows]))
        return self._joined(weights), self._joined(recurrences), self._joined(biases)

    def _part(self, start: int, rows: int, columns: int) -> Tensor:
        """Return one matrix, its gates in ONNX's order, as (1, rows, columns)."""
        call, gates = self._call, len(self._gates)
        values = call.slice(self._packed, [start], [start + rows * columns], [0])
        if gates > 1:
            apart = call.reshape(values, [gates, rows // gates * columns])
            values = call.emit("Gather", apart, call.indices(self._gates), axis=0)
        return call.reshape(values, [1, rows, columns])

    def _joined(self, parts: list[Tensor]) -> Tensor:
        return self._call.emit("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]
