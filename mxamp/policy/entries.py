"""What holds for an operator whatever its attributes: the policy's own entry, or what else is known of it."""

from __future__ import annotations

from typing import Mapping

from mxamp.dtypes import DType
from mxamp.ops import FACTS
from mxamp.policy.built_in import based_on
from mxamp.policy.color import Color
from mxamp.policy.parts import OperatorPolicy
from mxamp.policy.policy import Policy

REGISTERED_COLORS: dict[tuple[str, DType], OperatorPolicy] = {}
"""(operator, low dtype) -> what the user registered with it (:mod:`mxamp.decisions.own_operators`)."""


def entry_for(policy: Policy, op: str) -> OperatorPolicy | None:
    """Return what holds for an operator under a policy.

    The policy's own tables come first, then what the user registered with the operator. An operator that no
    inference graph holds is RED for that reason. None for all others: they are RED for want of an entry.

    Parameters
    ----------
    policy
        The policy.
    op
        The operator's canonical name.
    """
    found = policy.operators.get(op) or REGISTERED_COLORS.get((op, based_on(policy.target_dtype)))
    if found is not None:
        return found
    facts = FACTS.get(op)
    if facts is None or not facts.never_in_inference:
        return None
    return OperatorPolicy(Color.RED, facts.never_in_inference)


def all_entries(policy: Policy) -> Mapping[str, OperatorPolicy]:
    """Return a policy's tables with the operators added that the user registered."""
    low = based_on(policy.target_dtype)
    registered = {op: entry for (op, dtype), entry in REGISTERED_COLORS.items() if dtype is low}
    return {**registered, **policy.operators}
