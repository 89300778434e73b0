"""Race models and files in several runtimes: the front door."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.compare.metrics import DistanceMeter
from mxamp.dtypes import DType, GivenDType
from mxamp.errors import DataError, MxampError, OperatorError
from mxamp.graph.output_names import output_names
from mxamp.graph.shapes import InputShapes
from mxamp.measuring.machine import cpu_name
from mxamp.measuring.race import FEWEST_TELLING_ROUNDS, MOST_ROUNDS, Race, race_is_clear, run_by_turns
from mxamp.model.accepted import GivenData
from mxamp.racing.competitor import MXNET, RUNTIMES
from mxamp.racing.given import RacingModel, check_numbers, contenders_of, conversions_of, data_of, runtimes_of
from mxamp.racing.lineup import Contender, Entrant, line_up, low_dtype
from mxamp.racing.process import CompetitorProcess
from mxamp.racing.result import RaceEntry, RaceResult

DEFAULT_TOLERANCE = 2e-2
"""The most relative L2 error of an output: what a healthy network loses in bfloat16 is half of that."""

_TURN_SECONDS = 0.02
"""How long a turn is timed at least, after one pass that is not: small models are over in a millisecond, and
what the others left in the caches is not theirs to pay."""


Say = Callable[[str], None]


def race(
    models: Mapping[str, RacingModel] | RacingModel,
    data: GivenData | None = None,
    *,
    input_shapes: InputShapes | None = None,
    dtype: GivenDType | None = None,
    runtimes: Sequence[str] | None = None,
    threads: int = 1,
    seconds: float = 30.0,
    batch_size: int = 1,
    tolerance: float = DEFAULT_TOLERANCE,
    python: Mapping[str, str] | None = None,
    seed: int = 0,
    progress: Say | None = None,
) -> RaceResult:
    """Race models and files in the runtimes that are installed, and say what to deploy on this machine.

    Each competitor is a process of its own. They run by turns, so that what else the machine does falls on
    all alike.

    Parameters
    ----------
    models
        What to call each -> an :class:`mxamp.Model`, ``(sym, args, auxs)``, or the path of files: a prefix,
        an ONNX file, an ``.xml`` of OpenVINO. The first is the FP32 model that errors are measured against. A
        single one need not be named. Models run in MXNet, and exported in ONNX Runtime and in OpenVINO: a
        float32 one in OpenVINO as it is and with its ``bf16`` hint.
    data
        Input name -> array, samples along the first axis, or one array for a model with one input. Errors are
        measured on all of it, times on the first batch. By default random numbers.
    input_shapes
        Without data: input name -> shape, such as ``{"data": (1, 3, 224, 224)}``; the shape alone will do for
        a model with one input.
    dtype
        Convert the first model to it too: for MXNet on this machine, and for OpenVINO.
    runtimes
        Of ``"mxnet"``, ``"onnxruntime"``, ``"openvino"``; by default those that are installed.
    threads
        How many threads each may use.
    seconds
        About how long the turns may take in all; they end early where the answer is clear.
    batch_size
        Samples a forward pass.
    tolerance
        The largest error, relative L2 of an output, of what may be deployed.
    python
        Runtime -> the interpreter to run it with, where it is installed in another environment.
    seed
        Of random data, and of the order of turns.
    progress
        Told what happens.

    Returns
    -------
    RaceResult
        Prints as a table; ``result.best`` is what to deploy. What could not run is in it, with the reason.

    Raises
    ------
    DataError
        When models, data or options do not fit together, or no runtime is installed.
    OperatorError
        When the reference cannot be run.
    ModelFileNotFoundError, SymbolFormatError, ParamsError
        When a file is not there or damaged.
    """
    say = progress or (lambda text: None)
    check_numbers(threads, seconds, batch_size, tolerance)
    interpreters = dict(python or {})
    wanted, notes = runtimes_of(runtimes, interpreters)
    contenders = contenders_of(models)
    arrays, shapes, about_data = data_of(contenders[0], data, input_shapes or {}, batch_size, seed)
    notes = [*notes, *about_data]
    if dtype is not None:
        say("converting")
        contenders += conversions_of(contenders[0], DType.parse(dtype), shapes, wanted)
    with tempfile.TemporaryDirectory(prefix="mxamp-race-") as text, ExitStack() as stack:
        folder = Path(text)
        say("exporting")
        entrants = line_up(contenders, shapes, wanted, folder)
        data_path = folder / "data.npz"
        np.savez(data_path, **arrays)
        task = _Task(threads, interpreters, os.fspath(data_path), batch_size if arrays else None, folder)
        say("the reference")
        reference, expected, names, said = _reference(contenders[0], entrants, task)
        notes += said
        entries: list[RaceEntry] = []
        processes: list[CompetitorProcess | None] = []
        for entrant in entrants:
            entry = RaceEntry(
                contenders[entrant.contender].label, entrant.runtime, entrant.precision, entrant.how
            )
            say(entry.label)
            entry, process = _start(entry, entrant, task, expected, names, stack)
            entries.append(entry)
            processes.append(process)
        say("turns")
        timed = _time(entries, processes, seconds, seed, tolerance)
    return RaceResult(
        tuple(timed),
        reference,
        tolerance,
        {"cpu": cpu_name(), "threads": str(threads)},
        samples=min((len(values) for values in arrays.values()), default=1),
        batch_size=batch_size,
        notes=tuple(notes),
    )


@dataclasses.dataclass(frozen=True)
class _Task:
    """What all competitors are told."""

    threads: int
    interpreters: Mapping[str, str]
    data: str
    batch_size: int | None
    folder: Path

    def process(self, entrant: Entrant, label: str) -> CompetitorProcess:
        """Start a competitor's process."""
        count = str(self.threads)
        environment = {"OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count, **entrant.environment}
        return CompetitorProcess(
            label, python=self.interpreters.get(entrant.runtime), environment=environment
        )

    def outputs(self, process: CompetitorProcess) -> list[NDArray[Any]]:
        """Return what a competitor computes of all data."""
        path = self.folder / "outputs.npz"
        count = process.do("outputs", data=self.data, batch_size=self.batch_size, to=os.fspath(path))
        with np.load(path) as arrays:
            return [arrays[str(number)] for number in range(count["outputs"])]


# ---------------------------------------------------------------------- what was asked for


# ---------------------------------------------------------------------- running


def _reference(
    first: Contender, entrants: Sequence[Entrant], task: _Task
) -> tuple[str, list[NDArray[Any]], list[str], list[str]]:
    """Return what errors are measured against: its name, its outputs, their names, and notes."""
    own = [entrant for entrant in entrants if entrant.contender == 0 and entrant.job]
    notes, failures = [], []
    if first.model is not None and low_dtype(first.model) is not None:
        notes.append(f"{first.label} is no float32 model: errors are distances from it.")
    for entrant in own:
        job = {**entrant.job, "threads": task.threads}
        where = RUNTIMES[entrant.runtime]
        if entrant.runtime == MXNET:
            job["fusion"] = False
            where = "MXNet, fusion off"
        try:
            with task.process(entrant, f"{first.label} in {where}") as process:
                process.do("load", **job)
                outputs = task.outputs(process)
        except OperatorError as error:
            failures.append(str(error))
            continue
        names = (
            list(output_names(first.model.graph))
            if first.model is not None
            else [f"output {number}" for number in range(len(outputs))]
        )
        return f"{first.label} in {where}", outputs, names, notes
    why = "; ".join(failures or [entrant.failure or "" for entrant in entrants if entrant.contender == 0])
    raise OperatorError(f"{first.label}, which errors are measured against, runs nowhere: {why}")


def _start(
    entry: RaceEntry,
    entrant: Entrant,
    task: _Task,
    expected: Sequence[NDArray[Any]],
    names: Sequence[str],
    stack: ExitStack,
) -> tuple[RaceEntry, CompetitorProcess | None]:
    """Start a competitor and measure its error; without a process where it cannot run."""
    if entrant.failure is not None:
        return dataclasses.replace(entry, failure=entrant.failure), None
    process = None
    try:
        process = stack.enter_context(task.process(entrant, entry.label))
        said = dict(process.do("load", **entrant.job, threads=task.threads))
        entry = dataclasses.replace(entry, version=said.pop("version"), details=said)
        outputs = task.outputs(process)
        error, worst = _worst(expected, outputs, names)
        process.do("ready", data=task.data, batch_size=task.batch_size)
    except MxampError as failure:
        if process is not None:
            process.close()
        return dataclasses.replace(entry, failure=str(failure)), None
    return dataclasses.replace(entry, error=error, worst_output=worst), process


def _worst(
    expected: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]], names: Sequence[str]
) -> tuple[float, str]:
    if len(expected) != len(outputs):
        raise DataError(f"it has {len(outputs)} outputs, and the reference {len(expected)}")
    found = []
    for name, left, right in zip(names, expected, outputs):
        if left.shape != right.shape:
            raise DataError(f"its output {name!r} has the shape {right.shape}, and not {left.shape}")
        meter = DistanceMeter()
        meter.add(left, right)
        found.append((meter.result().relative_l2, name))
    return max(found, key=lambda one: one[0])


