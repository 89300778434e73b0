"""Timing models by turns on this machine: in this process, or in one where a crash does no harm."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Sequence

import numpy as np

from mxamp.compare.inputs import prepare_inputs
from mxamp.compare.race import RACE_PROGRAM, bind_for_timing, race, write_for_race
from mxamp.compare.sample_inputs import sample_inputs
from mxamp.errors import OperatorError
from mxamp.guard.options import Guard, Measure
from mxamp.measuring.process import ProcessError, run_program
from mxamp.measuring.race import FEWEST_TELLING_ROUNDS, MOST_ROUNDS, Race
from mxamp.model import Model
from mxamp.targets import Target

_STARTING_SECONDS = 120.0
"""For a process to import MXNet, and to read and bind models."""

_OVERTIME = 20
"""How many times as long as it should take a race may take, for slow models run their fewest rounds."""


@contextlib.contextmanager
def measuring_here(
    guard: Guard, model: Model, target: Target, input_shapes: Mapping[str, Sequence[int]]
) -> Iterator[Measure]:
    """Return what times models on this machine, as long as the block lasts.

    Parameters
    ----------
    guard
        How to measure.
    model
        The FP32 model.
    target
        What is converted for; its device is measured on.
    input_shapes
        Input name -> shape.

    Raises
    ------
    DataError
        When data were given that do not fit the model.
    """
    given = sample_inputs(model, input_shapes) if guard.data is None else guard.data
    data = prepare_inputs(model, given).arrays
    device = target.backend.context
    if not guard.own_process:
        yield _in_this_process(given, device)
        return
    with tempfile.TemporaryDirectory(prefix="mxamp-guard-") as name:
        folder = Path(name)
        np.savez(folder / "data.npz", **data)
        yield Processes(folder, device)


def _in_this_process(data: Any, device: str) -> Measure:
    bind = bind_for_timing(data, device)

    def measure(models: Sequence[Model], labels: Sequence[str], seconds: float) -> Race:
        return race(
            models,
            rounds=MOST_ROUNDS,
            seconds=seconds,
            at_least=FEWEST_TELLING_ROUNDS,
            labels=labels,
            bind=bind,
        )

    return measure


class Processes:
    """Times models, every race in a process of its own.

    Parameters
    ----------
    folder
        Where models are written for it; it holds the data.
    device
        What they run on.
    run
        Runs a program.
    """

    def __init__(self, folder: Path, device: str, run: Callable[..., Any] = run_program) -> None:
        self._folder, self._device, self._run = folder, device, run
        self._numbers = itertools.count()

    def __call__(self, models: Sequence[Model], labels: Sequence[str], seconds: float) -> Race:
        """Time models.

        Raises
        ------
        OperatorError
            When the process crashes, takes too long, or cannot run a model; or a model cannot be written.
        """
        folder = self._folder / f"race{next(self._numbers)}"
        try:
            folder.mkdir()
            result = self._run(
                RACE_PROGRAM,
                {
                    "data": str(self._folder / "data.npz"),
                    "ctx": self._device,
                    "models": [
                        write_for_race(folder / f"{n}", one.graph, one.arg_params, one.aux_params)
                        for n, one in enumerate(models)
                    ],
                    "labels": list(labels),
                    "rounds": MOST_ROUNDS,
                    "seconds": seconds,
                    "at_least": FEWEST_TELLING_ROUNDS,
                },
                folder,
                timeout=_STARTING_SECONDS + _OVERTIME * seconds,
            )
        except (ProcessError, OSError) as error:  # no room to write the models, perhaps
            raise OperatorError(f"In a process of its own: {str(error).rstrip('.')}.") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return Race(tuple(tuple(own) for own in result["seconds"]))
