"""Random sizes as networks have them: on a logarithmic scale, for networks differ by factors."""

from __future__ import annotations

import math

import numpy as np

from mxamp.probe.kernels.kernel import BLOCKED, PLAIN

_MOST_MULTIPLY_ADDS = 3e8
"""What takes longer is made smaller, ..."""

_LARGEST_LAYERS = 3.0
"""... but for the largest networks, whose layers do up to so many times as much."""

_MOST_ELEMENTS = 2e6

_LARGE = (1.5e6, 6e6)
"""Values of what no cache near a core holds."""

BLOCK = 16
"""Channels that fill a block."""

_SMALLEST = 0.01
"""How much smaller the kernels of the smallest network are."""

_LARGEST = 6.0
"""How much larger those of the largest: networks that get images in batches hand on what no cache holds."""

_SIDES = (3, 28)
"""The least side of an image, and of one of the large networks."""


class Draw:
    """Random numbers as the families need them."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        # Kernels of one graph are of a size: what a small network reads stays in the caches, code included.
        share = math.exp(random.uniform(math.log(_SMALLEST), math.log(_LARGEST)))
        self.is_large = share > 1
        self._share = min(1.0, share)  # of channels: of batches of images they are no more
        self.most_multiply_adds = _MOST_MULTIPLY_ADDS * min(_LARGEST_LAYERS, share)
        self.most_elements = _MOST_ELEMENTS * share

    def size(self, low: float, high: float) -> int:
        """Return a whole number, on a logarithmic scale."""
        return round(math.exp(self._random.uniform(math.log(low), math.log(high))))

    def channels(self, high: int = 1024) -> int:
        """Return a number of channels: mostly whole blocks of 16."""
        high = max(2 * BLOCK, int(high * self._share**0.4))
        kind = self._random.random()
        if kind < 0.2:  # as most networks have them; what lies so far apart shares sets of the caches
            return int(2 ** self._random.integers(4, 1 + int(math.log2(high))))
        if kind < 0.6:
            return 16 * self.size(1, high / 16)
        if kind < 0.75:
            return 8 * self.size(1, high / 8)
        return self.size(5, high)

    def batch(self) -> int:
        """Return a batch size: mostly 1, and mostly more where kernels are large."""
        return int(self._random.choice([1, 4, 8, 8] if self.is_large else [1, 1, 1, 1, 2, 4, 8]))

    def one_of(self, *values: object) -> object:
        """Return one of some values."""
        return values[self.index(len(values))]

    def index(self, count: int) -> int:
        """Return one of so many, counted from 0."""
        return int(self._random.integers(count))

    def chance(self, share: float) -> bool:
        """Return True in so many of all cases."""
        return bool(self._random.random() < share)

    def side(self, high: int = 128) -> int:
        """Return the side of an image."""
        return self.size(_SIDES[self.is_large], high)

    def layout(self, share: float = 0.7) -> str:
        """Return a layout; images are blocked more often than not."""
        return BLOCKED if self.chance(share) else PLAIN

    def image(self, most_channels: int = 1024) -> tuple[int, int, int, int]:
        """Return the shape of a feature map."""
        n, c, s = self.batch(), self.channels(most_channels), self.side()
        while s > 3 and n * c * s * s > self.most_elements:
            s = max(3, s * 3 // 4)
        return n, c, s, s

    def large_image(self) -> tuple[int, int, int, int]:
        """Return the shape of a feature map that no cache near a core holds, however small the others are."""
        channels = BLOCK * self.size(1, 32)
        side = round(math.sqrt(self.size(*_LARGE) / channels))
        return 1, channels, side, side
