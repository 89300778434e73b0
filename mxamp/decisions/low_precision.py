"""Whether colors are orders or permissions."""

from __future__ import annotations

import enum

from mxamp.errors import PolicyError
from mxamp.messages.arguments import argument, setting
from mxamp.targets import Target
from mxamp.targets.work import Shapes


class LowPrecision(enum.Enum):
    """When a GREEN node that the target can run low is low."""

    REQUIRED = "required"
    """Always."""

    PROFITABLE = "profitable"
    """Where the whole model is then faster, by 3 % at least, by what the target says of costs."""

    NONE = "none"
    """Never: the graph is prepared, and all that is float32 stays so."""


WHY_NONE = "float32 was asked for, with its graph prepared"
"""Why a node stays FP32 where nothing is to be low."""


def as_low_precision(given: object) -> LowPrecision | None:
    """Return what an argument means; None leaves it to what is known of the model.

    Raises
    ------
    PolicyError
        When it is no such thing.
    """
    if given is None or isinstance(given, LowPrecision):
        return given
    for member in LowPrecision:
        if isinstance(given, str) and given == member.value:
            return member
    raise PolicyError(
        f"{argument('low_precision')} must be 'required', 'profitable', 'none' or None, not {given!r:.80}."
    )


def cannot_be_weighed(target: Target, shapes: Shapes | None, node: str) -> PolicyError:
    """Return the error where low precision is to be ``profitable`` and nothing tells what it gains.

    Parameters
    ----------
    target
        What is converted for.
    shapes
        The shapes that are known; None where none were given.
    node
        A node of which they do not tell what it does.
    """
    missing = (
        f"the target {target.name} says nothing of costs"
        if target.cost is None
        else f"no {argument('input_shapes')} were given"
        if shapes is None
        else f"the shapes at node {node!r} are not known"
    )
    return PolicyError(
        f"{setting('low_precision', 'profitable')} weighs what nodes and casts cost, but {missing}. "
        "Give the shapes of all inputs, batch size included, and a target with costs (see `mxamp "
        f"targets`), or leave {argument('low_precision')} out: behind a loop no shape is known."
    )
