"""Networks for text: a convolutional classifier, language models, and BERT."""

from __future__ import annotations

from typing import Any

import mxnet as mx
from mxnet.gluon import nn

__all__ = ["Bert", "LanguageModel", "text_cnn"]


def text_cnn(*, length: int, vocabulary: int) -> Any:
    """Return a classifier of sentences: convolutions over 3, 4 and 5 words, and the largest value of each.

    References
    ----------
    Kim, "Convolutional Neural Networks for Sentence Classification", EMNLP 2014, arXiv:1408.5882.
    """
    size, channels = 300, 100
    words = mx.sym.Embedding(mx.sym.var("data"), input_dim=vocabulary, output_dim=size, name="embedding")
    words = mx.sym.Reshape(words, shape=(-1, 1, length, size), name="image")
    pooled = []
    for width in (3, 4, 5):
        found = mx.sym.Convolution(words, kernel=(width, size), num_filter=channels, name=f"conv{width}")
        found = mx.sym.Activation(found, act_type="relu", name=f"relu{width}")
        pooled.append(
            mx.sym.Pooling(found, pool_type="max", kernel=(length - width + 1, 1), name=f"pool{width}")
        )
    x = mx.sym.Reshape(mx.sym.Concat(*pooled, dim=1, name="concat"), shape=(0, -1), name="flatten")
    x = mx.sym.FullyConnected(mx.sym.Dropout(x, p=0.5, name="dropout"), num_hidden=2, name="fc")
    return mx.sym.softmax(x, name="softmax")


class LanguageModel(nn.HybridBlock):
    """An embedding, a recurrent network, and a score for every word, at each of the places of a text.

    Parameters
    ----------
    layer
        ``mxnet.gluon.rnn.LSTM`` or ``GRU``.
    vocabulary, embedding, hidden, layers
        Numbers of words, of values a word, of units and of layers.
    """

    def __init__(self, layer: Any, *, vocabulary: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(vocabulary, embedding)
            self.dropout = nn.Dropout(0.2)
            self.network = layer(hidden, layers, dropout=0.2, input_size=embedding)
            self.decoder = nn.Dense(vocabulary, flatten=False, in_units=hidden)

    def hybrid_forward(self, F: Any, words: Any, *states: Any) -> Any:
        """Return scores, shape (places, batch, vocabulary), and the states after the last place."""
        found, after = self.network(self.dropout(self.embedding(words)), list(states))
        return (self.decoder(self.dropout(found)), *after)


class Bert(nn.HybridBlock):
    """BERT's encoder and pooler: attention from one product a layer, whose heads are interleaved.

    References
    ----------
    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018,
    arXiv:1810.04805.
    """

    def __init__(
        self,
        *,
        vocabulary: int,
        length: int,
        units: int = 768,
        hidden: int = 3072,
        layers: int = 12,
        heads: int = 12,
    ) -> None:
        super().__init__()
        self._length = length
        with self.name_scope():
            self.words = nn.Embedding(vocabulary, units)
            self.kinds = nn.Embedding(2, units)
            self.places = self.params.get("places", shape=(1, length, units))
            self.norm = nn.LayerNorm(in_channels=units, epsilon=1e-12)
            self.cells = nn.HybridSequential()
            for _ in range(layers):
                self.cells.add(_BertCell(units, hidden, heads))
            self.pooler = nn.Dense(units, activation="tanh", flatten=False, in_units=units)

    def hybrid_forward(self, F: Any, words: Any, kinds: Any, lengths: Any, places: Any) -> Any:
        """Return what is known of each word, shape (batch, length, units), and of the text."""
        steps = F.arange(start=0, stop=self._length)
        known = F.broadcast_lesser(F.reshape(steps, (1, -1)), F.reshape(lengths, (-1, 1)))
        mask = F.broadcast_mul(F.expand_dims(known, axis=1), F.expand_dims(F.ones_like(known), axis=2))
        x = F.broadcast_add(self.words(words) + self.kinds(kinds), places)
        x = F.transpose(self.norm(x), axes=(1, 0, 2))
        for cell in self.cells:
            x = cell(x, mask)
        x = F.transpose(x, axes=(1, 0, 2))
        first = F.reshape(F.slice_axis(x, axis=1, begin=0, end=1), shape=(0, -1))
        return x, self.pooler(first)


class _BertCell(nn.HybridBlock):
    def __init__(self, units: int, hidden: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        with self.name_scope():
            self.asked = nn.Dense(3 * units, flatten=False, in_units=units)
            self.joined = nn.Dense(units, flatten=False, in_units=units)
            self.attention_norm = nn.LayerNorm(in_channels=units, epsilon=1e-12)
            self.wide = nn.Dense(hidden, flatten=False, in_units=units)
            self.narrow = nn.Dense(units, flatten=False, in_units=hidden)
            self.norm = nn.LayerNorm(in_channels=units, epsilon=1e-12)

    def hybrid_forward(self, F: Any, x: Any, mask: Any) -> Any:
        asked = self.asked(x)
        scores = F.contrib.interleaved_matmul_selfatt_qk(asked, heads=self._heads)
        masks = F.reshape(
            F.broadcast_axis(F.expand_dims(mask, axis=1), axis=1, size=self._heads),
            shape=(-1, 0, 0),
            reverse=True,
        )
        scores = F.where(masks, scores, -1e18 * F.ones_like(scores))
        weights = F.softmax(scores, axis=-1)
        found = F.contrib.interleaved_matmul_selfatt_valatt(asked, weights, heads=self._heads)
        x = self.attention_norm(self.joined(found) + x)
        return self.norm(self.narrow(F.LeakyReLU(self.wide(x), act_type="gelu")) + x)
