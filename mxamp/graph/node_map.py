"""Where the nodes of a graph went when another was made of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Mapping, Sequence


@dataclass(frozen=True)
class NodeMap:
    """Where the nodes of one graph, before, are in another that was made of it, after.

    Attributes
    ----------
    places
        For every node before the node after that has its values; None where it is gone.
    origins
        For every node after the node before whose values it has, or helps to compute.
    """

    places: Sequence[int | None]
    origins: Sequence[int]

    @classmethod
    def identity(cls, nodes: int) -> NodeMap:
        """Return the map of a graph with so many nodes to itself."""
        return cls(range(nodes), range(nodes))

    def forward(self, position: int) -> int | None:
        """Return the node after that has the values of a node before; None where it is gone."""
        return self.places[position]

    def back(self, position: int) -> int:
        """Return the node before whose values a node after has, or helps to compute."""
        return self.origins[position]

    def first(self, position: int) -> int | None:
        """Return the first of the nodes before whose values a node after has; None where there is none.

        Of a layer and the BatchNorm that was folded into it, that is the layer.
        """
        return self._firsts.get(position)

    @cached_property
    def _firsts(self) -> Mapping[int, int]:
        found: dict[int, int] = {}
        for before, place in enumerate(self.places):
            if place is not None:
                found.setdefault(place, before)
        return found

    def then(self, following: NodeMap) -> NodeMap:
        """Return the map over two steps: this one, and one of the graph after."""
        places = [None if place is None else following.places[place] for place in self.places]
        return NodeMap(places, [self.origins[origin] for origin in following.origins])