def _time(
    entries: Sequence[RaceEntry],
    processes: Sequence[CompetitorProcess | None],
    seconds: float,
    seed: int,
    tolerance: float,
) -> list[RaceEntry]:
    """Let those that run take turns."""
    timed = list(entries)
    runs: dict[int, Callable[[], float]] = {}
    spent = measured = 0.0
    for number, process in enumerate(processes):
        if process is None:
            continue
        run = _turn(process)
        try:
            run()  # here the runtime prepares what it needs
            middle = time.perf_counter()
            measured += run()
            spent += time.perf_counter() - middle
        except OperatorError as error:
            timed[number] = dataclasses.replace(entries[number], failure=str(error))
            continue
        runs[number] = run
    if not runs:
        return timed
    order = list(runs)
    allowed = [place for place, number in enumerate(order) if (entries[number].error or 0.0) <= tolerance]

    def is_clear(so_far: Race) -> bool:
        return race_is_clear(Race(tuple(so_far.seconds[place] for place in allowed or range(len(order)))))

    # A turn is longer than what is timed of it.
    found = run_by_turns(
        [runs[number] for number in order],
        rounds=MOST_ROUNDS,
        warmup=1,
        seconds=seconds * min(1.0, measured / spent),
        at_least=FEWEST_TELLING_ROUNDS,
        seed=seed,
        is_clear=is_clear,
    )
    for place, number in enumerate(order):
        timed[number] = dataclasses.replace(
            timed[number],
            milliseconds=round(found.median_ms[place], 4),
            ratio=found.ratio(place),
            seconds=found.seconds[place],
        )
    return timed


def _turn(process: CompetitorProcess) -> Callable[[], float]:
    def run() -> float:
        return float(process.do("turn", unmeasured=1, at_least=_TURN_SECONDS)["seconds"])

    return run
