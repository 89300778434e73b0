"""Which regions to leave out next: the order in which the guard's search tries them."""

from __future__ import annotations

from typing import Iterable, Sequence

from mxamp.guard.regions import Region

_TRIALS = 2
"""Regions that are left out, one a model, in a race beside the FP32 model and the best one so far."""


class Agenda:
    """What was tried, and what is to be tried next."""

    def __init__(self) -> None:
        self.struck: set[frozenset[str]] = set()
        """The sets of nodes that were left out and measured."""
        self._alone: set[frozenset[str]] = set()

    def strike(self, regions: Iterable[Region]) -> None:
        """Note that regions were measured."""
        self.struck.update(frozenset(region.nodes) for region in regions)

    def put_back(self, regions: Iterable[Region]) -> None:
        """Note that regions are to be tried one by one: one that cannot be run must not spoil the others."""
        self._alone.update(frozenset(region.nodes) for region in regions)

    def next(self, regions: Sequence[Region], *, pieces: bool) -> Sequence[Region]:
        """Return the next regions to leave out, of the maximal ones.

        All of them at once, then halves of them, down to single ones; then, with ``pieces``, pieces of those.
        """
        whole = [region for region in regions if frozenset(region.nodes) not in self.struck]
        level = [Region.of(whole)] if whole else []
        while level:
            fresh = self._fresh(level)
            if fresh:
                return fresh
            level = [half for region in level if region.parts for half in region.halves()]
        level = [half for region in regions for half in region.halves()] if pieces else []
        while level:
            fresh = self._fresh(level)
            if fresh:
                return fresh
            level = [half for region in level for half in region.halves()]
        return []

    def _fresh(self, regions: Sequence[Region]) -> Sequence[Region]:
        fresh = [region for region in regions if frozenset(region.nodes) not in self.struck]
        alone = fresh and frozenset(fresh[0].nodes) in self._alone
        return fresh[: 1 if alone else _TRIALS]
