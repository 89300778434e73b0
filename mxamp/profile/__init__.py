"""Measure the units of one model while it runs, place by that, and let plans compete as whole models."""

from mxamp.profile.run import placing_by_profile
from mxamp.profile.settings import Profiling

__all__ = ["Profiling", "placing_by_profile"]
