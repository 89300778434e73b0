"""Networks for images of digits: LeNet, a multilayer perceptron, and capsules."""

from __future__ import annotations

from typing import Any

import mxnet as mx
from mxnet.gluon import nn

__all__ = ["Capsules", "lenet", "perceptron"]


def lenet() -> Any:
    """Return LeNet with 20 and 50 channels, as MXNet's first tutorials have it.

    References
    ----------
    LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998.
    """
    x = mx.sym.var("data")
    for number, channels in enumerate((20, 50), start=1):
        x = mx.sym.Convolution(x, kernel=(5, 5), num_filter=channels, name=f"conv{number}")
        x = mx.sym.Activation(x, act_type="tanh", name=f"tanh{number}")
        x = mx.sym.Pooling(x, pool_type="max", kernel=(2, 2), stride=(2, 2), name=f"pool{number}")
    x = mx.sym.FullyConnected(mx.sym.Flatten(x, name="flatten"), num_hidden=500, name="fc1")
    x = mx.sym.Activation(x, act_type="tanh", name="tanh3")
    return mx.sym.softmax(mx.sym.FullyConnected(x, num_hidden=10, name="fc2"), name="softmax")


def perceptron() -> Any:
    """Return a perceptron with two hidden layers, of 128 and 64 units."""
    x = mx.sym.Flatten(mx.sym.var("data"), name="flatten")
    for number, units in enumerate((128, 64), start=1):
        x = mx.sym.FullyConnected(x, num_hidden=units, name=f"fc{number}")
        x = mx.sym.Activation(x, act_type="relu", name=f"relu{number}")
    return mx.sym.softmax(mx.sym.FullyConnected(x, num_hidden=10, name="fc3"), name="softmax")


class Capsules(nn.HybridBlock):
    """Capsules with routing by agreement: what every capsule says of every class is a product of its own.

    References
    ----------
    Sabour et al., "Dynamic Routing Between Capsules", NIPS 2017, arXiv:1710.09829.
    """

    _PRIMARY, _LENGTH = 32 * 6 * 6, 8
    _CLASSES, _CLASS_LENGTH = 10, 16
    _ROUTINGS = 3

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.features = nn.Conv2D(256, kernel_size=9, activation="relu", in_channels=1)
            self.primary = nn.Conv2D(256, kernel_size=9, strides=2, in_channels=256)
            self.weight = self.params.get(
                "weight", shape=(1, self._PRIMARY, self._CLASSES * self._CLASS_LENGTH, self._LENGTH)
            )

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        """Return each class's capsule, shape (batch, classes, 16), and its length."""
        said = self.primary(self.features(x)).reshape((0, -1, 32, 6, 6)).transpose((0, 2, 3, 4, 1))
        said = self._squash(F, said.reshape((0, -1, 1, self._LENGTH)), axis=3)
        said = F.tile(said, reps=(1, 1, self._CLASSES * self._CLASS_LENGTH, 1))
        votes = F.sum(F.broadcast_mul(weight, said), axis=3)
        votes = votes.reshape((0, 0, self._CLASSES, self._CLASS_LENGTH))
        agreed = F.zeros_like(F.sum(votes, axis=3, keepdims=True))
        for routing in range(self._ROUTINGS):
            shares = F.softmax(agreed, axis=2)
            capsules = self._squash(F, F.sum(F.broadcast_mul(shares, votes), axis=1, keepdims=True), axis=3)
            if routing < self._ROUTINGS - 1:
                agreed = agreed + F.sum(F.broadcast_mul(votes, capsules), axis=3, keepdims=True)
        lengths = F.sqrt(F.sum(F.square(capsules), axis=3)).reshape((0, -1))
        return capsules.reshape((0, self._CLASSES, self._CLASS_LENGTH)), lengths

    @staticmethod
    def _squash(F: Any, x: Any, axis: int) -> Any:
        squared = F.sum(F.square(x), axis=axis, keepdims=True)
        return F.broadcast_mul(x, squared / (1 + squared) / F.sqrt(squared + 1e-9))
