"""What passes did, as values: for the report, and for whoever measures what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, NamedTuple

from mxamp.dtypes import DType
from mxamp.graph.graph import Entry, Graph


@dataclass(frozen=True)
class PreparedNode:
    """What a pass did to one node before anything was decided.

    Attributes
    ----------
    node
        The node.
    op
        Its operator.
    step
        The pass, as ``prepare`` names it.
    into
        What carries its value now, or computes what it was a part of: the name of a node, its own where it
        was rewritten in place. None where the pass left it alone although it is of its kind.
    reason
        Why.
    """

    node: str
    op: str
    step: str
    into: str | None
    reason: str


@dataclass(frozen=True)
class RewrittenMask:
    """What became of one constant beyond the dtype's range.

    Attributes
    ----------
    node
        The node whose attribute it is, or the parameter that holds it.
    op
        The operator; ``null`` for a parameter.
    before
        The value it had.
    after
        The value it has now; None where it stays.
    reason
        Why it stays; empty where it does not.
    inserted
        The nodes put in for it: each bounds the values of the node it follows.
    """

    node: str
    op: str
    before: float
    after: float | None
    reason: str = ""
    inserted: tuple[str, ...] = ()


class PlannedNode(NamedTuple):
    """What a pass did to one node after it was decided about.

    Attributes
    ----------
    node
        Its position.
    step
        The pass.
    reason
        What the report says of it: besides what was decided, or instead where the node is gone.
    is_gone
        Whether another node computes its values now, so that it costs nothing.
    """

    node: int
    step: str
    reason: str
    is_gone: bool = False


@dataclass(frozen=True)
class RescaledEntries:
    """What tensors were scaled by.

    Attributes
    ----------
    exponents
        Entry -> k, for those that are what they were times 2^-k.
    """

    exponents: Mapping[Entry, int]


class InsertedCast(NamedTuple):
    """One cast that was put in.

    Attributes
    ----------
    node
        Position of the cast in the new graph.
    source
        The entry it reads, in the new graph.
    origin
        The entry of the graph before whose values it carries.
    dtype
        What it casts to.
    before
        What it casts from; None behind an operator that mxamp knows nothing about.
    """

    node: int
    source: Entry
    origin: Entry
    dtype: DType
    before: DType | None


@dataclass(frozen=True)
class BodyCasts:
    """The casts put into one control-flow body.

    Attributes
    ----------
    path
        The name of the control-flow node, after those it lies in: ``outer/inner``.
    before, after
        The body without and with the casts.
    casts
        The casts.
    """

    path: str
    before: Graph
    after: Graph
    casts: tuple[InsertedCast, ...]


class StoredParameter(NamedTuple):
    """One array of the converted model.

    Attributes
    ----------
    source
        The name of the parameter it comes from.
    dtype
        The dtype it is stored in.
    """

    source: str
    dtype: DType


@dataclass(frozen=True)
class InsertedCasts:
    """All casts that were put in, and what is stored cast.

    Attributes
    ----------
    casts
        The casts, in graph order.
    bodies
        The casts put into control-flow bodies.
    parameters
        Variable -> what it stores, for those stored differently.
    variables
        The dtype of every variable.
    """

    casts: tuple[InsertedCast, ...] = ()
    bodies: tuple[BodyCasts, ...] = ()
    parameters: Mapping[str, StoredParameter] = field(default_factory=dict)
    variables: Mapping[str, DType] = field(default_factory=dict)
