"""Race models and files in several runtimes: the front door."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mxamp.compare.inputs import expected_input_shapes, input_names, prepare_inputs
from mxamp.compare.metrics import DistanceMeter
from mxamp.compare.sample_inputs import sample_inputs
from mxamp.convert import convert_model
from mxamp.dtypes import DType
from mxamp.errors import DataError, ModelFileNotFoundError, MxampError, OperatorError, nearest_names
from mxamp.graph.output_names import output_names
from mxamp.measuring.machine import cpu_name, leaves_amx_unused
from mxamp.measuring.race import FEWEST_TELLING_ROUNDS, Race, race_is_clear, run_by_turns
from mxamp.messages.installation import install_hint
from mxamp.model import Model, load
from mxamp.onnx import OnnxSession
from mxamp.racing.competitor import MXNET, ONNX_RUNTIME, OPENVINO, RUNTIMES
from mxamp.racing.lineup import Contender, Entrant, line_up, low_dtype
from mxamp.racing.process import CompetitorProcess
from mxamp.racing.result import RaceEntry, RaceResult
from mxamp.targets import Target

__all__ = ["DEFAULT_TOLERANCE", "as_contender", "race"]

DEFAULT_TOLERANCE = 2e-2
"""The most relative L2 error of an output: what a healthy network loses in bfloat16 is half of that."""

_MOST_ROUNDS = 1000
_TURN_SECONDS = 0.02
"""How long a turn is timed at least, after one pass that is not: small models are over in a millisecond, and
what the others left in the caches is not theirs to pay."""

_SHORT = {DType.BFLOAT16: "bf16", DType.FLOAT16: "fp16"}

_EXTRAS = {MXNET: "mxnet", ONNX_RUNTIME: "onnx", OPENVINO: "openvino"}

Say = Callable[[str], None]


def race(
    models: Any,
    data: Any = None,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dtype: Any = None,
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
        Without data: input name -> shape, such as ``{"data": (1, 3, 224, 224)}``.
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
    _check(threads, seconds, batch_size, tolerance)
    interpreters = dict(python or {})
    wanted, notes = _runtimes(runtimes, interpreters)
    contenders = _contenders(models)
    arrays, shapes, about_data = _data(contenders[0], data, input_shapes or {}, batch_size, seed)
    notes = [*notes, *about_data]
    if dtype is not None:
        say("converting")
        contenders += _conversions(contenders[0], DType.parse(dtype), shapes, wanted)
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


def _check(threads: Any, seconds: Any, batch_size: Any, tolerance: Any) -> None:
    for name, value in (("threads", threads), ("batch_size", batch_size)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise DataError(f"{name} must be a whole number from 1 on, not {value!r:.40}.")
    for name, value in (("seconds", seconds), ("tolerance", tolerance)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise DataError(f"{name} must be a number above 0, not {value!r:.40}.")


def _runtimes(asked: Sequence[str] | None, interpreters: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the runtimes to race, and what is to be said of those that are not installed."""
    for name in (*interpreters, *(asked or ())):
        if name not in RUNTIMES:
            raise DataError(
                f"There is no runtime {name!r}.{nearest_names(name, RUNTIMES)} There are: "
                f"{', '.join(RUNTIMES)}."
            )
    found: list[str] = []
    missing: list[str] = []
    for name in RUNTIMES if asked is None else dict.fromkeys(asked):
        here = name in interpreters or _is_installed(name)
        (found if here else missing).append(name)
    if missing and (asked is not None or not found):
        words = " ".join(install_hint(_EXTRAS[name]) for name in missing)
        raise DataError(
            f"{' and '.join(RUNTIMES[name] for name in missing)} cannot race, not being installed. {words} "
            "Or name the interpreter of an environment that has it: --python openvino=PATH."
        )
    notes = [f"{RUNTIMES[name]} is not installed. {install_hint(_EXTRAS[name])}" for name in missing]
    return found, notes


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # it was put into sys.modules as None
        return False


def _contenders(models: Any) -> list[Contender]:
    if not isinstance(models, Mapping):
        if isinstance(models, (str, os.PathLike)):
            models = [models]
        paths = isinstance(models, (list, tuple)) and all(
            isinstance(one, (str, os.PathLike)) for one in models
        )
        models = {os.fspath(one): one for one in models} if paths else {"model": models}
    if not models:
        raise DataError("There is nothing to race. Name a model: race('resnet50'), race({'fp32': model}).")
    return [as_contender(str(label), given) for label, given in models.items()]


