"""Machines other than the one that the tests run on."""

from __future__ import annotations

import pytest

from mxamp.targets import Target, mismatch

__all__ = ["suit_every_target"]


def suit_every_target(patch: pytest.MonkeyPatch) -> None:
    """Let no machine contradict a target, so that the same is said of models everywhere."""
    patch.setattr(mismatch, "unmet_need", lambda needs: None)
    patch.setattr(mismatch, "automatic_target", Target.for_dtype)
