"""Measure candidates: the times of nodes, and whole plans by turns, each in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.compare.race import RACE_PROGRAM
from mxamp.errors import MxampError
from mxamp.measuring.process import ProcessError, run_program
from mxamp.measuring.race import Ratio
from mxamp.profile.cache import MeasurementCache
from mxamp.profile.candidate import Candidate
from mxamp.profile.observation import Observation, observation
from mxamp.profile.settings import Profiling

RunProgram = Callable[..., Any]

_NODES = "mxamp.runtime.node_times"

_ENGINE = "NaiveEngine"
"""With it a node has finished before the next one starts."""

_NODE_ROUNDS = 30
_RACE_ROUNDS = 99
_RACE_BINDINGS = 3
"""Where its memory comes to lie makes one and the same plan some percent faster or slower, for as long as it
is bound."""
_FEWEST_ROUNDS = 9
"""Of a race; from 8 on the median is known with some confidence (:class:`mxamp.measuring.race.Ratio`)."""


class Lap(NamedTuple):
    """What the race measured of one plan.

    Attributes
    ----------
    median_ms
        Its median time; None where it could not be run.
    ratio
        How many times as fast as the first plan it is.
    problem
        Why it could not be run.
    seconds
        Its times, round by round, where all plans ran beside each other.
    rounds
        How many of them are of each time that the plans were bound.
    """

    median_ms: float | None
    ratio: Ratio | None
    problem: str = ""
    seconds: tuple[float, ...] = ()
    rounds: tuple[int, ...] = ()


class Measuring:
    """Measures candidates of one model.

    Parameters
    ----------
    folder
        Where jobs and results lie.
    data
        Input name -> values.
    device
        The device.
    machine
        What times depend on apart from the model.
    cache
        What was measured before.
    settings
        How long it may take.
    run_program
        Runs a program; to be replaced where there shall be none.
    """

    def __init__(
        self,
        folder: Path,
        data: Mapping[str, NDArray[Any]],
        *,
        device: str,
        machine: Mapping[str, Any],
        cache: MeasurementCache,
        settings: Profiling,
        run_program: RunProgram = run_program,
    ) -> None:
        self._folder, self._device, self._machine = folder, device, machine
        self._cache, self._settings, self._run_program = cache, settings, run_program
        self._shapes = {name: list(values.shape) for name, values in data.items()}
        self._data = str(folder / "data.npz")
        np.savez(self._data, **data)
        self.problems: list[str] = []
        """What could not be measured, and why."""

    # ------------------------------------------------------------------ nodes

    def observe(self, candidates: Sequence[Candidate], what: Sequence[str] = ()) -> list[Observation | None]:
        """Time the nodes of candidates, by turns.

        Parameters
        ----------
        candidates
            The candidates.
        what
            What to call each where it cannot be run; nothing is said of it without.

        Returns
        -------
        list
            None for a candidate whose nodes could not be timed.
        """
        try:
            results = self._measure(
                _NODES,
                candidates,
                {"seconds": self._settings.node_seconds, "rounds": _NODE_ROUNDS},
                {"MXNET_ENGINE_TYPE": _ENGINE},
            )
            return [observation(one.rewrites, results[n]) for n, one in enumerate(candidates)]
        except (ProcessError, MxampError, LookupError, TypeError, ValueError, AttributeError) as error:
            if len(candidates) > 1:
                # One of them is at fault; the others are still worth knowing.
                return [self.observe([one], what[n : n + 1])[0] for n, one in enumerate(candidates)]
            if what:
                self.problems.append(f"the nodes could not be timed {what[0]}: {error}")
            return [None]

    # ------------------------------------------------------------------ whole plans

    def race(
        self, candidates: Sequence[Candidate], names: Sequence[str], expected_ms: float = 0.0
    ) -> list[Lap]:
        """Run candidates by turns; where that fails, each against the first alone.

        Parameters
        ----------
        candidates
            The candidates; the first is the one that the others are compared with.
        names
            What messages call them.
        expected_ms
            What a forward pass of one of them is expected to take: slow models get more time than the
            settings say, so that there are :data:`_FEWEST_ROUNDS`, as far as half the time limit allows.
        """
        fewest = (_FEWEST_ROUNDS + 3) * len(candidates) * expected_ms / 1000
        # The other half of the time is for reading and binding. Rounded, for the cache goes by it.
        fewest = min(float(f"{fewest:.1g}"), self._settings.timeout / 2)
        seconds = max(self._settings.race_seconds, fewest)
        try:
            return self._laps(candidates, names, seconds)
        except (ProcessError, LookupError, TypeError, ValueError) as error:
            if len(candidates) == 1:
                return [Lap(None, None, str(error))]
        laps = self.race(candidates[:1], names[:1], expected_ms)
        if laps[0].problem:
            return [*laps, *(Lap(None, None, "there is nothing to compare it with") for _ in names[1:])]
        for candidate, name in zip(candidates[1:], names[1:]):
            try:
                laps.append(
                    self._laps([candidates[0], candidate], [names[0], name], seconds)[1]._replace(
                        seconds=(), rounds=()
                    )
                )
            except (ProcessError, LookupError, TypeError, ValueError) as error:
                laps.append(Lap(None, None, str(error)))
        return laps

    def _laps(self, candidates: Sequence[Candidate], names: Sequence[str], seconds: float) -> list[Lap]:
        result = self._measure(
            RACE_PROGRAM,
            candidates,
            {
                "seconds": seconds,
                "rounds": _RACE_ROUNDS,
                "bindings": _RACE_BINDINGS,
                "labels": list(names),
            },
        )
        taken, rounds = result["seconds"], tuple(result["rounds"])
        return [
            Lap(
                1e3 * float(np.median(taken[n])),
                Ratio.of(taken[0], taken[n]),
                seconds=tuple(taken[n]),
                rounds=rounds,
            )
            for n in range(len(candidates))
        ]

    # ------------------------------------------------------------------ processes

    def _measure(
        self,
        program: str,
        candidates: Sequence[Candidate],
        job: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
    ) -> Any:
        settings = {name: value for name, value in job.items() if name != "labels"}
        key = MeasurementCache.key(
            program.rpartition(".")[2],
            self._machine,
            [one.content for one in candidates],
            inputs=list(self._shapes.values()),
            **settings,
        )
        known = self._cache.read(key)
        if known is not None:
            return known
        result = self._run_program(
            program,
            {
                **job,
                "models": [one.prefix for one in candidates],
                "data": self._data,
                "ctx": self._device,
            },
            self._folder,
            timeout=self._settings.timeout,
            environment=environment,
        )
        self._cache.write(key, result)
        return result
