"""What a plan is made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Mapping, Sequence, Tuple

from mxamp.decisions.low_precision import LowPrecision
from mxamp.dtypes import DType
from mxamp.graph.graph import Graph
from mxamp.params.parameter import Parameter
from mxamp.policy.policy import Policy
from mxamp.targets import Target

if TYPE_CHECKING:
    from mxamp.decisions.placing import Placing


Shape = Tuple[int, ...]


@dataclass(frozen=True)
class DecisionInputs:
    """What a plan is made from.

    Attributes
    ----------
    graph
        The graph before conversion.
    variables
        The dtype of every variable before conversion.
    params
        Parameters by name.
    policy, target
        What is allowed, and what is possible.
    shapes
        For every node the shape of each output, where known.
    low_inputs
        Graph inputs that arrive in low precision after conversion.
    low_heads
        Numbers of the heads that leave in low precision.
    castable
        The parameters that may be cast when the model is saved; others are cast at run time.
    free_inputs
        Variables that are no parameters, yet may be had in either dtype for nothing: the loop invariants
        of a control-flow body.
    saturate
        Whether parameters that are cast when the model is saved are clamped to the dtype's range. Those that
        control-flow bodies read are not: they may be cast inside, at run time.
    are_shapes_assumed
        Whether nobody gave the shapes. Then costs are weighed by them where a forward pass is long enough,
        and nothing else knows them.
    low_precision
        Whether GREEN nodes are low wherever that is possible, or where it pays; None for where it pays, if
        that can be told.
    placing
        How the nodes that have a choice are placed; None for the least cost by the target.
    kept
        Node -> reason, for nodes that stay FP32 though they could be low, because that was measured to be
        faster; those in control-flow bodies as ``loop/name``.
    """

    graph: Graph
    variables: Mapping[str, DType]
    params: Mapping[str, Parameter]
    policy: Policy
    target: Target
    shapes: Sequence[tuple[Shape | None, ...]] | None = None
    low_inputs: Mapping[str, DType] = field(default_factory=dict)
    low_heads: frozenset[int] = frozenset()
    castable: frozenset[str] = frozenset()
    free_inputs: frozenset[str] = frozenset()
    saturate: bool = False
    are_shapes_assumed: bool = False
    low_precision: LowPrecision | None = None
    placing: Placing | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
