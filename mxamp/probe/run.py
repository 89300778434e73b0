"""A probe from beginning to end."""

from __future__ import annotations

import datetime
import fnmatch
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from mxamp.dtypes import DType
from mxamp.errors import ExportError, TargetError, nearest_names
from mxamp.files import atomic_write, check_folder
from mxamp.measuring.machine import describe_machine, has_avx512, processors
from mxamp.ops import FACTS
from mxamp.probe.case import Case
from mxamp.probe.cases import all_cases
from mxamp.probe.document import document_in_float32, document_text, make_document
from mxamp.probe.fit_kernels import fit_kernels
from mxamp.probe.jobs import CHECK, TIME, Unit, is_on_volumes, jobs_of, units_of
from mxamp.probe.journal import Journal, journal_path
from mxamp.probe.kernel_samples import read_kernels
from mxamp.probe.time_kernels import JUDGE_SEED, KernelTiming, time_random_kernels, weights_by_error
from mxamp.probe.workers import Answer, Settings, Worker, probe_environment, run_units
from mxamp.targets import Target
from mxamp.targets.choose import automatic_target
from mxamp.version import __version__

Progress = Callable[[Unit, int, int], None]
"""Told of every unit that is done: which, how many are, and how many there are. Then of :data:`KERNELS`."""

KERNELS = Unit("kernels of random shapes", TIME)
"""What is timed for some time: of that a hundred parts are done or not."""


@dataclass(frozen=True)
class ProbeSettings:
    """What is measured, and how.

    Attributes
    ----------
    dtype
        The low dtype: bfloat16, or float16 for a GPU.
    ctx
        The device.
    threads
        How many OpenMP threads MXNet has.
    workers
        How many processes check at a time; times are taken by one alone. None for what there is room for.
    rounds
        How often each time is taken.
    limit
        Seconds that a case may take.
    only
        Patterns of operator names (``Conv*``); empty for all.
    command
        What is started for each process; the default is mxamp's own.
    kernel_seconds
        For how long kernels of random shapes are timed, which costs are fitted on; 0 for not. Only on CPUs,
        and where all operators are measured.
    """

    dtype: DType
    ctx: str
    threads: int
    workers: int | None = None
    rounds: int = 7
    limit: float = 30.0
    only: tuple[str, ...] = ()
    command: tuple[str, ...] = Settings("", "").command
    kernel_seconds: float = 240.0


def run_probe(
    output: str | os.PathLike[str],
    settings: ProbeSettings,
    *,
    name: str = "",
    description: str = "",
    fresh: bool = False,
    progress: Progress | None = None,
) -> Target:
    """Measure this machine, and write a target.

    What has been measured is kept in a journal beside the output until that is written: a probe that was
    interrupted goes on where it was. On a CPU on which MXNet has no bfloat16 operators and kernels are timed
    in float32 alone, and nothing is checked.

    Parameters
    ----------
    output
        The JSON file to write.
    settings
        What is measured, and how.
    name, description
        Of the target; by default the file's name. What it was measured on is added to the description.
    fresh
        Whether to measure everything again though there is a journal.
    progress
        Told of every unit that is done.

    Returns
    -------
    Target
        What was written.

    Raises
    ------
    DeviceError, MxnetMissingError
        When the device is not there or cannot run the dtype, or there is no MXNet.
    TargetError
        When there is nothing to measure, or the journal is another measurement's.
    ExportError
        When the output cannot be written.
    """
    path = Path(output)
    _check_output(path)
    is_alone = _is_float32_alone(settings)
    cases = _chosen_cases(settings.only)
    process = _process(settings, DType.FLOAT32 if is_alone else settings.dtype)
    machine = {**_machine(process, settings), "cases": _fingerprint(cases, settings)}
    place = journal_path(path)
    if fresh:
        place.unlink(missing_ok=True)
    journal = Journal(place, {"dtype": process.dtype, **machine})
    about: dict[str, Any] = {
        "name": name or path.stem,
        "description": description,
        "machine": _dated(machine),
    }
    try:
        _measure(cases, journal, process, settings, progress, (TIME,) if is_alone else (CHECK, TIME))
        if is_alone:
            builtin = automatic_target(settings.dtype)
            document = document_in_float32(builtin, cases, journal.answers, **about)
        else:
            device = "cpu" if machine["device"].startswith("cpu") else "gpu"
            document = make_document(cases, journal.answers, dtype=settings.dtype, device=device, **about)
        _add_kernels(document, settings, progress)
        target = _written(document, path)
    finally:
        journal.close()
    journal.remove()
    return target


def _is_float32_alone(settings: ProbeSettings) -> bool:
    """Return whether nothing runs in the low dtype there, so that costs in float32 are all there is."""
    is_cpu = settings.ctx.strip().lower().startswith("cpu")
    return is_cpu and settings.dtype is DType.BFLOAT16 and not settings.only and has_avx512() is False


def _process(settings: ProbeSettings, dtype: DType) -> Settings:
    return Settings(dtype.label, settings.ctx, settings.rounds, settings.limit, settings.command)


def _machine(process: Settings, settings: ProbeSettings) -> dict[str, Any]:
    """Return what is measured: the machine, and what a process says of its MXNet."""
    worker = Worker(process, probe_environment(settings.threads, check_heap=False))
    about = worker.about
    worker.close()
    return {**describe_machine(settings.threads), **about}


