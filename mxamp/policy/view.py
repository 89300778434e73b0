"""What a user's color function sees of a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Tuple

Shape = Tuple[int, ...]


@dataclass(frozen=True)
class NodeView:
    """One operator node, read-only.

    Attributes
    ----------
    op
        MXNet operator name.
    name
        Node name.
    attrs
        Attributes, all strings.
    input_names
        Name of what each input reads; ``split0[1]`` where it is not a first output.
    input_shapes
        Shape of each input; None where it is not known.
    param_shapes
        Parameter name -> shape, for the inputs that are parameters.
    producers
        The operator of each input's producer; ``"null"`` for variables.
    consumers
        The (name, operator) of each node that reads an output of this one.
    """

    op: str
    name: str
    attrs: Mapping[str, str]
    input_names: tuple[str, ...]
    input_shapes: tuple[Shape | None, ...]
    param_shapes: Mapping[str, Shape]
    producers: tuple[str, ...]
    consumers: tuple[tuple[str, str], ...]
