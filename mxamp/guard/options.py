"""How the guard measures, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Sequence

import numpy as np

from mxamp.errors import PolicyError
from mxamp.files.names import short

if TYPE_CHECKING:
    from mxamp.measuring.race import Race
    from mxamp.model import Model

Measure = Callable[[Sequence["Model"], Sequence[str], float], "Race"]
"""Times models by turns, given their labels and how many seconds it may take: :mod:`mxamp.measuring.race`."""


@dataclass(frozen=True)
class Guard:
    """How the guard of :func:`mxamp.convert_model` measures.

    Attributes
    ----------
    seconds
        About how long it may take in all. A quarter is for the first look; where the conversion is then
        clearly faster, that is all.
    data
        Input name -> array, or one array for a model with one input: what the models are fed. By default
        random numbers of the shapes given.
    own_process
        Whether the models run in a process of their own, where a crash of MXNet's does no harm, as on the
        command line. What was registered or loaded in this process, such as operators of yours, is not there.
    measure
        Times models by turns. By default :func:`mxamp.compare.race.race` on this machine; where another is
        given, nothing is asked of this machine.
    """

    seconds: float = 30.0
    data: Any = None
    own_process: bool = False
    measure: Measure | None = None

    def __post_init__(self) -> None:
        seconds: Any = self.seconds
        is_number = isinstance(seconds, (int, float, np.integer, np.floating)) and seconds is not True
        if not is_number or not seconds > 0:
            raise PolicyError(f"The guard's seconds must be a number above 0, not {short(seconds)}.")
        if not isinstance(self.own_process, (bool, np.bool_)):
            raise PolicyError(f"Guard: own_process must be True or False, not {self.own_process!r:.80}.")
        if self.measure is not None and not callable(self.measure):
            raise PolicyError(f"Guard: measure must be a function or None, not {self.measure!r:.80}.")