def as_contender(label: str, given: Any) -> Contender:
    """Return anything that can race: see :func:`race`.

    Raises
    ------
    DataError
        When it cannot.
    ModelFileNotFoundError, SymbolFormatError, ParamsError
        When a file is not there or damaged.
    """
    if isinstance(given, Contender):
        return given
    if not isinstance(given, (str, os.PathLike)):
        return Contender(label, _as_any_model(given))
    path = os.fspath(given)
    if not path.lower().endswith((".onnx", ".xml")):
        return Contender(label, load(path), path)
    if not os.path.isfile(path):
        raise ModelFileNotFoundError(f"There is no file {path!r}.")
    return Contender(label, None, path)


def _as_any_model(given: Any) -> Model:
    if isinstance(given, Model):
        return given
    if isinstance(getattr(given, "model", None), Model):  # what convert_block returned
        model: Model = given.model
        return model
    if isinstance(given, (tuple, list)) and len(given) == 3:
        return Model.of(*given)
    raise DataError(
        "What races is an mxamp.Model, a triple (sym, args, auxs), what convert_block returned, or the path "
        f"of files, not {type(given).__name__}. A Gluon block that is not converted is first exported."
    )


def _data(
    first: Contender,
    data: Any,
    input_shapes: Mapping[str, Sequence[int]],
    batch_size: int,
    seed: int,
) -> tuple[dict[str, NDArray[Any]], dict[str, tuple[int, ...]], list[str]]:
    """Return the data under the names of the inputs, the shapes of a batch, and notes."""
    notes = []
    if first.model is not None:
        if data is None:
            known = {**expected_input_shapes(first.model), **input_shapes}
            batch = {name: (batch_size, *shape[1:]) for name, shape in known.items() if len(shape)}
            arrays: dict[str, NDArray[Any]] = dict(sample_inputs(first.model, batch, seed=seed))
        else:
            inputs = prepare_inputs(first.model, data)
            arrays, notes = dict(inputs.arrays), list(inputs.notes)
        names: Sequence[str] = input_names(first.model)
    else:
        shapes = _shapes_of_file(first.path)
        names = list(shapes)
        if data is None:
            generator = np.random.default_rng(seed)
            sizes = {name: tuple(input_shapes.get(name, shape)) for name, shape in shapes.items()}
            arrays = {
                name: generator.standard_normal([size or batch_size for size in shape]).astype(np.float32)
                for name, shape in sizes.items()
            }
        else:
            arrays = {names[0]: np.asarray(data)} if not isinstance(data, Mapping) else {**data}
    if data is None:
        notes.append(f"The inputs are random numbers (seed {seed}), not real data.")
    missing = [name for name in names if name not in arrays]
    if missing:
        raise DataError(f"The data has no array for the input {missing[0]!r}; it has {', '.join(arrays)}.")
    arrays = {name: arrays[name] for name in names}
    counts = {len(values) for values in arrays.values()}
    if len(counts) > 1 or any(count % batch_size for count in counts):
        raise DataError(
            f"The data has {' and '.join(map(str, sorted(counts)))} samples, which are no batches of "
            f"{batch_size}: every input needs as many samples, a multiple of the batch size."
        )
    return arrays, {name: (batch_size, *values.shape[1:]) for name, values in arrays.items()}, notes


def _shapes_of_file(path: str) -> Mapping[str, Sequence[int]]:
    if path.lower().endswith(".onnx"):
        return OnnxSession(path).input_shapes
    from mxamp.openvino.session import OpenvinoSession

    return OpenvinoSession(path).input_shapes


def _conversions(
    first: Contender, dtype: DType, shapes: Mapping[str, tuple[int, ...]], wanted: Sequence[str]
) -> list[Contender]:
    """Return the first model, converted for each runtime."""
    if first.model is None:
        raise DataError(
            f"Only models of MXNet can be converted to {dtype}, and {first.path} is a file of another kind."
        )
    model = first.model
    found = []
    # MXNet's processes are told to use AMX where there is any.
    here = "cpu-bf16-amx" if dtype is DType.BFLOAT16 and leaves_amx_unused() else "auto"
    for runtime, target in ((MXNET, here), (OPENVINO, f"openvino-{_SHORT.get(dtype, dtype)}")):
        if runtime in wanted and (target == here or target in Target.builtin_names()):
            converted = convert_model(
                model.graph, model.arg_params, model.aux_params, dtype, target=target, input_shapes=shapes
            )
            found.append(Contender(f"{first.label}, {dtype} by mxamp", converted, runtimes=(runtime,)))
    return found


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
        rounds=_MOST_ROUNDS,
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
