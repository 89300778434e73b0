"""Which operators draw numbers: equal inputs make other outputs in another forward pass."""

from __future__ import annotations

import re
from typing import Mapping

_DRAWS = re.compile(
    r"_?random_(?!pdf_).*|_?sample_.*|.*shuffle|.*multinomial|(_npx_)?_image_random_.*"
    r"|uniform|normal|exponential|poisson|negative_binomial|generalized_negative_binomial"
    r"|_npi_(random_.*|normal|normal_n|uniform|uniform_n|gamma|bernoulli|gumbel|logistic|pareto|weibull"
    r"|exponential|rayleigh|powerd|choice)"
    r"|_contrib_dgl_.*_sample|Custom"
)
"""Names of MXNet 1.9.1's operators that draw; what ``Custom`` does is up to the user's Python."""

_DROPS = re.compile(r"Dropout|_npx_dropout")


def draws_numbers(op: str, attrs: Mapping[str, str]) -> bool:
    """Return whether an operator's results may differ from one forward pass of inference to the next.

    Parameters
    ----------
    op
        The operator, under any of its names.
    attrs
        The node's attributes: a Dropout draws where its mode is ``always``.
    """
    if _DROPS.fullmatch(op):
        return attrs.get("mode") == "always"
    return _DRAWS.fullmatch(op) is not None
