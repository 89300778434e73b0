"""What a target is made of: how well operators run, and what is fused."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from typing import Mapping


class Support(enum.Enum):
    """How well an operator runs in the target's low dtype."""

    WORKS = "works"
    SLOW = "slow"
    BIASED = "biased"
    WRONG = "wrong"
    CRASHES = "crashes"
    UNSUPPORTED = "unsupported"
    UNMEASURED = "unmeasured"


@dataclass(frozen=True)
class OperatorSupport:
    """What the target says of one operator.

    Attributes
    ----------
    support
        How well it runs.
    note
        What was seen, in a few words.
    only
        Attribute name -> the values for which ``support`` holds; other values are unsupported. An
        attribute that is absent counts as ``""``.
    volumes
        Whether ``support`` holds for tensors in the blocked layout of three-dimensional convolutions too (see
        :mod:`mxamp.targets.layout`); if not, the operator is unsupported on them.
    """

    support: Support
    note: str = ""
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    volumes: bool = True


@dataclass(frozen=True)
class FusionStep:
    """One link of a chain that the backend runs as one.

    Attributes
    ----------
    operators
        The operators that may stand there.
    optional
        Whether the chain may do without it.
    matching
        Attribute name -> regular expression that the whole value must match (``""`` where it is absent).
    any_input
        Whether the chain may come in at any of its inputs; otherwise it is the first.
    """

    operators: tuple[str, ...]
    optional: bool = False
    matching: Mapping[str, str] = field(default_factory=dict)
    any_input: bool = False

    def accepts(self, op: str, attrs: Mapping[str, str]) -> bool:
        """Return whether an operator with these attributes may stand there."""
        if op not in self.operators or not self.matching:
            return op in self.operators
        return all(re.fullmatch(pattern, attrs.get(key, "")) for key, pattern in self.matching.items())


@dataclass(frozen=True)
class FusionPattern:
    """A chain of operators that the backend runs as one.

    Attributes
    ----------
    steps
        The links, first to last.
    """

    steps: tuple[FusionStep, ...]
