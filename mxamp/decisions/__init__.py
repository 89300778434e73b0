"""Decisions: one a node, made from color, target and placement, carried out by the rewriter."""

from mxamp.decisions.decide import DecisionInputs, decide
from mxamp.decisions.decision import Decision, Plan
from mxamp.decisions.io_dtype import IoDtype, resolve_io_dtype

__all__ = ["Decision", "DecisionInputs", "IoDtype", "Plan", "decide", "resolve_io_dtype"]
