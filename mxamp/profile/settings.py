"""How a model is profiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from mxamp.errors import PolicyError


@dataclass(frozen=True)
class Profiling:
    """How long profiling may take, and what it says meanwhile.

    Attributes
    ----------
    node_seconds
        Seconds of forward passes for each two graphs whose nodes are timed; a slow model is run five times
        in any case.
    race_seconds
        Seconds of forward passes in which whole plans are run by turns.
    timeout
        Seconds after which a process that measures is given up.
    use_cache
        Whether measurements are read from the cache and written to it.
    progress
        Called with what is being measured.
    """

    node_seconds: float = 3.0
    race_seconds: float = 8.0
    timeout: float = 600.0
    use_cache: bool = True
    progress: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        for name in ("node_seconds", "race_seconds", "timeout"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
                raise PolicyError(f"Profiling: {name} must be a number of seconds above 0, not {value!r}.")
