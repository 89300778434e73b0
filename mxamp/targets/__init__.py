"""Targets: what machines can run in low precision, and what it costs."""

from mxamp.targets.backend import MXNET, RUNTIMES, Backend
from mxamp.targets.choose import AUTO, GivenTarget, automatic_target, machine_dtype, resolve_target
from mxamp.targets.cost import CastCost, CostModel, OperatorCost, Rates
from mxamp.targets.fusion import folded_patterns, fuses_batch_norm, fusion_groups
from mxamp.targets.layout import read_volumes
from mxamp.targets.mismatch import Mismatch, machine_mismatch
from mxamp.targets.overrun import overrunning
from mxamp.targets.parts import FusionPattern, FusionStep, OperatorSupport, Support
from mxamp.targets.target import Target
from mxamp.targets.work import Work

__all__ = [
    "AUTO",
    "MXNET",
    "RUNTIMES",
    "Backend",
    "CastCost",
    "CostModel",
    "FusionPattern",
    "FusionStep",
    "GivenTarget",
    "Mismatch",
    "OperatorCost",
    "OperatorSupport",
    "Rates",
    "Support",
    "Target",
    "Work",
    "automatic_target",
    "folded_patterns",
    "fuses_batch_norm",
    "fusion_groups",
    "machine_dtype",
    "machine_mismatch",
    "overrunning",
    "read_volumes",
    "resolve_target",
]
