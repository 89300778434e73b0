"""The guard: no model is converted to one that is slower on the machine where it was measured."""

from mxamp.guard.options import Guard

__all__ = ["Guard"]
