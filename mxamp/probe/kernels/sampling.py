"""Random kernels of every costly operator.

Channels fill blocks of 16 more often than not, and often enough do not. What would take long is made smaller.
"""

from __future__ import annotations

from typing import Callable, Mapping, Sequence

import numpy as np

from mxamp.probe.kernels.draw import Draw
from mxamp.probe.kernels.kernel import Kernel
from mxamp.probe.kernels.layers import LAYERS
from mxamp.probe.kernels.others import OTHERS

FAMILIES: Mapping[str, tuple[float, Callable[[Draw], Kernel]]] = {**LAYERS, **OTHERS}
"""What is drawn, and how often beside the others."""


_FEWER = 4
"""How many times fewer kernels make up a graph of large ones, for what all of them write lies in memory."""

_KINDS = (1, 2, 3, 4, 6, 10, 100)
"""Of how many kinds the kernels of a graph are at most, one as likely as the other: networks are made of few
operators, whose code stays near."""

_REPEATED = (1, 1, 1, 1, 2, 4, 8, 24)
"""How often the kernels of a graph are repeated, one as likely as the other."""


def draw_kernels(
    count: int, random: np.random.Generator, weights: Mapping[str, float] | None = None
) -> Sequence[Kernel]:
    """Return random kernels.

    Parameters
    ----------
    count
        How many; fewer come where they are large.
    random
        Where the numbers come from.
    weights
        Name in :data:`FAMILIES` -> how often it is drawn beside the others, where that is not what is given
        there: more where the error is large.
    """
    draw = Draw(random)
    count = max(1, count // _FEWER) if draw.is_large else count
    names = list(FAMILIES)
    shares = np.array([FAMILIES[name][0] if weights is None else weights.get(name, 0.0) for name in names])
    kinds = min(int(random.choice(_KINDS)), int((shares > 0).sum()))
    among = random.choice(len(names), size=kinds, replace=False, p=shares / shares.sum())
    shares = np.where(np.isin(np.arange(len(names)), among), shares, 0.0)
    # Networks repeat themselves, and what is repeated finds its code and tables in the caches.
    times = min(count, int(random.choice(_REPEATED)))
    chosen: list[Kernel] = []
    for number in random.choice(len(names), size=-(-count // times), p=shares / shares.sum()):
        chosen.append(FAMILIES[names[int(number)]][1](draw))
    return (chosen * times)[:count]


GUESTS = 8
"""How many guests a graph has at most, and ..."""

_HOSTS = 2
"""... how many others are there for each."""


def draw_guest(seed: int) -> Kernel:
    """Return a random kernel that is to be timed among others: one of some that are drawn together."""
    random = np.random.default_rng(seed)
    chosen = draw_kernels(_FEWER, random)
    return chosen[int(random.integers(len(chosen)))]


def seat_guests(
    chosen: Sequence[Kernel], guests: Sequence[int], random: np.random.Generator
) -> tuple[Sequence[Kernel], Sequence[int]]:
    """Return the kernels of a graph with guests in the places of some, and which places those are.

    Parameters
    ----------
    chosen
        The kernels of a graph.
    guests
        The seeds of guests: see :func:`draw_guest`. The first ones are seated, as many as there is room for.
    random
        Where the places come from.
    """
    seated = list(chosen)
    room = min(len(guests), GUESTS, max(1, len(seated) // (1 + _HOSTS)))
    places = [int(place) for place in random.choice(len(seated), size=room, replace=False)]
    for place, guest in zip(places, guests):
        seated[place] = draw_guest(guest)
    return seated, places
