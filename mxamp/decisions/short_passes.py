"""What shapes that were assumed may decide of a forward pass that takes little time.

What each node and each cast costs at any size is most of such a pass, and how large a batch is decides which
way the rest of it goes. So they decide only whether anything is low: nothing is, where nothing gains for
certain with one sample. And where operators take no longer than calling MXNet does, not even that, for nobody
could tell.
"""

from __future__ import annotations

from dataclasses import replace

from mxamp.decisions.estimates import Estimates
from mxamp.targets import CostModel

SHORT = 500.0
"""Microseconds of a forward pass that is not short any more."""

_DOUBT = 1.1
"""How many times longer low nodes are supposed to take than estimated: most estimates of kernels of a few
microseconds are further off. A perceptron of 37 microseconds, estimated to gain 2 %, lost 9 %."""


def is_short(estimates: Estimates) -> bool:
    """Return whether assumed shapes decide no more of a pass than whether anything is low."""
    return sum(estimates.float32) < SHORT


def doubted(estimates: Estimates, cost: CostModel) -> Estimates | None:
    """Return what a short pass is to be weighed by; None where assumed shapes decide nothing.

    Parameters
    ----------
    estimates
        What its nodes and casts cost.
    cost
        What says how long calling MXNet takes.
    """
    if sum(estimates.float32) <= cost.call_us:
        return None
    return replace(estimates, low={position: _DOUBT * us for position, us in estimates.low.items()})
