"""Measure models of the zoo and networks of other kinds, batch 1 and 8: FP32, MXNet's own converter, mxamp.

    python -m tools.benchmark_models            (or: make bench)

Each model has a process of its own, in which all variants run by turns, so that whatever else the machine
does falls on all of them alike. Errors are those of the conversion, against FP32 with fusion off; with random
weights, which are the default, they say nothing about accuracy. Every result is written down at once: a run
that was stopped goes on with --resume.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from pathlib import Path
from typing import Any, Sequence

from model_zoo_eval.arguments import count
from model_zoo_eval.process import Limits
from model_zoo_eval.registry import Case, select_cases
from mxamp.errors import DataError, MxampError
from mxamp.files import atomic_write
from tools.benchmark_models.bounds import judge, judged_variant
from tools.benchmark_models.group_bounds import judge_groups
from tools.benchmark_models.job import Job
from tools.benchmark_models.names import GROUPS, MODELS, MXAMP, TITLES
from tools.benchmark_models.plot import plot
from tools.benchmark_models.results import read_rows
from tools.benchmark_models.run import Task, run_tasks
from tools.benchmark_models.tables import document, insert_between_markers
from tools.machine import describe_machine, machine_lines, prepare_environment
from tools.networks.names import LARGEST_BATCH, NETWORK_NAMES

__all__ = ["main", "selected_models"]

_UNMET = 1
_USER_ERROR = 2
_INTERRUPTED = 130

_JOURNAL = "journal.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write.

    Parameters
    ----------
    arguments
        Command-line arguments; None means those of the process.

    Returns
    -------
    int
        The exit status: 0 when the run finished, whatever it found; with ``--check`` 1 where a bound is not
        met; 2 for an error of the user's.
    """
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except KeyboardInterrupt:
        print("Interrupted. What is done is in the journal; --resume goes on from there.", file=sys.stderr)
        return _INTERRUPTED
    except (MxampError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return _USER_ERROR


def selected_models(patterns: Sequence[str]) -> list[Case]:
    """Return the models to measure.

    Parameters
    ----------
    patterns
        Names or shell patterns, each over the benchmark's models, or, where it fits none of them, over the
        whole zoo; ``+primitive`` behind one chooses that form of a detector's graph. ``zoo`` is all of the
        benchmark's models of the zoo, ``networks`` all that are not of the zoo. Empty for both.

    Raises
    ------
    UnknownNameError
        When a pattern fits nothing.
    """
    chosen: dict[Case, None] = {}
    for pattern in patterns or GROUPS:
        names = GROUPS.get(pattern) or fnmatch.filter([*MODELS, *NETWORK_NAMES], pattern)
        found = [Case(name, _usual_form(name)) for name in names]
        chosen.update(dict.fromkeys(found or select_cases([pattern])))
    return list(chosen)


def _takes(name: str, batch: int) -> bool:
    """Whether a network takes so many samples; a model of the zoo is asked when it is built."""
    largest = LARGEST_BATCH.get(name, 0)
    return not largest or batch <= largest


def _usual_form(name: str) -> str:
    return "" if name in NETWORK_NAMES else select_cases([name])[0].form


def _run(options: argparse.Namespace) -> int:
    cases = selected_models(options.models)
    batches = list(dict.fromkeys(options.batch))
    prepare_environment()
    machine = {**describe_machine(seed=options.seed), "threads": options.threads}
    lines = machine_lines(machine)
    print("\n".join(lines), flush=True)
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    journal = folder / _JOURNAL
    if options.fresh:
        _set_aside(journal)
    conversion = [] if options.no_conversion else [0]
    results = run_tasks(
        [
            Task(case.name, case.form, batch)
            for case in cases
            for batch in [*conversion, *batches]
            if _takes(case.name, batch)
        ],
        Job(
            name="",
            seconds=options.seconds,
            rounds=options.rounds,
            seed=options.seed,
            draws=options.draws,
            residual_scale=options.residual_scale,
            pretrained=options.pretrained,
        ),
        journal=journal,
        limits=Limits(
            seconds=options.timeout,
            memory=int(options.memory * 2**30) if options.memory else None,
            threads=options.threads,
        ),
        machine=machine,
        resume=options.resume,
    )
    benchmark = read_rows(results.rows)
    variant = judged_variant(benchmark)
    of_groups = judge_groups(benchmark)
    bounds = [*judge(benchmark, variant), *of_groups]
    text = document(benchmark, bounds, lines)
    _write(folder / "benchmark.md", f"# Benchmark\n\n{text}".encode())
    measured = {
        "machine": machine,
        "runs": list(results.runs),
        "bounds": {
            name: [bound.to_mapping() for bound in judge(benchmark, name)] for name in {MXAMP, variant}
        },
        "bounds_of_groups": [bound.to_mapping() for bound in of_groups],
        "rows": dict(results.rows),
    }
    _write(folder / "benchmark.json", json.dumps(measured, indent=1, allow_nan=False).encode() + b"\n")
    drawn = _drawn(benchmark)
    if drawn:
        _write(folder / "benchmark.png", drawn)
    if options.write_docs:
        page: Path = options.write_docs
        image = page.with_suffix(".png")
        shown = ""
        if drawn:
            _write(image, drawn)
            shown = f"![Speed and error of every model]({image.name})\n\n"
        insert_between_markers(page, shown + document(benchmark, bounds, lines, level=3))
    print()
    print(text)
    print(f"What must hold, for {TITLES[variant]}:")
    for bound in bounds:
        print(f"  {bound}")
    if variant != MXAMP:
        print(f"The same for {TITLES[MXAMP]}, without profile:")
        for bound in judge(benchmark, MXAMP):
            print(f"  {bound}")
    print(f"\nTable, figures and plot are in {folder}/")
    return _UNMET if options.check and any(bound.is_broken for bound in bounds) else 0


def _drawn(benchmark: Any) -> bytes:
    """Return the plot; nothing, and a line that says why, where it cannot be drawn."""
    try:
        return plot(benchmark)
    except DataError as error:
        print(f"There is no plot. {error}", file=sys.stderr)
        return b""


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as (file,):
        file.write(content)


def _set_aside(journal: Path) -> None:
    """Rename an earlier journal: hours of measuring are not deleted."""
    if journal.exists():
        number = 1
        while journal.with_name(f"journal-{number}.jsonl").exists():
            number += 1
        journal.rename(journal.with_name(f"journal-{number}.jsonl"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.benchmark_models",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
        epilog="Exit status: 0 the run finished, 1 with --check: a bound is not met, 2 your error.",
    )
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="GLOB",
        default=(),
        help=f"names or shell patterns; zoo is the {len(MODELS)} models of GluonCV's zoo, networks the "
        f"{len(NETWORK_NAMES)} networks of other kinds (default: both)",
    )
    parser.add_argument(
        "--batch", nargs="+", type=count, default=[1, 8], metavar="N", help="batch sizes (default: 1 8)"
    )
    parser.add_argument(
        "--seconds",
        type=_positive,
        default=20.0,
        metavar="S",
        help="about how long to time a model at a batch size, all variants together; at least 9 and at most "
        "200 rounds (default: %(default)g)",
    )
    parser.add_argument(
        "--rounds", type=count, metavar="N", help="so many rounds instead, whatever they take"
    )
    parser.add_argument(
        "--threads",
        type=count,
        default=1,
        metavar="N",
        help="threads of MXNet (default: 1, as the built-in costs were measured)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of weights and order (default: %(default)s)"
    )
    parser.add_argument(
        "--draws",
        type=count,
        default=4,
        metavar="N",
        help="for so many draws of random weights errors are measured (default: %(default)s)",
    )
    parser.add_argument(
        "--residual-scale",
        type=_positive,
        default=1.0,
        metavar="X",
        help="how large residual branches end with random weights, relative to their trunk (default: 1, as "
        "layers are usually initialised)",
    )
    parser.add_argument(
        "--pretrained", action="store_true", help="trained weights, where they can be had (default: random)"
    )
    parser.add_argument(
        "--no-conversion", action="store_true", help="leave out the time of the conversion itself"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("benchmark-results"),
        metavar="DIR",
        help="default: %(default)s",
    )
    earlier = parser.add_mutually_exclusive_group()
    earlier.add_argument("--resume", action="store_true", help="leave out what the journal already has")
    earlier.add_argument("--fresh", action="store_true", help="set an earlier journal aside, start anew")
    parser.add_argument(
        "--timeout",
        type=count,
        default=3600,
        metavar="SECONDS",
        help="for one process (default: %(default)s)",
    )
    parser.add_argument("--memory", type=_positive, metavar="GIB", help="for one process (default: no limit)")
    parser.add_argument(
        "--write-docs", type=Path, metavar="FILE", help="put table and plot into a Markdown page, too"
    )
    parser.add_argument("--check", action="store_true", help="exit with status 1 where a bound is not met")
    return parser


def _positive(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be more than 0, not {number:g}")
    return number


if __name__ == "__main__":
    sys.exit(main())
