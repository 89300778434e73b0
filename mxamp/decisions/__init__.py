"""Decisions: one a node, made from color, target and placement, carried out by the rewriter."""

from mxamp.decisions.decide import decide
from mxamp.decisions.decision import Decision, Plan
from mxamp.decisions.estimates import Estimates
from mxamp.decisions.inputs import DecisionInputs
from mxamp.decisions.io_dtype import Interface, IoDtype, decide_interface, resolve_io_dtype
from mxamp.decisions.low_precision import LowPrecision, as_low_precision
from mxamp.decisions.nothing_low import already_low, why_nothing_is_low

__all__ = [
    "Decision",
    "DecisionInputs",
    "Estimates",
    "Interface",
    "IoDtype",
    "LowPrecision",
    "Plan",
    "already_low",
    "as_low_precision",
    "decide",
    "decide_interface",
    "resolve_io_dtype",
    "why_nothing_is_low",
]
