"""Machines other than the one that the tests run on."""

from __future__ import annotations

import pytest

from mxamp.measuring.machine import cpu_flags
from mxamp.targets import Target, mismatch

__all__ = ["needs_bfloat16", "suit_every_target", "why_no_bfloat16"]

_FLAGS = cpu_flags()  # before a test describes another CPU

_NO_BFLOAT16 = _FLAGS is not None and "avx512bw" not in _FLAGS
_REASON = "MXNet has no bfloat16 on this CPU, for want of AVX-512"

needs_bfloat16 = pytest.mark.skipif(_NO_BFLOAT16, reason=_REASON)
"""Marks what would not fail for want of it, but find something else."""

_SAID = ("MXNet 1.9.1 computes in bfloat16 on CPUs with AVX-512", "could not create a primitive descriptor")
"""By mxamp, and by MXNet itself, of a bfloat16 model on a CPU without AVX-512."""


def suit_every_target(patch: pytest.MonkeyPatch) -> None:
    """Let no machine contradict a target, so that the same is said of models everywhere."""
    patch.setattr(mismatch, "unmet_need", lambda needs: None)
    patch.setattr(mismatch, "automatic_target", Target.for_dtype)


def why_no_bfloat16(said: str) -> str:
    """Return why something failed that a CPU with AVX-512 runs; empty where that is not the reason.

    Parameters
    ----------
    said
        What was said of the failure.
    """
    return _REASON if _NO_BFLOAT16 and any(words in said for words in _SAID) else ""
