"""Which nodes of a conversion make the difference: low precision a part at a time."""

from mxamp.debug.bisect import Part, bisect_parts
from mxamp.debug.run import Suspects, debug_models

__all__ = ["Part", "Suspects", "bisect_parts", "debug_models"]
