"""Targets: what machines can run in low precision."""

from mxamp.targets.fusion import fusion_groups
from mxamp.targets.target import FusionPattern, OperatorSupport, Support, Target

__all__ = ["FusionPattern", "OperatorSupport", "Support", "Target", "fusion_groups"]
