"""What shapes that were assumed may decide of a forward pass that takes little time.

What each node and each cast costs at any size is most of such a pass, and how large a batch is decides which
way the rest of it goes. So they decide only whether anything is low: nothing is, where nothing gains for one
sample. And where operators take no longer than calling MXNet does, not even that, for nobody could tell.
"""

from __future__ import annotations

from mxamp.decisions.estimates import Estimates
from mxamp.targets import CostModel

SHORT = 500.0
"""Microseconds of a forward pass that is not short any more."""


def is_short(estimates: Estimates) -> bool:
    """Return whether assumed shapes decide no more of a pass than whether anything is low."""
    return sum(estimates.float32) < SHORT


def is_negligible(estimates: Estimates, cost: CostModel) -> bool:
    """Return whether assumed shapes decide nothing: its operators take no longer than calling MXNet."""
    return sum(estimates.float32) <= cost.call_us