def _dated(machine: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**machine, "mxamp": __version__, "date": datetime.date.today().isoformat()}


def _written(document: Mapping[str, Any], path: Path) -> Target:
    target = Target.from_document(document, source=str(path))
    with atomic_write(path) as (file,):
        file.write(document_text(document).encode())
    return target


def _add_kernels(document: dict[str, Any], settings: ProbeSettings, progress: Progress | None) -> None:
    """Add to a document with costs what kernels of random shapes cost on a CPU.

    Half of the time goes to all families as networks have them, half to those that are estimated worst.
    """
    cost = document.get("cost")
    if cost is None or document["device"] != "cpu":
        return
    cost["kernels"] = {}  # of no other machine
    if not settings.kernel_seconds:
        return
    target = Target.from_document(document, source="what was measured")
    half = settings.kernel_seconds / 2

    def timing(already: float) -> KernelTiming:
        def tell(seconds: float) -> None:
            if progress is not None:
                share = min(already + seconds, settings.kernel_seconds) / settings.kernel_seconds
                progress(KERNELS, round(100 * share), 100)

        return KernelTiming(
            settings.dtype, probe_environment(settings.threads, check_heap=False), half, progress=tell
        )

    known = automatic_target(settings.dtype).cost
    timed = time_random_kernels(timing(0.0), target)
    weights = weights_by_error(read_kernels(timed), known)
    timed += time_random_kernels(timing(half), target, seed=JUDGE_SEED // 2, weights=weights)
    cost["kernels_measured"] = f"{len(timed)} kernels of random shapes on {cost['machine']}"
    cost["kernels"] = fit_kernels(read_kernels(timed), known)


def _check_output(path: Path) -> None:
    if path.is_dir():
        raise ExportError(f"Cannot write {str(path)!r}: it is a folder. Give a file (-o FILE.json).")
    if path.suffix != ".json":
        raise ExportError(
            f"Cannot write a target to {str(path)!r}: its name must end in .json, which is how "
            "`mxamp convert --target` tells a file from a built-in target."
        )
    check_folder(path.parent)
    if not os.access(path.parent, os.W_OK):
        raise ExportError(f"The folder {str(path.parent)!r} must not be written to. Give a file in another.")


def _chosen_cases(only: tuple[str, ...]) -> Mapping[str, Case]:
    cases = all_cases()
    if not only:
        return cases
    operators = {FACTS.canonical(one.op) for case in cases.values() for one in case.steps}
    for pattern in only:
        if not fnmatch.filter(operators, pattern):
            raise TargetError(
                f"No operator that is measured matches {pattern!r}.{nearest_names(pattern, operators)}"
            )
    return {
        name: case
        for name, case in cases.items()
        if not case.fused
        and len(case.steps) == 1
        and any(fnmatch.fnmatchcase(FACTS.canonical(case.steps[0].op), pattern) for pattern in only)
    }


def _fingerprint(cases: Mapping[str, Case], settings: ProbeSettings) -> str:
    """Return what tells one set of measurements from another."""
    jobs: list[Any] = [[name, jobs_of(case, CHECK), jobs_of(case, TIME)] for name, case in cases.items()]
    text = json.dumps([__version__, settings.rounds, jobs])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _measure(
    cases: Mapping[str, Case],
    journal: Journal,
    process: Settings,
    settings: ProbeSettings,
    progress: Progress | None,
    kinds: Sequence[str],
) -> None:
    """Do what the journal does not hold yet."""
    units = units_of(cases, kinds)
    seen = {unit for unit in units if unit in journal.answers}

    def record(unit: Unit, answer: Answer) -> None:
        journal.note(unit, answer)
        seen.add(unit)
        if progress is not None:
            progress(unit, len(seen), len(units))

    # Times are taken when nothing else runs; where memory is overrun is looked for when they are not.
    # A GPU is one, however many processors there are.
    at_once = 1 if settings.dtype is DType.FLOAT16 else max(1, processors() // settings.threads)
    for kind, workers, check_heap in ((CHECK, settings.workers or at_once, True), (TIME, 1, False)):
        todo = [unit for unit in units if unit.kind == kind and unit not in seen]
        if todo:
            environment = probe_environment(settings.threads, check_heap=check_heap)
            run_units(
                todo,
                process,
                environment,
                workers=workers,
                record=record,
                is_needless=lambda unit: _is_needless(unit, cases, journal.answers),
            )


def _is_needless(unit: Unit, cases: Mapping[str, Case], answers: Mapping[Unit, Answer]) -> bool:
    """Whether a unit could tell nothing more: its operator ends the process, or does not run here."""
    case = cases[unit.case]
    if unit.kind == TIME:
        own = answers.get(Unit(case.name, CHECK))
        return own is not None and (
            own.died is not None or all(job["outcome"] == "raises" for job in own.jobs)
        )
    return not case.fused and any(
        _ends_process(other, answers.get(Unit(other.name, CHECK)))
        for other in cases.values()
        if not other.fused and other.steps[0].op == case.steps[0].op and other.name != case.name
    )


def _ends_process(case: Case, answer: Answer | None) -> bool:
    """Whether a check has shown that an operator ends the process, wherever its input comes from."""
    if answer is None or answer.died is None or answer.died.get("phase") == "float32":
        return False
    return not is_on_volumes(case, jobs_of(case, CHECK)[int(answer.died["index"])])
