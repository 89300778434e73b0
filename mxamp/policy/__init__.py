"""The policy: what the numerics allow, in colors with reasons."""

from mxamp.policy.color import Color, Verdict
from mxamp.policy.parts import AttributeCondition, OperatorPolicy, UserRule
from mxamp.policy.policy import Policy
from mxamp.policy.selector import Selector
from mxamp.policy.view import NodeView

__all__ = [
    "AttributeCondition",
    "Color",
    "NodeView",
    "OperatorPolicy",
    "Policy",
    "Selector",
    "UserRule",
    "Verdict",
]
