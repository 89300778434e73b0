"""Targets: what machines can run in low precision."""

from mxamp.targets.fusion import fusion_groups
from mxamp.targets.layout import read_volumes
from mxamp.targets.target import FusionPattern, FusionStep, OperatorSupport, Support, Target

__all__ = [
    "FusionPattern",
    "FusionStep",
    "OperatorSupport",
    "Support",
    "Target",
    "fusion_groups",
    "read_volumes",
]
