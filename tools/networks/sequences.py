"""Networks that read a line of writing or of speech: features of each place, then recurrent layers."""

from __future__ import annotations

from typing import Any

import mxnet as mx
from mxnet.gluon import nn, rnn

__all__ = ["DeepSpeech", "HandwritingRecognition", "captcha"]


class HandwritingRecognition(nn.HybridBlock):
    """Convolutions over the image of a line, and a bidirectional LSTM over its columns."""

    def __init__(self, *, characters: int = 80, hidden: int = 200) -> None:
        super().__init__()
        with self.name_scope():
            self.features = nn.HybridSequential()
            for channels, pool in ((32, (2, 2)), (64, (2, 2)), (128, (2, 1)), (128, (2, 1))):
                self.features.add(
                    nn.Conv2D(channels, kernel_size=3, padding=1, use_bias=False),
                    nn.BatchNorm(),
                    nn.Activation("relu"),
                    nn.MaxPool2D(pool, pool),
                )
            self.network = rnn.LSTM(hidden, 2, bidirectional=True, dropout=0.3, input_size=256)
            self.decoder = nn.Dense(characters, flatten=False, in_units=2 * hidden)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return scores, shape (batch, columns / 4, characters)."""
        columns = F.reshape(F.transpose(self.features(x), axes=(3, 0, 1, 2)), shape=(0, 0, -1))
        return F.transpose(self.decoder(self.network(columns)), axes=(1, 0, 2))


class DeepSpeech(nn.HybridBlock):
    """Two strided convolutions over a spectrogram, and bidirectional GRUs over what is left of time.

    References
    ----------
    Amodei et al., "Deep Speech 2: End-to-End Speech Recognition in English and Mandarin", ICML 2016,
    arXiv:1512.02595.
    """

    def __init__(self, *, characters: int = 29, hidden: int = 400, layers: int = 3) -> None:
        super().__init__()
        with self.name_scope():
            self.first = nn.Conv2D(32, kernel_size=(11, 41), strides=(2, 2), padding=(5, 20), use_bias=False)
            self.first_norm = nn.BatchNorm()
            self.second = nn.Conv2D(32, kernel_size=(11, 21), strides=(1, 2), padding=(5, 10), use_bias=False)
            self.second_norm = nn.BatchNorm()
            self.layers = nn.HybridSequential()
            size = 32 * 41
            for _ in range(layers):
                self.layers.add(rnn.GRU(hidden, 1, bidirectional=True, input_size=size))
                size = 2 * hidden
            self.decoder = nn.Dense(characters, flatten=False, in_units=size)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return scores, shape (time / 2, batch, characters)."""
        x = F.clip(self.first_norm(self.first(x)), 0, 20)
        x = F.clip(self.second_norm(self.second(x)), 0, 20)
        x = F.reshape(F.transpose(x, axes=(2, 0, 1, 3)), shape=(0, 0, -1))
        for layer in self.layers:
            x = layer(x)
        return self.decoder(x)


def captcha(*, columns: int, hidden: int = 100, layers: int = 2, characters: int = 11) -> Any:
    """Return an LSTM of cells, unrolled over the columns of an image, as before Gluon."""
    cells = mx.rnn.SequentialRNNCell()
    for number in range(layers):
        cells.add(mx.rnn.LSTMCell(hidden, prefix=f"lstm_l{number}_"))
    found, _ = cells.unroll(columns, mx.sym.var("data"), layout="NTC", merge_outputs=False)
    joined = mx.sym.Concat(*found, dim=0, name="concat")
    return mx.sym.softmax(mx.sym.FullyConnected(joined, num_hidden=characters, name="fc"), name="softmax")
